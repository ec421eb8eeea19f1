"""The program itself converts what a workspace names, whenever it is killed; its nodes have the result."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.service.images.containers.pace import LEAST_BYTES
from tests.daemons.containers.container_images import CLOCK, entry, layer, push
from tests.daemons.registries.registry_server import Registry, need
from tests.daemons.service.test_outriderd_program import Program
from tests.repository import ROOT
from tests.unit.cachemgr.fetch.servers import Asked, head, serving
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually, written

WORKSPACE = """version: 1
metadata:
  name: render
  image: {{uri: "{uri}"{more}}}
deployment: {{nodes: 2, duration: 10m, start: now+10minutes}}
"""


class ConvertingProgram(Program):
    """outriderd that converts, which is killed and begun again."""

    def __init__(self, folder: Path, registry: Registry, *, is_forked: bool = True) -> None:
        super().__init__(folder, is_forked=is_forked)
        text = self.file.read_text().replace("version: 1\n", "")
        more = f"registries: {{plain_http: '{registry.address}'}}\nconversions: {{user: nobody}}\n"
        self.file = written(folder / "o.yaml", f"version: 1\n{more}{text}")

    @property
    def place(self) -> Path:
        return self.folder / "s/conversions"

    def reserve(self, uri: str, key: str, more: str = "") -> tuple[int, Any]:
        body = {"workspace": WORKSPACE.format(uri=uri, more=more), "file": "ws.yaml", "zone": "UTC"}
        while True:
            status, answer = self.ask("POST", "/v1/reservations", body, key=key)
            # As the command does it while an image is being converted.
            if status != 503:
                return status, answer

    def reserve_by_command(self, uri: str, start: str) -> subprocess.Popen[str]:
        (self.folder / "ws.yaml").write_text(body(uri, start)["workspace"])
        program = "from outrider.cli.main import run; run()"
        return subprocess.Popen(
            [sys.executable, "-c", program, "reserve", "ws.yaml", "--socket", str(self.socket)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def await_image(self, name: str) -> Any:
        found: list[Any] = []

        def is_ready() -> bool:
            # Where the processors are busy it may be told to ask again.
            found[:] = [self.ask("GET", f"/v1/reservations/{name}")[1]]
            return bool(found[0].get("reservation", {}).get("state") == "ready")

        try:
            eventually(is_ready, f"image of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}{found}\n{self.log.read_text()}") from error
        return found[0]

    def copies(self) -> list[bytes]:
        return [path.read_bytes() for path in (self.folder / "s/embedded/nodes").rglob("data")]


@pytest.fixture
def program(registry: Registry) -> Iterator[ConvertingProgram]:
    need("sqfstar")
    folder = Path(tempfile.mkdtemp(prefix="conv-", dir="/tmp"))
    folder.chmod(0o755)
    made = ConvertingProgram(folder, registry)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


def test_reservation_of_a_container_image_has_the_result_on_its_nodes(
    program: ConvertingProgram, registry: Registry
) -> None:
    uri = push(registry, "team/whole", [layer(entry("a", b"whole"))])
    program.start()

    status, decision = program.reserve(uri, "k1", ", format: sif")

    assert (status, decision["result"]) == (201, "accepted"), decision
    program.await_image(decision["name"])
    digest = decision["image"]["digest"]
    assert [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in program.copies()] == [digest] * 2
    assert {data[32:41] for data in program.copies()} == {b"SIF_MAGIC"}


def test_service_that_is_killed_while_it_converts_leaves_nothing_half_made(
    program: ConvertingProgram, registry: Registry
) -> None:
    data = layer(*(entry(f"file-{number}", os.urandom(1 << 20)) for number in range(6)))
    uri = push(registry, "team/killed", [data, layer(entry("last", b"last"))])
    states: list[str] = []
    program.start()
    for stop in ("layers", "work"):
        # Nobody waits for the answer: the service dies before it is given.
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            _killed_at(program, uri, stop)
        states.append(stop)
        assert list((program.place / "made").iterdir()) == []
        assert list((program.place / "records").iterdir()) == []
        program.start()
        assert list((program.place / "work").iterdir()) == []

    status, decision = program.reserve(uri, "k-last")

    assert (status, decision["result"]) == (201, "accepted"), decision
    made = list((program.place / "made").iterdir())
    assert [f"sha256:{each.name}" for each in made] == [decision["image"]["digest"]]
    assert states == ["layers", "work"]


def _killed_at(program: ConvertingProgram, uri: str, stop: str) -> None:
    """Ask, and kill the service as soon as there is something in that folder."""

    def kill() -> None:
        eventually(lambda: any((program.place / stop).rglob("*")), f"something in {stop}")
        program.end(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        program.reserve(uri, f"k-{stop}")
    finally:
        killer.join()


class LayerGate:
    """Stands before the registry, and lets nobody have a layer before it is opened."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.opened = threading.Event()
        self.asked = threading.Event()

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        if "/blobs/" in asked.target:
            self.asked.set()
            self.opened.wait(PATIENCE_S)
        target = f"http://{self._registry.address}{asked.target}"
        sock.sendall(head("307 Temporary Redirect", Location=target, Content_Length="0"))


@pytest.mark.long
def test_conversion_counts_in_what_is_planned_and_refused_and_is_waited_for_over_a_kill(
    program: ConvertingProgram, registry: Registry
) -> None:
    gate = LayerGate(registry)
    with serving(gate.answer) as server:
        address = f"127.0.0.1:{server.port}"
        text = program.file.read_text().replace(registry.address, f"{registry.address} {address}")
        program.file.write_text(text)
        data = os.urandom(100_000)
        uri = push(registry, "team/gated", [data_layer(data)]).replace(registry.address, address)
        program.start()
        # What earlier conversions took: ten minutes for a small one.
        size_bytes = len(gzip.compress(data_layer(data), mtime=0))
        (program.place / "pace/pace.json").write_text(json.dumps({"squashfs": [LEAST_BYTES, 600]}))
        began_s = int(CLOCK.now_s())
        try:
            early = program.ask("POST", "/v1/reservations", body(uri, "now+5minutes"), key="early")
            planned = program.ask("POST", "/v1/plans", body(uri, "now+1hour"))
            waiting = program.reserve_by_command(uri, "now+1hour")
            assert waiting.stderr is not None
            progress = waiting.stderr.readline()
            program.end(signal.SIGKILL)
            program.start()
        finally:
            gate.opened.set()
        out, _ = waiting.communicate(timeout=PATIENCE_S)

    assert early[0] == 200, early
    assert early[1]["result"] == "refused"
    assert "is being converted until about" in early[1]["reason"]
    # Ten minutes and some seconds of looking at the registry, and then a transfer of 100 kB at 50 MB/s.
    assert 590 <= early[1]["earliest_start_s"] - began_s <= 640
    assert planned[1]["result"] == "accepted"
    assert planned[1]["image"]["size_bytes"] == size_bytes
    assert "its size and times are what is expected" in planned[1]["notes"][0]
    assert "is being converted to squashfs" in progress
    assert waiting.returncode == 0, out
    found = program.ask("GET", "/v1/reservations")[1]["reservations"]
    assert len(found) == 1
    assert found[0]["name"] in out


def data_layer(data: bytes) -> bytes:
    return layer(entry("data", data))


def body(uri: str, start: str) -> dict[str, str]:
    text = WORKSPACE.format(uri=uri, more="").replace("now+10minutes", start)
    return {"workspace": text, "file": "ws.yaml", "zone": "UTC"}
