"""One virtual node: a folder with a pool, and the daemon that serves it as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cachemgr
from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.base.errors import CacheError
from cachemgr.config import read_texts
from cachemgr.daemon.network.listener import LONGEST_PATH
from cachemgr.network.client import DaemonClient
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool

SOCKET = "s"
BESIDE = ".new"
"""A daemon binds its socket under this longer name first."""
LOOPBACK = "127.0.0.1"
MOST_LOG_BYTES = 4 << 20
SHOWN_LOG_BYTES = 2_000
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""What of the service's environment a daemon gets: nothing that would configure it, and nothing
by which it could speak to systemd in the service's name."""


class EmbeddedError(Exception):
    """The virtual nodes cannot be run."""

    exit_code = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What all virtual nodes have alike. A rate of None is no limit."""

    limit_bytes: int
    rate_bytes_per_s: int | None = None
    relay_rate_bytes_per_s: int | None = None
    user_percent: int = 25
    users_percent: int = 50
    plain_http: tuple[str, ...] = ()


class VirtualNode:
    """One node. What is in its folder outlives the daemon and the service."""

    def __init__(self, name: str, folder: Path, *, key: Path, shape: Shape) -> None:
        self.name = name
        self.folder = folder
        self.socket = str(folder / SOCKET)
        self.port = 0
        self._key = key
        self._shape = shape
        self._process: subprocess.Popen[bytes] | None = None
        too_many = len(os.fsencode(self.socket + BESIDE)) - LONGEST_PATH
        if too_many > 0:
            raise EmbeddedError(
                f"the socket of node {name} would be {self.socket}, and Linux takes {LONGEST_PATH} bytes "
                f"with {BESIDE!r}: choose a folder whose path is shorter by {too_many}"
            )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def prepare(self) -> None:
        """The folder and the pool, made or adopted: its content stays, its limit may be another."""
        self.folder.mkdir(mode=0o711, exist_ok=True)
        settings = PoolSettings(limit_bytes=self._shape.limit_bytes, policy="lfu")
        try:
            ImagePool.create(RealDisk(), str(self.folder / "pool"), settings)
        except CacheError as error:
            raise EmbeddedError(f"node {self.name} has no pool: {error}") from error

    def start(self, environment: Mapping[str, str]) -> None:
        """A daemon, which does not serve yet. An orphan that still ends keeps it from doing so."""
        self.port = _free_port(self._port_before())
        texts = self._texts()
        text = "[cachemgr]\n" + "".join(f"{name} = {value}\n" for name, value in texts.items())
        replace_file(RealDisk(), str(self.folder / "conf"), text.encode())
        home = Path(cachemgr.__file__).resolve().parents[1]
        inherited = {name: environment[name] for name in INHERITED if name in environment}
        with self._open_log() as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "outrider.service.nodes.ends_with_input"),
                    *("--config", str(self.folder / "conf")),
                ],
                cwd="/",
                env={**inherited, "PYTHONPATH": str(home)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # A Ctrl-C at the terminal is for the service, which stops its nodes in order.
                start_new_session=True,
            )

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def answers(self) -> bool:
        try:
            with DaemonClient(self.socket, connect_s=1.0) as client:
                return bool(client.ask("ping", timeout_s=1.0)["pid"] == self.pid)
        except (CacheError, KeyError):
            return False

    def stop(self) -> None:
        """Tell the daemon to end; `wait` waits for it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> None:
        """Until the daemon has ended; one that does not is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            with suppress(OSError):
                os.unlink(self.socket)
        if process.stdin is not None:
            process.stdin.close()

    def last_words(self) -> str:
        """The end of the daemon's log."""
        with suppress(OSError), (self.folder / "log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - SHOWN_LOG_BYTES))
            return file.read(SHOWN_LOG_BYTES).decode(errors="replace").strip()
        return "there is no log"

    def shorten_log(self) -> None:
        """Begin it anew when it has become long. The daemon appends, so it goes on at its beginning."""
        path = self.folder / "log"
        with suppress(FileNotFoundError):
            if path.stat().st_size > MOST_LOG_BYTES:
                os.truncate(path, 0)

    def _open_log(self) -> IO[bytes]:
        """For administrators alone: it names the images of all users."""
        path = self.folder / "log"
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(log, 0o600)
        return os.fdopen(log, "ab")

    def _port_before(self) -> int:
        """The relay's port of the daemon before; 0 if there was none."""
        try:
            texts = read_texts(str(self.folder / "conf"), is_required=False)
        except CacheError:
            return 0
        port = texts.get("relay_listen", "").rpartition(":")[2]
        return int(port) if port.isascii() and port.isdigit() and int(port) < 1 << 16 else 0

    def _texts(self) -> dict[str, str]:
        return {
            "pool": str(self.folder / "pool"),
            "socket": self.socket,
            "relay_listen": f"{LOOPBACK}:{self.port}",
            "relay_key": str(self._key),
            "rate": str(self._shape.rate_bytes_per_s or 0),
            "relay_rate": str(self._shape.relay_rate_bytes_per_s or 0),
            "user_bytes": f"{self._shape.user_percent}%",
            "users_bytes": f"{self._shape.users_percent}%",
            "plain_http": " ".join(self._shape.plain_http),
            "watchdog": "0",
        }


def _free_port(wanted: int) -> int:
    """That port if nobody has it, and else one that the kernel chooses. Somebody may still be
    faster than the daemon, which then ends and is started with another."""
    for port in (wanted, 0):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            found: int = probe.getsockname()[1]
            return found
    raise EmbeddedError(f"no port is free at {LOOPBACK} for a node's relay: close some connections")
