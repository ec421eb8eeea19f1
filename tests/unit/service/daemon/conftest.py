"""Services in this process, on a socket of their own, and stopped again."""

from __future__ import annotations

import http.client
import io
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.service.daemon.configuration.files import load_config
from outrider.service.daemon.lead.keeping import create_store
from outrider.service.daemon.life import Orders, serve
from tests.unit.service.daemon.fakes import PATIENCE_S, FakeProviders, eventually, text_log, written


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


class Running:
    """A service in a thread; its systemd is a socket of the test's."""

    def __init__(self, folder: Path, text: str = "") -> None:
        self.folder = folder
        self.file = written(
            folder / "o.yaml",
            f"version: 1\nbackend: {{kind: embedded}}\nstate: {folder}/state\nsocket: {folder}/o.sock\n"
            f"{text}",
        )
        self.socket = folder / "o.sock"
        self.config = load_config([self.file], {})
        self.fake = FakeProviders()
        self.orders = Orders()
        self.stream = io.StringIO()
        self.error: Exception | None = None
        self.told: list[str] = []
        self._supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._supervisor.bind(str(folder / "notify"))
        self._supervisor.settimeout(PATIENCE_S)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self, *, is_new: bool = True) -> Running:
        if is_new:
            create_store(self.config)
        self._thread.start()
        eventually(lambda: self.has_told("READY=1") or not self.is_alive, "being ready", self.stream)
        return self

    def stop(self) -> None:
        self.orders.stop.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)
        if not self._listener.is_alive():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(b"", str(self.folder / "notify"))
        self._listener.join(PATIENCE_S)
        self._supervisor.close()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def has_told(self, state: str) -> bool:
        """Whether systemd was told something that begins so."""
        return any(each.startswith(state) for each in self.told)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = UnixConnection(self.socket)
        try:
            data = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _listen(self) -> None:
        """As systemd does: what is not read would hold up whoever tells it."""
        while state := self._supervisor.recv(4096):
            self.told.append(state.decode())

    def _serve(self) -> None:
        environment = {"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "100000"}
        try:
            serve(self.config, self.fake.providers, self.orders, text_log(self.stream), environment)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="ops-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def running(folder: Path) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def make(text: str = "") -> Running:
        made.append(Running(folder, text))
        return made[-1]

    yield make
    for each in made:
        for desk in each.fake.desks:
            desk.go.set()
        each.stop()
