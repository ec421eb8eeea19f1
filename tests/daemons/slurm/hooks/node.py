"""One node as its hooks see it, without a batch system: the scripts, a daemon, and a /run of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from tests.daemons.node.daemons import CLOCK, Outside, eventually, make_pool
from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, KEY, PATH, UID, installed, own_folder

Done = subprocess.CompletedProcess[str]


class Node:
    """Where hooks run as slurmd runs them: with its environment and nothing else, and no PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_folder = folder / "run"
        self.told = self.run_folder / "outrider"
        self.told.mkdir(parents=True)
        self.hooks = installed(folder)
        self.daemon: Outside | None = None
        (folder / "key").write_bytes(KEY)
        (folder / "image").write_bytes(CONTENT)

    def serve(self) -> Outside:
        if not (self.folder / "pool").exists():
            make_pool(self.folder / "pool")
        socket = str(self.told / "cachemgr.sock")
        self.daemon = Outside(
            self.folder, pool=str(self.folder / "pool"), socket=socket, relay_key=str(self.folder / "key")
        )
        with DaemonClient(socket) as client:
            uri = str(self.folder / "image")
            client.ask("add", {"uri": uri, "digest": DIGEST}, on_progress=lambda told: None)
        return self.daemon

    def restore(self) -> None:
        """As after its installation, with a daemon that serves and has nothing but the image."""
        shutil.rmtree(self.folder / "lib")
        self.hooks = installed(self.folder)
        for kind in ("jobs", "failed"):
            shutil.rmtree(self.told / kind, ignore_errors=True)
        if self.daemon is None or self.daemon.process.poll() is not None:
            self.serve()
        assert self.daemon is not None
        with DaemonClient(self.daemon.socket) as client:
            for owner in self.instances():
                client.ask("release", {"owner": owner})

    def end(self) -> None:
        if self.daemon is not None and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()

    def patch(self, hook: str, old: str, new: str) -> None:
        """Make a hook meet with something that this machine does not have."""
        text = self.hooks[hook].read_text()
        assert old in text
        self.hooks[hook].write_text(text.replace(old, new))

    def command(
        self, hook: str, before: str = ":", after: str = ":", under: tuple[str, ...] = ()
    ) -> list[str]:
        inside = (
            f"mount --make-rprivate / && mount --bind {self.run_folder} /run || exit 99; {before}; "
            f'{" ".join(under)} {self.hooks[hook]}; status=$?; {after}; exit "$status"'
        )
        return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", inside]

    def run(self, hook: str, before: str = ":", after: str = ":", **changes: str) -> Done:
        """To its end, and to the end of the part of a prolog that asks apart."""
        return self._run(self.command(hook, before, after), changes)

    def run_under(self, watcher: tuple[str, ...], hook: str, **changes: str) -> Done:
        return self._run(self.command(hook, under=watcher), changes)

    def _run(self, argv: list[str], changes: dict[str, str]) -> Done:
        done = subprocess.run(
            argv,
            env=environment(**changes),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=240,
        )
        eventually("nothing is asked any more", lambda: not self.asking())
        return done

    def asking(self) -> list[Path]:
        return list((self.told / "jobs").glob("*.new-*"))

    def begin(self, hook: str) -> subprocess.Popen[bytes]:
        """Started, and left alone."""
        return subprocess.Popen(
            self.command(hook),
            env=environment(),
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def task(self, **more: str) -> Done:
        """The task prolog, as the job's user."""
        # Whatever PATH that user has set.
        user = f"PATH=/nowhere exec /usr/bin/setpriv --reuid={UID} --regid={UID} --clear-groups"
        inside = f"mount --bind {self.run_folder} /run && {user} {self.hooks['TaskProlog']}"
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", inside],
            env={"SLURM_JOB_ID": "17", "PATH": PATH, "LC_ALL": "C", **more},
            capture_output=True,
            text=True,
            timeout=240,
        )

    def files(self) -> list[str]:
        """What hooks have left for one another."""
        found = [path for kind in ("jobs", "failed") for path in (self.told / kind).glob("*")]
        return sorted(str(path.relative_to(self.told)) for path in found)

    def instances(self) -> list[str]:
        assert self.daemon is not None
        with DaemonClient(self.daemon.socket) as client:
            return [each["owner"] for each in client.ask("instances")["instances"]]


def environment(**changes: str) -> dict[str, str]:
    """What slurmd gives, but for what hooks do not look at. A change to nothing takes a variable away."""
    given = {
        "PATH": PATH,
        "SLURMD_NODENAME": "n1",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_UID": str(UID),
        "SLURM_JOB_RESTART_COUNT": "0",
        "SLURM_JOB_COMMENT": f"my own words outrider-ticket={ticket()}",
        **changes,
    }
    return {name: text for name, text in given.items() if text}


def ticket(key: bytes = KEY, digest: str = DIGEST) -> str:
    """For a day: tests are given it when they are collected, and run much later."""
    return make_job_ticket(key, JobTicket("17", UID, digest, CLOCK.now_s() + 86_400))


@contextmanager
def node() -> Iterator[Node]:
    folder = own_folder("hn")
    folder.chmod(0o755)
    made = Node(folder)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)


def processes_of(node: Node, hook: str, **changes: str) -> list[str]:
    """The programs that a hook starts, itself not counted."""
    trace = node.folder / "trace"
    argv = ["strace", "-f", "-qq", "-e", "trace=fork,vfork,clone,clone3,execve", "-o", str(trace)]
    done = subprocess.run(
        [*argv, str(node.hooks[hook])], env=environment(**changes), capture_output=True, timeout=240
    )
    assert done.returncode == 0
    return [line for line in trace.read_text().splitlines()[1:] if "exited" not in line]


def stopped(daemon: Outside) -> None:
    daemon.process.send_signal(signal.SIGSTOP)


def going(daemon: Outside) -> None:
    daemon.process.send_signal(signal.SIGCONT)


def mode_of(path: Path) -> tuple[int, int]:
    """The permissions, and the owner."""
    status = os.stat(path)
    return status.st_mode & 0o7777, status.st_uid


def answered(text: str) -> bytes:
    """What a service would answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + text.encode()


def verdict(word: str) -> bytes:
    return answered(json.dumps({"verdict": word, "words": "the image has left n3"}))
