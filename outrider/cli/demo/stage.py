"""What the demo plays on: a folder, images, a service with its nodes. All of it goes at the end."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.demo.ending import ended_in_order
from outrider.cli.demo.images import DemoImageServer, write_image
from outrider.cli.demo.screen import Start
from outrider.cli.errors import CommandError, OutputError, UnreachableError
from outrider_client.transport import Transport

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

RATE_BYTES_PER_S = 6_000_000
NODES = "n[1-5]"
START_S, STOP_S = 120, 20
LOOK_S = 0.1
LOG_LINES = 15
MOST_FOLDER_BYTES = 60
"""So that the sockets of nodes inside have paths that Linux takes."""
_DAEMON = re.compile(r"node's daemon started node=(\S+) pid=(\d+)")

CONFIGURATION = """version: 1
site: demo
state: {folder}/state
socket: {folder}/s
link: {{rate: {rate}, best_effort_rate: 0, reserve: at-once, spread: 3s}}
timings: {{progress: 1s, look: 2s, call: 3s, away: 3s}}
backend: {{kind: embedded, nodes: "{nodes}", pool: 1GiB, rate: {rate}}}
"""
WORKSPACE = """version: 1
metadata:
  name: {name}
  image: {{uri: "{address}/{name}.qcow2"}}
deployment: {{nodes: {nodes}, duration: {duration}}}
"""
JOB = """#!/bin/sh
echo "job $OUTRIDER_JOB begins at $(date +%T) on $OUTRIDER_NODES"
echo "its own disk: ...${OUTRIDER_IMAGE#*/embedded}"
"""


@contextmanager
def staged(
    clock: Clock, environment: Mapping[str, str], image_bytes: Mapping[str, int], *, keeps_folder: bool
) -> Iterator[DemoStage]:
    """The stage, ready; whatever happens on it, nothing of it stays but the folder, if that is wanted.

    Raises CommandError, after the last lines of the service's log, if something went wrong.
    """
    stage = DemoStage(_folder(), clock, environment)

    def end() -> None:
        try:
            stage.end()
        finally:
            if keeps_folder:
                print(f"\nThe folder is {stage.folder}: log, images, pools, and what jobs printed.")
            else:
                shutil.rmtree(stage.folder, ignore_errors=True)

    with ended_in_order(end):
        try:
            stage.begin(image_bytes)
            yield stage
        except CommandError:
            print(f"\nThe end of the service's log:\n{stage.last_words()}", file=sys.stderr)
            raise


class DemoStage:
    """A running service and what belongs to it."""

    def __init__(self, folder: Path, clock: Clock, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.log = folder / "log"
        socket = str(folder / "s")
        self.environment = {
            **{name: value for name, value in environment.items() if not name.startswith("OUTRIDER_")},
            "OUTRIDER_SOCKET": socket,
            "PYTHONPATH": _path(environment),
        }
        self.client = Transport(socket, clock)
        self._clock = clock
        self._server: DemoImageServer | None = None
        self._service: subprocess.Popen[bytes] | None = None
        self._frozen: int | None = None

    def begin(self, image_bytes: Mapping[str, int]) -> None:
        """Images, their server, files to type about, and the service. Raises UnreachableError."""
        try:
            for name, size_bytes in image_bytes.items():
                write_image(self.folder / f"{name}.qcow2", size_bytes)
            rate = f"{RATE_BYTES_PER_S // 1_000_000}MB"
            text = CONFIGURATION.format(folder=self.folder, rate=rate, nodes=NODES)
            (self.folder / "outriderd.yaml").write_text(text)
            (self.folder / "job.sh").write_text(JOB)
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be written ({error.strerror})") from error
        (self.folder / "job.sh").chmod(0o755)
        self._server = DemoImageServer(self.folder)
        with self.log.open("wb") as log:
            self._service = subprocess.Popen(
                [
                    *(sys.executable, "-m", "outrider.cli.demo.ends_with_input"),
                    *("--config", str(self.folder / "outriderd.yaml"), "--init-if-empty"),
                ],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demo, which ends the service in order.
                start_new_session=True,
            )
        self._await_service()

    def launch(self, command: str, at: str) -> Start:
        """An `outrider …` of this very version."""
        return Start(
            argv=[sys.executable, "-m", "outrider.cli.main", *shlex.split(command)[1:]],
            environment=self.environment,
            folder=self.folder,
        )

    def write_workspace(self, name: str, nodes: int, duration: str) -> str:
        """A workspace's file, and its text."""
        assert self._server is not None
        text = WORKSPACE.format(name=name, address=self._server.address, nodes=nodes, duration=duration)
        (self.folder / f"{name}.yaml").write_text(text)
        return text

    def daemon_of(self, node: str) -> int:
        """The process of a node's pool."""
        found = [int(pid) for name, pid in _DAEMON.findall(self.log.read_text()) if name == node]
        if not found:
            raise UnreachableError(f"the service's log {self.log} does not name the daemon of {node}")
        return found[-1]

    def freeze(self, node: str) -> None:
        """The node's daemon does nothing any more, and nobody is told."""
        self._frozen = self.daemon_of(node)
        os.kill(self._frozen, signal.SIGSTOP)

    def output_of(self, job: str) -> Path:
        return self.folder / "state" / "embedded" / "jobs" / f"{job}.out"

    def last_words(self) -> str:
        """The end of the service's log."""
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        return "there is no log"

    def end(self) -> None:
        """Stop what runs. A daemon that stands still could not end in order."""
        if self._frozen is not None:
            with suppress(ProcessLookupError):
                os.kill(self._frozen, signal.SIGCONT)
        if self._service is not None:
            self._service.terminate()
            try:
                self._service.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._service.kill()
                self._service.wait()
            if self._service.stdin is not None:
                self._service.stdin.close()
        if self._server is not None:
            self._server.stop()

    def _await_service(self) -> None:
        assert self._service is not None
        until_s = self._clock.monotonic_s() + START_S
        while self._clock.monotonic_s() < until_s:
            if self._service.poll() is not None:
                raise UnreachableError(
                    f"the service ended at once, with the exit code {self._service.poll()}"
                )
            if self._is_promising():
                return
            self._clock.sleep(LOOK_S)
        raise UnreachableError(f"the service does not serve after {START_S} s")

    def _is_promising(self) -> bool:
        if not (self.folder / "s").exists():
            return False
        answer = self.client.get("/v1/status")
        return isinstance(answer, dict) and answer.get("is_promising") is True


def _folder() -> Path:
    """A new folder for this user alone, with a path that is short enough for sockets."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(parent)) + len("/outrider-demo-") + 8 <= MOST_FOLDER_BYTES:
            try:
                return Path(tempfile.mkdtemp(prefix="outrider-demo-", dir=parent))
            except OSError as error:
                raise OutputError(f"{parent}: no folder can be made there ({error.strerror})") from error
    raise OutputError("neither TMPDIR nor /tmp has a path short enough for a socket in it")


def _path(environment: Mapping[str, str]) -> str:
    """Where this program was found, so that the ones it starts are of the same version."""
    here = str(Path(__file__).resolve().parents[3])
    others = environment.get("PYTHONPATH", "")
    return f"{here}{os.pathsep}{others}" if others else here
