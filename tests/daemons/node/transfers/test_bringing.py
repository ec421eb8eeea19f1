"""Bringing an image without a daemon: taking over, starting over, giving up, refusing."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError, Cancelled, SourceFailed, Unsuitable, WrongBytes
from cachemgr.base.hashing import InlineHasher
from cachemgr.fetch.bring import BringOrder, Origin, TransferTerms, bring, kind_of
from cachemgr.fetch.carrier import origin_of
from cachemgr.fetch.control import Control
from cachemgr.fetch.report import FetchProgress
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.pool import ImagePool, Want
from tests.daemons.node.daemons import CLOCK, MIB, ScriptedCarrier, eventually, make_pool, sha256

A, B = "http://x/a", "http://x/b"
CONTENT = b"0123456789abcdef" * (3 * MIB // 16)
DIGEST = sha256(CONTENT)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ImagePool]:
    found = open_pool(make_pool(tmp_path / "pool"))
    yield found
    found.close()


def open_pool(path: str) -> ImagePool:
    return ImagePool(RealDisk(), path, CLOCK, SqliteIndex(f"{path}/index.sqlite"))


def order(digest: str = "", *uris: str, kind: str = "file") -> BringOrder:
    origins = [origin_of(uri, is_trusted=True) for uri in uris or (A,)]
    want = Want(uri=A, size_bytes=len(CONTENT), digest=digest, format=kind)
    return BringOrder(want=want, origins=lambda: origins, names=(A,), alias_lifetime_s=60)


def terms(control: Control | None = None, seen: list[FetchProgress] | None = None) -> TransferTerms:
    return TransferTerms(control=control or Control(), on_progress=None if seen is None else seen.append)


def begun(pool: ImagePool, digest: str, data: bytes) -> None:
    """An ingest that its writer has left in the middle."""
    ingest = pool.want(Want(uri=A, size_bytes=len(CONTENT), digest=digest))
    assert isinstance(ingest, Ingest)
    writer = ingest.writer(InlineHasher())
    assert writer is not None
    writer.write(data)
    writer.pause()


def test_image_comes_with_its_name_for_a_while(pool: ImagePool) -> None:
    image = bring(pool, order(), ScriptedCarrier({A: CONTENT}), terms())
    alias = pool.alias(A)

    assert image.digest == DIGEST
    assert alias is not None
    assert alias.expires_s is not None
    assert 50 < alias.expires_s - CLOCK.now_s() <= 60


def test_what_is_here_already_is_not_fetched(pool: ImagePool) -> None:
    carrier = ScriptedCarrier({A: CONTENT})
    first = bring(pool, order(), carrier, terms())
    second = bring(pool, order(DIGEST, B), carrier, terms())

    assert first == second
    assert len(carrier.started_at) == 1


def test_known_digest_goes_on_where_the_last_writer_stopped(pool: ImagePool) -> None:
    begun(pool, DIGEST, CONTENT[:MIB])
    carrier = ScriptedCarrier({A: CONTENT})

    image = bring(pool, order(DIGEST), carrier, terms())

    assert image.digest == DIGEST
    assert carrier.started_at == [(A, MIB)]


def test_unknown_digest_starts_over_because_the_source_may_have_changed(pool: ImagePool) -> None:
    begun(pool, "", b"x" * MIB)
    carrier = ScriptedCarrier({A: CONTENT})

    image = bring(pool, order(), carrier, terms())

    assert image.digest == DIGEST
    assert carrier.started_at == [(A, 0)]


def test_wrong_bytes_of_an_earlier_writer_are_fetched_again_from_the_same_source(pool: ImagePool) -> None:
    begun(pool, DIGEST, b"x" * MIB)
    carrier = ScriptedCarrier({A: CONTENT})

    image = bring(pool, order(DIGEST), carrier, terms())

    assert image.digest == DIGEST
    assert carrier.started_at == [(A, MIB), (A, 0)]


def test_last_part_from_an_address_does_not_give_the_address_the_whole(pool: ImagePool) -> None:
    begun(pool, DIGEST, CONTENT[:MIB])

    bring(pool, order(DIGEST), ScriptedCarrier({A: CONTENT}), terms())

    assert pool.find(A) is None


def test_name_is_not_believed_if_another_source_delivered(pool: ImagePool) -> None:
    bring(pool, order(DIGEST, A, B), ScriptedCarrier({B: CONTENT}), terms())

    assert pool.find(A) is None
    assert pool.find(DIGEST) is not None


def test_wrong_bytes_leave_nothing_behind(pool: ImagePool) -> None:
    with pytest.raises(WrongBytes, match="then from other sources"):
        bring(pool, order(DIGEST, A, B), ScriptedCarrier({A: b"x" * len(CONTENT)}), terms())

    assert (pool.ingests(), pool.images()) == ([], [])


def test_failed_sources_leave_what_has_arrived(pool: ImagePool) -> None:
    carrier = ScriptedCarrier({A: CONTENT}, broken={A: 2 * MIB})
    with pytest.raises(SourceFailed):
        bring(pool, order(DIGEST), carrier, terms())

    assert [each.arrived_bytes() for each in pool.ingests()] == [2 * MIB]


def test_error_that_nobody_foresaw_lets_others_write(pool: ImagePool) -> None:
    class Broken(ScriptedCarrier):
        def carry(self, sink: object, origins: object, terms: object) -> tuple[str, ...]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bring(pool, order(DIGEST), Broken({A: CONTENT}), terms())

    assert bring(pool, order(DIGEST), ScriptedCarrier({A: CONTENT}), terms()).digest == DIGEST


def test_local_file_is_adopted_or_copied(pool: ImagePool, tmp_path: Path) -> None:
    path = tmp_path / "with space%.img"
    path.write_bytes(CONTENT)
    carrier = ScriptedCarrier()
    uri = path.as_uri()
    carrier.contents[uri] = CONTENT
    origins = [origin_of(uri, is_trusted=True)]
    want = Want(uri=uri, size_bytes=len(CONTENT), digest=DIGEST)

    image = bring(pool, BringOrder(want=want, origins=lambda: origins), carrier, terms())

    assert image.digest == DIGEST
    assert Path(pool.data_path(image.digest)).read_bytes() == CONTENT


def write_and_stall(path: str, writer: int) -> NoReturn:
    """In a child: write some of the image, and hold the right to write until the end comes."""
    try:
        ingest = open_pool(path).want(Want(uri=A, size_bytes=len(CONTENT), digest=DIGEST))
        assert isinstance(ingest, Ingest)
        sink = ingest.writer(InlineHasher())
        assert sink is not None
        sink.write(CONTENT[:MIB])
        sink.checkpoint()
        os.write(writer, b"!")
        signal.pause()
    finally:
        os._exit(1)


def test_second_process_watches_and_takes_over_when_the_writer_dies(tmp_path: Path) -> None:
    path = make_pool(tmp_path / "pool")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        write_and_stall(path, writer)
    os.close(writer)
    assert os.read(reader, 1) == b"!"
    os.close(reader)
    pool, seen, carrier = open_pool(path), list[FetchProgress](), ScriptedCarrier({A: CONTENT})
    found = []
    thread = threading.Thread(
        target=lambda: found.append(bring(pool, order(DIGEST), carrier, terms(seen=seen)))
    )
    thread.start()
    eventually("it watches", lambda: seen)
    os.kill(child, 9)
    os.waitpid(child, 0)
    thread.join(60)
    pool.close()

    assert (seen[0].offset_bytes, seen[0].source) == (MIB, "another process")
    assert [image.digest for image in found] == [DIGEST]
    assert carrier.started_at == [(A, MIB)]


def test_who_only_watches_can_be_cancelled(pool: ImagePool) -> None:
    ingest = pool.want(Want(uri=A, size_bytes=len(CONTENT), digest=DIGEST))
    assert isinstance(ingest, Ingest)
    writer = ingest.writer(InlineHasher())
    assert writer is not None
    control = Control()
    control.cancel("enough")

    with pytest.raises(Cancelled, match="enough"):
        bring(pool, order(DIGEST), ScriptedCarrier({A: CONTENT}), terms(control))
    writer.close()


def qcow2(backing: bytes = b"") -> bytes:
    """A version 2 header of a disk of 1 GiB, with the name of a backing file behind it."""
    header = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 72 if backing else 0, len(backing), 16, 1 << 30, 0, 2,
        3 << 16, 1 << 16, 1, 0, 0,
    )  # fmt: skip
    return (header + backing).ljust(len(CONTENT), b"\0")


def test_image_that_names_a_file_of_the_node_is_refused_and_dropped(pool: ImagePool) -> None:
    with pytest.raises(CacheError, match="backing"):
        bring(pool, order(), ScriptedCarrier({A: qcow2(b"/etc/shadow")}), terms())

    assert (pool.ingests(), pool.images()) == ([], [])


def test_format_is_told_by_content(pool: ImagePool) -> None:
    assert bring(pool, order(), ScriptedCarrier({A: qcow2()}), terms()).format == "qcow2"


@pytest.mark.parametrize(("declared", "kind"), [("file", "file"), ("raw", "raw")])
def test_disk_without_a_table_may_be_called_raw(declared: str, kind: str) -> None:
    assert kind_of(declared)(bytes(1024), 1024) == kind


@pytest.mark.parametrize("declared", ["raw", "squashfs", "sif"])
def test_format_that_the_content_denies_is_refused(declared: str) -> None:
    with pytest.raises(Unsuitable, match=f"said to be {declared}, but it is qcow2"):
        kind_of(declared)(qcow2()[:4096], len(CONTENT))


def test_origin_has_a_name_without_credentials() -> None:
    first, second = (
        origin_of(f"https://me:secret@h/x.img?sig={sign}", is_trusted=False) for sign in ("abc", "abd")
    )

    assert "secret" not in first.name
    assert "abc" not in first.name
    assert first.name != second.name
    assert dataclasses.replace(first, uri="") == Origin(uri="", name=first.name, scheme="https")
