"""What the head has made goes to nodes with the site's key, and to nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.sources import SourceSettings, source_of
from cachemgr.relay.tickets import make_ticket
from outrider.service.daemon.errors import BackendError
from outrider.service.nodes.headrelay import HeadRelay
from tests.daemons.containers.container_images import CLOCK, Quiet
from tests.daemons.registries.registry_server import digest_of, free_port

KEY = b"k" * 32
DATA = os.urandom(300_000)


def fetched(port: int, key: bytes, digest: str) -> bytes:
    ticket = make_ticket(key, digest, CLOCK.now_s() + 60)
    source = source_of(f"relay://127.0.0.1:{port}/{digest}", SourceSettings(), CLOCK, ticket=ticket)
    body = source.open(0, len(DATA), 20)
    found = bytearray()
    with memoryview(bytearray(65_536)) as block:
        while count := body.read_into(block, 20):
            found += block[:count]
    body.close()
    return bytes(found)


def test_head_gives_what_it_has_made_for_a_ticket_alone(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(DATA)
    digest, port = digest_of(DATA), free_port()

    def path_of(wanted: str) -> Path | None:
        return tmp_path / "made" if wanted == digest else None

    relay = HeadRelay(f"127.0.0.1:{port}", [KEY], path_of, CLOCK, Quiet())
    relay.start()
    try:
        assert fetched(port, KEY, digest) == DATA
        with pytest.raises(SourceFault, match="401"):
            fetched(port, b"x" * 32, digest)
        with pytest.raises(SourceFault, match="404"):
            fetched(port, KEY, digest_of(b"another"))
    finally:
        relay.stop()


class Heard(Quiet):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append((event, fields))


def test_address_of_another_machine_is_named_with_its_option() -> None:
    relay = HeadRelay(f"192.0.2.1:{free_port()}", [KEY], lambda digest: None, CLOCK, Quiet())

    with pytest.raises(BackendError, match=r"conversions\.address"):
        relay.start()


def test_address_that_is_taken_keeps_no_service_from_its_promises() -> None:
    address, log = f"127.0.0.1:{free_port()}", Heard()
    first, second = (HeadRelay(address, [KEY], lambda digest: None, CLOCK, each) for each in (Quiet(), log))
    first.start()
    try:
        second.start()
    finally:
        for each in (first, second):
            each.stop()

    assert log.warnings == [("made images reach no node: the address is taken", {"address": address})]
