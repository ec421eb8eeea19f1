"""The program itself converts what a workspace names, whenever it is killed; its nodes have the result."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.registries.registry_server import Registry, need
from tests.daemons.service.test_outriderd_program import Program
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually, written

WORKSPACE = """version: 1
metadata:
  name: render
  image: {{uri: "{uri}"{more}}}
deployment: {{nodes: 2, duration: 10m, start: now+10minutes}}
"""


class ConvertingProgram(Program):
    """outriderd that converts, which is killed and begun again."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        super().__init__(folder)
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

    def await_image(self, name: str) -> Any:
        def details() -> Any:
            return self.ask("GET", f"/v1/reservations/{name}")[1]

        eventually(lambda: details()["reservation"]["state"] == "ready", f"image\n{self.log.read_text()}")
        return details()

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
