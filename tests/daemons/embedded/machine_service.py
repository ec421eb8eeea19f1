"""outriderd with virtual nodes whose jobs run in real guests, and an ordinary user of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.qemu.command import CONSOLE_LOG
from outrider.core.model import Resources
from outrider.rms.base import RmsNode
from outrider.rms.embedded import EmbeddedSystem, JobMachines, ProcessLauncher
from testbed.linux_guest import append, linux_guest
from testbed.waiting import awaited
from tests.contract.embedded_harness import Quiet
from tests.daemons.forked import ForkedService
from tests.repository import ROOT
from tests.unit.service.daemon.conftest import UnixConnection
from tests.unit.service.daemon.fakes import written

WAIT_S = 180.0
UID = 65534 if os.geteuid() == 0 else os.geteuid()
CLIENT_PYTHON = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
SCRIPT = """#!/bin/sh
#OUTRIDER run: vm
#OUTRIDER boot: tiny
#OUTRIDER preemptible: suspend
i=0; while [ $i -lt LAST ]; do i=$((i+1)); echo $i; sleep 0.25; done
echo $i > counted
"""
WORKSPACE = """version: 1
metadata:
  name: count
  image: {{uri: "file://{image}"}}
deployment: {{nodes: {nodes}, {more}}}
"""


HAND_OVER = """
import sys
from outrider_client import Outrider, OutriderError, WorkspaceText
try:
    text = WorkspaceText(open("ws.yaml").read())
    print(Outrider(socket=sys.argv[1]).submit([sys.argv[2]], workspace=text).job)
except OutriderError as error:
    print(error)
"""

needs_qemu = pytest.mark.skipif(
    not os.path.exists(PROGRAM) and "CI" not in os.environ, reason=f"needs {PROGRAM}: make tools"
)


class MachineService:
    """outriderd with two virtual nodes whose jobs may run in machines, and a user of it."""

    def __init__(
        self, folder: Path, *, cpus: int = 1, jobs: str = "", backend: str = "", more: str = ""
    ) -> None:
        """`jobs`, `backend` and `more` are further keys of these sections and of the file."""
        self.folder, self.work, self.cpus = folder, folder / "work", cpus
        self.work.mkdir()
        os.chown(self.work, UID, -1)
        self.socket, self.log = folder / "o.sock", folder / "log"
        image = folder / "image.raw"
        image.write_bytes(bytes(1 << 20))
        image.chmod(0o644)
        self.image = image
        guest, boot = linux_guest(), folder / "boot" / "tiny"
        boot.mkdir(parents=True)
        shutil.copy(guest.kernel, boot / "kernel")
        shutil.copy(guest.initrd, boot / "initrd")
        (boot / "append").write_text(append())
        with_ssh = boot.with_name("ssh")
        shutil.copytree(boot, with_ssh)
        shutil.copy(guest.with_ssh, with_ssh / "initrd")
        self.file = written(
            folder / "o.yaml",
            f"version: 1\nstate: {folder}/s\nsocket: {self.socket}\n"
            "link: {rate: 50MB, reserve: at-once, spread: 1s}\ntimings: {look: 1s, sight: 20s}\n"
            f"jobs: {{machines: true, preemptible: true, saving_rate: 200MB, requeue_margin: 10s{jobs}}}\n"
            f"backend: {{kind: embedded, nodes: 'n[1-2]', cpus: {cpus}, memory: 2GiB, pool: 10MB, "
            f"boot: {boot.parent}{backend}}}\n{more}",
        )
        self.process: ForkedService | None = None

    def start(self) -> None:
        self.process = ForkedService(self.log, "--config", str(self.file), "--init-if-empty")
        self.must("the service is ready", self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def end_jobs(self) -> None:
        """What the service leaves to the next one, as its users' own."""
        self.kill()
        system = EmbeddedSystem(
            [
                RmsNode(name=name, capacity=Resources.of(cpus=self.cpus, memory_mib=2048))
                for name in ("n1", "n2")
            ],
            self.folder / "s/embedded/jobs.json",
            clock=SystemClock(),
            launcher=ProcessLauncher(self.folder / "s/embedded/jobs"),
            log=Quiet(),
            machines=self.job_machines(),
        )
        system.stop(ends_jobs=True)
        system.discard_left()

    def job_machines(self) -> JobMachines:
        found = JobMachines(self.folder / "s/embedded/machines", self.folder / "boot")
        found.prepare()
        return found

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = UnixConnection(self.socket)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def workspace(self, nodes: int, more: str) -> str:
        return WORKSPACE.format(image=self.image, nodes=nodes, more=more)

    def hand_over(
        self,
        script: str = SCRIPT,
        *,
        last: int = 100_000,
        memory: str = "memory: 128MiB, ",
        size: str = "duration: 5m",
    ) -> str:
        """What the user is told: the job's key, or why not."""
        (self.work / "ws.yaml").write_text(self.workspace(1, f"{memory}{size}"))
        # It is read when its job begins, which may be later.
        path = self.work / f"count{len(list(self.work.glob('count*')))}"
        path.write_text(script.replace("LAST", str(last)))
        path.chmod(0o755)
        identity: dict[str, Any] = (
            {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        done = subprocess.run(
            [CLIENT_PYTHON, "-c", HAND_OVER, str(self.socket), str(path)],
            cwd=self.work, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, timeout=120, check=True, **identity,
        )  # fmt: skip
        return str(done.stdout).strip()

    def counted(self, job: str) -> list[str]:
        path = self.folder / "s" / "embedded" / "jobs" / f"{job}.out"
        return path.read_text().rpartition("\n")[0].split() if path.exists() else []

    def job(self, job: str) -> dict[str, Any]:
        status, found = self.ask("GET", f"/v1/jobs/{job}")
        return found["job"] if status == 200 else {"state": "gone", "nodes": ""}

    def reservation(self, name: str) -> Any:
        return self.ask("GET", f"/v1/reservations/{name}")[1]["reservation"]

    def order(self, method: str, job: str, what: str, body: object = None) -> None:
        status, answer = self.ask(method, f"/v1/jobs/{job}/{what}", body)
        assert status == 200, answer

    def wait_for(self, what: str, job: str, state: str) -> None:
        self.must(what, lambda: self.job(job)["state"] == state)

    def wait_for_count(self, job: str, more: int) -> None:
        from_here = len(self.counted(job))
        self.must(f"job {job} counts on", lambda: len(self.counted(job)) >= from_here + more)

    def must(self, what: str, look: Callable[[], object]) -> None:
        assert awaited(look, WAIT_S), f"not in time: {what}\n{self.story()}"

    def story(self) -> str:
        """What its log, its batch system and its guests say."""
        log = self.log.read_text().splitlines()[-60:]
        outputs = [path.read_text()[-400:] for path in (self.folder / "s/embedded/jobs").glob("*.out")]
        consoles = [
            f"{path.parent.name}: {path.read_text(errors='replace')[-1500:]}"
            for path in (self.folder / "s/embedded/machines").glob(f"outrider-*/job-*/{CONSOLE_LOG}")
        ]
        return "\n".join([*log, (self.folder / "s/embedded/jobs.json").read_text(), *outputs, *consoles])

    def outrider(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What an administrator asks."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OUTRIDER_SOCKET": str(self.socket)}
        return subprocess.run(
            [sys.executable, "-m", "outrider.cli.main", *words],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def user_folders(self) -> list[Path]:
        return list((self.folder / "s/embedded/machines").glob("outrider-*"))

    def machines(self) -> list[str]:
        return sorted(each.name for each in (self.folder / "s/embedded/machines").glob("outrider-*/job-*"))


@contextmanager
def readable_folder() -> Iterator[Path]:
    """One that every user can read."""
    path = Path(tempfile.mkdtemp(prefix="vm-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
