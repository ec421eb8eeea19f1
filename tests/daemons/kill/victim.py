"""A site to be maltreated: a real service over virtual nodes, started, killed, asked, looked through."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cachemgr.base.clock import SystemClock
from testbed.waiting import awaited
from tests.repository import ROOT

CLOCK = SystemClock()
PATIENCE_S = 60.0
Json = dict[str, object]


class Gone(Exception):
    """Nobody listens, or the connection ended before the answer did."""


class Trouble(AssertionError):
    """What must not happen: the log's end is in the message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    status: int
    content: Json


class Preloaded:
    """The process that services are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("preloaded.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            cwd=ROOT,
            text=True,
        )

    def ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        for each in (self._process.stdin, self._process.stdout):
            assert each is not None
            each.close()
        self._process.wait(PATIENCE_S)


class Victim:
    """One site in a folder of its own. `state` or `backend` may be elsewhere, on a disk that fails."""

    def __init__(
        self,
        folder: Path,
        text: str = "",
        *,
        preloaded: Preloaded | None = None,
        nodes: int = 2,
        state: Path | None = None,
        backend: Path | None = None,
    ) -> None:
        self.folder = folder
        self.state = state or folder / "state"
        self.log = folder / "log"
        self.socket = folder / "o.sock"
        self.config = folder / "o.yaml"
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.backend = backend or folder / "e"
        self.node_folder = self.backend / "nodes"
        self.config.write_text(
            f"version: 1\nsite: kill\nstate: {self.state}\nsocket: {self.socket}\n"
            f"backend: {{kind: embedded, nodes: 'n[1-{nodes}]', cpus: 4, pool: 512MiB, "
            f"folder: {self.backend}}}\n"
            "timings: {look: 1s, progress: 1s, reconcile: 3s, sight: 10s, away: 10s, grace: 1s}\n"
            f"{text}"
        )
        self._preloaded = preloaded
        self._process: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None

    def init(self) -> None:
        code, words = self.run("--init")
        assert code == 0, words

    def run(self, *options: str) -> tuple[int, str]:
        """A service until it ends by itself: its exit code, and what it has said."""
        said_before = len(self.last_words(1 << 30))
        self.start(*options)
        pid = self.pid
        self.eventually("its end", lambda: is_over(pid))
        return self.reap(), self.last_words(1 << 30)[said_before:]

    def start(self, *options: str, from_nothing: bool = False) -> None:
        """A process that is going to be the service, and is not yet."""
        assert self.pid is None
        argv = ("--config", str(self.config), *options)
        if self._preloaded is not None and not from_nothing:
            self.pid = self._preloaded.ask(f"start {self.log} {' '.join(argv)}")
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "outrider.service", *argv],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=_environment(),
                cwd=ROOT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def await_ready(self) -> None:
        """Until it would promise something."""
        self.eventually("the service promises", lambda: self.asked("GET", "/v1/status").get("is_promising"))

    def kill(self) -> None:
        """SIGKILL, and nothing of the process is left."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        assert self.reap() == -signal.SIGKILL, self.last_words()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGTERM)
        return self.reap()

    def reap(self) -> int:
        """Wait for its end; the exit code."""
        assert self.pid is not None
        pid, self.pid = self.pid, None
        process, self._process = self._process, None
        if process is not None:
            return process.wait(PATIENCE_S)
        assert self._preloaded is not None
        return self._preloaded.ask(f"reap {pid}")

    def end(self) -> None:
        """Whatever still runs, runs no more."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.reap()
        for pid in processes_of(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def daemons(self) -> dict[str, int]:
        """The nodes' daemons by the names of their nodes."""
        found = {name: processes_of(self.node_folder / name) for name in self.nodes}
        return {name: pids[0] for name, pids in found.items() if pids}

    def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", timeout_s: float = PATIENCE_S
    ) -> Answered:
        """One request; raises Gone when there is no whole answer."""
        connection = _Connection(self.socket, timeout_s)
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise Gone(str(error)) from error
        finally:
            connection.close()
        assert isinstance(content, dict), content
        return Answered(status=response.status, content=content)

    def asked(self, method: str, path: str, body: object = None) -> Json:
        """What is answered; nothing if nobody answers."""
        try:
            return self.ask(method, path, body).content
        except Gone:
            return {}

    def eventually(self, what: str, is_so: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        if not awaited(is_so, within_s):
            raise Trouble(f"never: {what}\n{self.last_words()}")

    def last_words(self, letters: int = 3_000) -> str:
        return self.log.read_text(errors="replace")[-letters:] if self.log.exists() else ""

    def leftovers(self) -> list[str]:
        """What a service that has ended must not leave behind."""
        found = [f"process {pid}" for pid in processes_of(self.folder)]
        found += [f"socket {each}" for each in self.folder.rglob("*") if each.is_socket()]
        # A pool keeps what is unfinished of its own until it is checked or needs the room.
        beside = [each for each in self.folder.rglob("*.new") if "pool" not in each.parts]
        found += [f"unfinished {each}" for each in beside]
        mounts = Path("/proc/self/mounts").read_text()
        return found + [f"mount {line}" for line in mounts.splitlines() if f"{self.backend}/" in line]


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(str(self._path))
        except BaseException:
            self.sock.close()
            raise


def is_over(pid: int | None) -> bool:
    """Whether a process has ended, and nobody has asked yet how."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def processes_of(folder: Path) -> list[int]:
    """Processes on whose command line something in this folder is named."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                if f"{folder}/".encode() in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
    return sorted(found)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets, and which is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="kill-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "NOTIFY"))}
    return {**kept, "PYTHONPATH": str(ROOT)}
