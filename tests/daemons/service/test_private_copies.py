"""A popular image that somebody has privately from elsewhere: nobody else is kept from it by that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemons.service.test_outriderd_program import Program
from tests.daemons.service.test_outriderd_program import program as program
from tests.unit.cachemgr.fetch.servers import Server, file_server, serving
from tests.unit.service.daemon.fakes import eventually

DATA = os.urandom(300_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
WORKSPACE = """version: 1
metadata:
  name: {name}
  image: {{uri: "{uri}", digest: "{digest}", private: {private}}}
deployment: {{nodes: 2, duration: 10m, start: now+{minutes}minutes}}
"""


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    with serving(file_server(DATA)) as server:
        yield server


@pytest.fixture
def running(program: Program, elsewhere: Server) -> Program:
    """Both nodes have it, for one user alone."""
    program.start()
    uri = f"http://127.0.0.1:{elsewhere.port}/copy.img"
    assert reserve(program, "mine", uri, 10, private=True)["reservation"]["state"] == "ready"
    return program


def reserve(program: Program, name: str, uri: str, minutes: int, *, private: bool = False) -> Any:
    """What becomes of a reservation once its image is there, or does not come."""
    text = WORKSPACE.format(name=name, uri=uri, digest=DIGEST, private=str(private).lower(), minutes=minutes)
    body = {"workspace": text, "file": "ws.yaml", "zone": "UTC"}
    status, decision = program.ask("POST", "/v1/reservations", body, key=name)
    assert (status, decision["result"]) == (201, "accepted"), decision
    found: list[Any] = []

    def has_ended() -> bool:
        found[:] = [program.ask("GET", f"/v1/reservations/{decision['name']}")[1]]
        return found[0]["reservation"]["state"] in ("ready", "endangered")

    eventually(has_ended, f"the image of {name}\n{program.log.read_text()}")
    return found[0]


def is_public(program: Program) -> bool:
    (image,) = program.ask("GET", "/v1/images")[1]["images"]
    assert image["digest"] == DIGEST
    return not image["is_private"]


def test_public_image_is_read_again_by_one_node_for_all(running: Program) -> None:
    with serving(file_server(DATA)) as popular:
        later = reserve(running, "later", f"http://127.0.0.1:{popular.port}/popular.img", 30)
        reads = [each for each in popular.asked if each.method == "GET"]

    assert later["reservation"]["state"] == "ready", later["reservation"]["why"]
    assert len(reads) == 1
    assert is_public(running)


def test_file_that_everybody_may_read_opens_it_too(running: Program) -> None:
    path = running.folder / "popular.img"
    path.write_bytes(DATA)
    path.chmod(0o644)

    later = reserve(running, "later", f"file://{path}", 30)

    assert later["reservation"]["state"] == "ready", later["reservation"]["why"]


def test_address_with_other_bytes_opens_nothing(running: Program) -> None:
    """Whoever knows the digest of a private image, and not its bytes."""
    with serving(file_server(DATA[:-1] + b"!")) as claimed:
        later = reserve(running, "later", f"http://127.0.0.1:{claimed.port}/claimed.img", 30)

    assert later["reservation"]["state"] == "endangered"
    assert not is_public(running)
    mine = running.ask("GET", "/v1/reservations/mine-1")[1]["reservation"]
    assert mine["state"] == "ready"
