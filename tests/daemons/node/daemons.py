"""Daemons for tests: one in this process with a carrier under control, one as a process of its own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cachemgr import config as configs
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import Cancelled, NoDaemon, SourceFailed
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import Daemon, serve
from cachemgr.fetch.bring import Origin, TransferTerms
from cachemgr.fetch.ports import Resolved, Sink
from cachemgr.fetch.report import FetchProgress
from cachemgr.network.client import DaemonClient
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool
from testbed.waiting import awaited
from tests.repository import ROOT

DEADLINE_S = 90.0
CLOCK = SystemClock()
MIB = 1 << 20


def add_file(
    client: DaemonClient,
    path: Path,
    fields: Mapping[str, object] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Add a file of this node, opened here: that proves the right to read it."""
    with path.open("rb") as file:
        wanted = {"uri": path.as_uri(), **(fields or {})}
        return client.ask("add", wanted, on_progress=on_progress, descriptors=[file.fileno()])


def eventually(what: str, is_so: Callable[[], object], evidence: Callable[[], str] = str) -> None:
    """Poll until it is so; with the logs in the failure if it never is."""
    if not awaited(is_so, DEADLINE_S):
        pytest.fail(f"never: {what}\n{evidence()}")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def needs_root() -> None:
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("this test needs root, which CI has")
        pytest.skip("needs root, to become other users")


def pythons() -> list[str]:
    """Each version from 3.9 on that can be found, this one first."""
    homes = sorted((Path.home() / ".pyenv" / "versions").glob("3.*"))
    found = [sys.executable, "/usr/bin/python3", *(str(home / "bin" / "python") for home in homes)]
    found += [path for path in map(shutil.which, ("python3.9", "python3")) if path]
    ask = "import sys; print(*sys.version_info[:2])"
    versions: dict[str, str] = {}
    for path in found:
        if not Path(path).exists():
            continue
        told = subprocess.run([path, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=240)
        if told.returncode == 0 and tuple(map(int, told.stdout.split())) >= (3, 9):
            versions.setdefault(told.stdout.strip(), path)
    return [versions[version] for version in sorted(versions)]


@dataclass
class ScriptedCarrier:
    """Sources whose bytes, faults and pace a test decides, by their address."""

    contents: dict[str, bytes] = field(default_factory=dict)
    # Sources that deliver so many bytes and then stand still until their gate is opened.
    gates: dict[str, tuple[int, threading.Event]] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    # Sources that only answer who has a right of their own, which the site has.
    trusting: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    started_at: list[tuple[str, int]] = field(default_factory=list)

    def hold(self, uri: str, after_bytes: int = 0) -> threading.Event:
        gate = threading.Event()
        self.gates[uri] = (after_bytes, gate)
        return gate

    def resolve(self, origin: Origin, timeout_s: float) -> Resolved:
        self.asked.append(origin.uri)
        if origin.uri not in self.contents:
            raise SourceFailed(f"{origin.uri} does not exist")
        if origin.uri in self.trusting and not origin.is_trusted:
            raise SourceFailed(f"{origin.uri} wants a password")
        return Resolved(len(self.contents[origin.uri]), origin.uri)

    def carry(self, sink: Sink, origins: Sequence[Origin], terms: TransferTerms) -> tuple[str, ...]:
        delivered = []
        for origin in origins:
            self.started_at.append((origin.uri, sink.offset))
            is_refused = origin.uri in self.trusting and not origin.is_trusted
            if origin.uri not in self.contents or is_refused:
                continue
            delivered.append(origin.name)
            if self._deliver(sink, origin, terms):
                return tuple(delivered)
        raise SourceFailed("no source could deliver the image")

    def _deliver(self, sink: Sink, origin: Origin, terms: TransferTerms) -> bool:
        data = self.contents[origin.uri]
        ends = self.broken.get(origin.uri, len(data))
        held_at, gate = self.gates.get(origin.uri, (-1, threading.Event()))
        while sink.offset < ends:
            while (sink.offset == held_at and not gate.is_set()) or terms.control.is_paused:
                if terms.control.cancelled is not None:
                    break
                CLOCK.sleep(0.005)
            if terms.control.cancelled is not None:
                raise Cancelled(f"cancelled: {terms.control.cancelled}")
            stop = min(ends, sink.offset + MIB)
            if sink.offset < held_at:
                stop = min(stop, held_at)
            sink.write(data[sink.offset : stop])
            if terms.on_progress is not None:
                terms.on_progress(FetchProgress(sink.offset, len(data), MIB, None, origin.name))
        return sink.offset == len(data)


class Inside:
    """A daemon in this process."""

    def __init__(
        self, folder: Path, make: Callable[[configs.NodeConfig, DaemonLog], Daemon], **texts: str
    ) -> None:
        self.folder = folder
        self.text = io.StringIO()
        self.stopping = threading.Event()
        self.daemon: Daemon | None = None
        self.socket = str(folder / "s")
        self.pool = str(folder / "pool")
        given = {"pool": self.pool, "socket": self.socket, "watchdog": "0", **texts}
        self.config = configs.config(given)
        log = DaemonLog(self.text, level="debug")

        def remember(config: configs.NodeConfig, environment: object, log: DaemonLog) -> Daemon:
            self.daemon = make(config, log)
            return self.daemon

        self.failure: BaseException | None = None

        def work() -> None:
            try:
                serve(self.config, {}, log, self.stopping, make=remember)
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                self.failure = error

        self._thread = threading.Thread(target=work)
        self._thread.start()
        eventually("serves", lambda: self.failure or "daemon serves" in self.text.getvalue(), self.log)
        if self.failure:
            raise self.failure

    @property
    def node(self) -> Any:
        assert self.daemon is not None
        return self.daemon.node

    def log(self) -> str:
        return self.text.getvalue()

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        with DaemonClient(self.socket) as client:
            return client.ask(verb, fields)

    def settle(self) -> None:
        """Until every transfer has ended."""

        def has_ended() -> bool:
            return all(each["ended_s"] is not None for each in self.ask("transfers")["transfers"])

        eventually("transfers have ended", has_ended, self.log)

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), self.log()


def make_pool(path: Path, limit_bytes: int = 64 * MIB) -> str:
    ImagePool.create(RealDisk(), str(path), PoolSettings(limit_bytes=limit_bytes, policy="lfu"))
    return str(path)


class Outside:
    """A daemon as a process of its own, by the module's own command."""

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
        most_open_files: int | None = None,
        **texts: str,
    ) -> None:
        self.folder = folder
        self.socket = texts.get("socket", str(folder / "s"))
        self.path = folder / "conf"
        given = {"pool": str(folder / "pool"), "socket": self.socket, **texts}
        self.path.write_text("[cachemgr]\n" + "".join(f"{name} = {text}\n" for name, text in given.items()))
        self.log_path = folder / "log"
        with self.log_path.open("ab") as log:
            limited = [] if most_open_files is None else ["prlimit", f"--nofile={most_open_files}:"]
            self.process = subprocess.Popen(
                [*limited, python, "-m", "cachemgr.daemon", "--config", str(self.path)],
                cwd="/",
                env={"PYTHONPATH": str(ROOT), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        eventually("answers", self.is_up, self.log)

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(self.log())
        try:
            self.ask("ping")
        except NoDaemon:
            return False
        return True

    def log(self) -> str:
        return self.log_path.read_text()

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        with DaemonClient(self.socket) as client:
            return client.ask(verb, fields)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


def as_user(uid: int, work: Callable[[], Any], gids: tuple[int, ...] = ()) -> Any:
    """What a function gives when another user calls it: in a child of this process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The child of a process with threads must not wait for them; this one only talks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            # With them go locks of a daemon in this process, which a child would hold too.
            os.closerange(3, writer)
            os.closerange(writer + 1, 4096)
            os.setgroups(list(gids))
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                found = {"gives": work()}
            except Exception as error:  # noqa: BLE001 - told to the parent
                found = {"raises": type(error).__name__, "message": str(error)}
            os.write(writer, json.dumps(found).encode())
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(text)
