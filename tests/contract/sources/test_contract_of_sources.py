"""What a transfer relies on of a source, for every kind that is in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.config import SCHEMES, config
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.kinds import KINDS
from cachemgr.fetch.sources.sources import MAKERS, SourceSettings, source_of
from cachemgr.fetch.sources.uris import SUPPORTED, parse
from outrider.service.images.resolving import LOOKS
from tests.contract.sources.conftest import SOURCES
from tests.contract.sources.served import Served

if TYPE_CHECKING:
    from cachemgr.fetch.sources.sources import AnySource

PATIENCE_S = 10.0
# What needs programs, servers or other nodes has tests of its own.
ELSEWHERE = {"s3", "https", "docker", "oras", "ssh", "sftp", "rsync", "relay"}


def source(uri: str) -> AnySource:
    return source_of(uri, SourceSettings(), SystemClock())


def read(found: AnySource, offset: int, size_bytes: int) -> bytes:
    stream = found.open(offset, size_bytes, PATIENCE_S)
    content, buffer = bytearray(), memoryview(bytearray(100_000))
    try:
        start = stream.start_bytes
        while (count := stream.read_into(buffer, PATIENCE_S)) != 0:
            assert count is not None, "nothing came in time"
            content += buffer[:count]
    finally:
        stream.close()
    assert start <= offset
    return bytes(content[offset - start :])


def test_size_is_told_before_the_first_byte(served: Served) -> None:
    assert source(served.uri).resolve(PATIENCE_S).size_bytes == len(served.content)


def test_bytes_are_those_of_the_image(served: Served) -> None:
    assert read(source(served.uri), 0, len(served.content)) == served.content


def test_transfer_that_was_interrupted_goes_on_where_it_was(served: Served) -> None:
    found = source(served.uri)
    found.resolve(PATIENCE_S)

    assert read(found, 12_345, len(served.content)) == served.content[12_345:]


def test_same_address_has_the_same_validator_while_nothing_changes(served: Served) -> None:
    first, second = (source(served.uri).resolve(PATIENCE_S) for _ in range(2))

    assert first == second


def test_image_that_has_changed_is_noticed(served: Served) -> None:
    if served.change is None:
        pytest.skip("its images cannot change")
    found = source(served.uri)
    size_bytes = found.resolve(PATIENCE_S).size_bytes
    served.change()

    with pytest.raises(SourceFault):
        read(found, 1, size_bytes)


def test_source_is_called_by_its_address(served: Served) -> None:
    assert source(served.uri).name == served.uri == parse(served.uri).name


def test_source_that_is_no_relay_says_so(served: Served) -> None:
    found = source(served.uri)

    assert (found.is_relay, found.status(PATIENCE_S)) == (False, None)


def test_every_kind_is_made_read_and_tried_somewhere() -> None:
    assert set(MAKERS) == set(KINDS) - {"relay"}
    assert set(SOURCES) | ELSEWHERE == set(KINDS)
    assert set(LOOKS) <= set(KINDS)
    assert [scheme for scheme, kind in KINDS.items() if not kind.form.startswith(f"{scheme}://")] == []


def test_every_kind_can_be_allowed_and_is_named_where_an_address_is_refused() -> None:
    allowed = config({"user_schemes": " ".join(KINDS)}).user_schemes

    assert allowed == tuple(KINDS) == SCHEMES
    assert [scheme for scheme in KINDS if f"{scheme}://" not in SUPPORTED] == []
