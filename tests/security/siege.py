"""A real outriderd with real nodes, and users of the machine who mean it no good.

Each user is a child of the test that gives up root before it does anything. The service runs as
root or as an ordinary user, in a folder of its own, and is ended with everything it started.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cachemgr.network.client import DaemonClient
from testbed.waiting import awaited
from tests.daemons.node.daemons import as_user
from tests.repository import ROOT

PATIENCE_S = 90.0
ALICE = pwd.getpwnam("games").pw_uid
BOB = pwd.getpwnam("news").pw_uid
CLERK = pwd.getpwnam("mail").pw_uid
"""An administrator of the service who is not root."""
NAMELESS = 4_103
"""A user whom the machine's user database does not know."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")]),
    "PYTHONDONTWRITEBYTECODE": "1",
    "SECRET_OF_THE_SERVICE": "hush",
}
CONFIG = """version: 1
state: {folder}/s
socket: {folder}/o.sock
link: {{rate: 20MB, reserve: at-once, spread: 1s}}
timings: {{look: 1s, progress: 1s, reconcile: 30s, sight: 60s}}
backend: {{kind: embedded, nodes: '{nodes}', cpus: 4, memory: 4GiB, pool: 50MB}}
administrators: {{users: [mail]}}
"""


def python_of(uid: int) -> list[str]:
    """An interpreter that this user may run, with all that the service imports: the tests' own, or
    the system's with the tests' libraries. Without one there is nothing to be tried."""
    for interpreter in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run(
                [
                    interpreter,
                    "-c",
                    "import outrider.service.daemon.main, outrider.service.daemon.world.backends",
                ],
                user=uid,
                group=uid,
                extra_groups=[],
                env=ENVIRONMENT,
                cwd="/",
                check=True,
                capture_output=True,
                timeout=60,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return [interpreter]
    pytest.skip(f"uid {uid} may run no interpreter here that finds the service's libraries")


def eventually(claim: Callable[[], Any], what: str, words: Callable[[], str] = str) -> Any:
    """What the claim gives once that is true of anything; and what others say if it never is."""
    found = awaited(claim, PATIENCE_S)
    assert found, f"{what} did not happen\n{words()}"
    return found


class Line(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        until_s = time.monotonic() + PATIENCE_S  # noqa: TID251 - a test's own deadline
        while True:
            try:
                self.sock.connect(str(self._path))
                return
            except BlockingIOError:
                # So many connect at this moment that the kernel keeps no more of them waiting.
                if time.monotonic() > until_s:  # noqa: TID251
                    raise
                threading.Event().wait(0.02)


class Siege:
    """The service, and the ways to it."""

    def __init__(
        self, folder: Path, *, uid: int = 0, nodes: str = "n[1-2]", changes: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.uid = uid
        self.socket = folder / "o.sock"
        self.log = folder / "log"
        self.file = folder / "o.yaml"
        text = CONFIG.format(folder=folder, nodes=nodes)
        for before, after in (changes or {}).items():
            assert before in text
            text = text.replace(before, after)
        self.file.write_text(text)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **options: Any) -> Siege:
        python = python_of(self.uid) if self.uid else [sys.executable]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*python, "-m", "outrider.service", "--config", str(self.file), "--init-if-empty"],
                stderr=log,
                cwd="/",
                env=ENVIRONMENT,
                user=self.uid,
                group=self.uid,
                extra_groups=[],
                **options,
            )
        eventually(self._is_ready, "readiness", self.log.read_text)
        return self

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.ask(self.uid, "GET", "/readyz")[0] == 200)
        except OSError:
            return False

    def end(self) -> None:
        """The service, and what of its nodes and jobs is left."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_S)
        for line in self._runs().values():
            with suppress(ProcessLookupError):
                os.killpg(int(str(line[0]).split()[0]), signal.SIGKILL)

    def _runs(self) -> dict[str, list[object]]:
        journal = self.folder / "s" / "embedded" / "jobs.json"
        return dict(json.loads(journal.read_bytes())["runs"]) if journal.exists() else {}

    def ask(
        self,
        uid: int,
        method: str,
        path: str,
        body: object = None,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """What the service answers that user: the status, and the answer as JSON or as text."""
        given = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        given |= headers or {}
        text = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)

        def work() -> list[Any]:
            line = Line(self.socket)
            try:
                # Whoever sends too much is told so before all of it is sent.
                with suppress(BrokenPipeError):
                    line.request(method, path, text, given)
                with line.getresponse() as answer:
                    return [answer.status, answer.read().decode()]
            finally:
                line.close()

        status, answer = work() if uid == os.geteuid() else self.work(uid, work)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer

    def work(self, uid: int, function: Callable[[], Any], gids: tuple[int, ...] = ()) -> Any:
        """What a function gives that user; an error of theirs is an error here."""
        found = as_user(uid, function, gids)
        if "raises" in found:
            raise OSError(f"{found['raises']}: {found['message']}")
        return found["gives"]

    def reserve(self, uid: int, text: str, key: str = "", **options: str) -> tuple[int, Any]:
        body = {"workspace": text, "zone": "UTC", "options": options}
        return self.ask(uid, "POST", "/v1/reservations", body, key)

    def accepted(self, uid: int, text: str, key: str = "", **options: str) -> Any:
        status, decision = self.reserve(uid, text, key, **options)
        assert (status, decision.get("result")) == (201, "accepted"), decision
        return decision

    def node(self, uid: int, node: str, verb: str, **fields: Any) -> Any:
        """What a node's daemon answers that user: the result, or the error's name and words."""
        path = str(self.folder / "s" / "embedded" / "nodes" / node / "s")

        def work() -> Any:
            with DaemonClient(path) as client:
                return client.ask(verb, fields, timeout_s=PATIENCE_S)

        return as_user(uid, work)

    def state_of(self, name: str) -> str:
        return str(self.ask(0, "GET", f"/v1/reservations/{name}")[1]["reservation"]["state"])

    def await_state(self, name: str, state: str) -> None:
        eventually(lambda: self.state_of(name) == state, f"{name} being {state}", self._words)

    def submit(self, uid: int, *argv: str, **fields: Any) -> tuple[int, Any]:
        return self.ask(uid, "POST", "/v1/submissions", {"argv": list(argv), "duration": "1m", **fields})

    def output(self, job: str, until: str = "END") -> str:
        """What a job has written once that is in it."""
        path = self.folder / "s" / "embedded" / "jobs" / f"{job}.out"

        def text() -> str:
            return path.read_text() if path.exists() else ""

        eventually(
            lambda: until in text(), f"{until} in the output of job {job}", lambda: text() or self._words()
        )
        return text()

    def _words(self) -> str:
        return self.log.read_text()[-4000:]


@contextmanager
def siege(
    uid: int = 0, nodes: str = "n[1-2]", changes: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Siege]:
    """A service under siege, and nothing of it afterwards. `changes` are words of its configuration."""
    folder = Path(tempfile.mkdtemp(prefix="sec", dir="/tmp"))
    folder.chmod(0o755)
    os.chown(folder, uid, uid)
    made = Siege(folder, uid=uid, nodes=nodes, changes=changes)
    try:
        yield made.start(**options)
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


MEMBER = """
import json, os, socket, sys
uid, path, *requests = json.loads(sys.stdin.readline())
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
held = []
for each in requests:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(5)
    try:
        line.connect(path)
        line.sendall(bytes.fromhex(each))
    except OSError:
        continue
    held.append(line)
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def crowd(service: Siege, uids: Iterable[int], requests: Callable[[int], Iterable[bytes]]) -> Iterator[None]:
    """Each of these users opens a connection for each request, and holds on to all until the block's end."""
    members = []
    try:
        for uid in uids:
            member = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", MEMBER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            members.append(member)
            assert member.stdin is not None
            order = [uid, str(service.socket), *(each.hex() for each in requests(uid))]
            member.stdin.write(json.dumps(order) + "\n")
            member.stdin.flush()
        for member in members:
            assert member.stdout is not None
            assert member.stdout.readline(), "one of the crowd has died"
        yield
    finally:
        for member in members:
            member.communicate()


def workspace(
    uri: str, *, name: str = "ws", private: bool = False, digest: str = "", start: str = "now+1h"
) -> str:
    more = (", private: true" if private else "") + (f", digest: '{digest}'" if digest else "")
    return (
        f"version: 1\nmetadata: {{name: {name}, image: {{uri: '{uri}'{more}}}}}\n"
        f"deployment: {{nodes: 1, duration: 10m, start: {start}}}\n"
    )


def image_of(uid: int, path: Path, content: bytes, mode: int = 0o600) -> str:
    """A user's file; its digest."""
    path.write_bytes(content)
    path.chmod(mode)
    os.chown(path, uid, uid)
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Web:
    """A web server of the attacker's. `get` is what it answers to everything but HEAD."""

    def __init__(self, size_bytes: int, *, get: int = 404, words: str = "gone", body: bytes = b"") -> None:
        asked: list[tuple[str, str, dict[str, str]]] = []
        self.asked = asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                asked.append(("HEAD", self.path, dict(self.headers)))
                self.send_response(200)
                self.send_header("Content-Length", str(size_bytes))
                self.send_header("Accept-Ranges", "bytes")
                self.end_headers()

            def do_GET(self) -> None:
                asked.append(("GET", self.path, dict(self.headers)))
                self.send_response_only(get, words)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """A test's output is its own."""

        self.handler: Any = Handler
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Web:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def uri(self, path: str = "/image") -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"
