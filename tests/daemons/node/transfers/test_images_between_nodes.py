"""Two daemons, one of which fetches from the other's relay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError, NotInPool
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool.holdings import PoolHoldings
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import Ingest, Writer
from cachemgr.pool.pool import ImagePool, Want
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    Outside,
    ScriptedCarrier,
    eventually,
    make_pool,
    sha256,
)

A = "http://x/a"
CONTENT = b"0123456789abcdef" * (3 * MIB // 16)
DIGEST = sha256(CONTENT)


@pytest.fixture
def keys(folder: Path) -> tuple[str, str]:
    found = []
    for name in ("key", "other"):
        (folder / name).write_text(name * 16)
        found.append(str(folder / name))
    return found[0], found[1]


@pytest.fixture
def first(inside: Callable[..., Inside], carrier: ScriptedCarrier, keys: tuple[str, str]) -> Inside:
    carrier.contents = {A: CONTENT}
    return inside(relay_listen="127.0.0.1:0", relay_key=keys[0])


@pytest.fixture
def second(folder: Path, first: Inside) -> Iterator[Callable[..., Outside]]:
    started: list[Outside] = []
    (folder / "second").mkdir()

    def start(relay_key: str) -> Outside:
        make_pool(folder / "second" / "pool")
        started.append(Outside(folder / "second", relay_key=relay_key))
        return started[-1]

    yield start
    for each in started:
        each.end()


def relay(daemon: Inside) -> str:
    found: Any = daemon.daemon
    return f"relay://127.0.0.1:{found.relay.port}/sha256:{DIGEST}"


def wanted(daemon: Inside) -> dict[str, object]:
    return {"uri": A, "digest": DIGEST, "size_bytes": len(CONTENT), "sources": [relay(daemon)]}


def test_image_goes_from_node_to_node(
    first: Inside, second: Callable[..., Outside], keys: tuple[str, str]
) -> None:
    first.ask("add", uri=A, digest=DIGEST)
    first.settle()
    node = second(relay_key=keys[0])
    node.ask("add", **wanted(first))

    eventually("it is there", lambda: node.ask("ls")["images"], node.log)
    assert Path(node.ask("find", name=DIGEST)["path"]).read_bytes() == CONTENT


def test_image_is_passed_on_while_it_arrives(
    first: Inside, second: Callable[..., Outside], carrier: ScriptedCarrier, keys: tuple[str, str]
) -> None:
    gate = carrier.hold(A, 2 * MIB)
    first.ask("add", uri=A, digest=DIGEST)
    node = second(relay_key=keys[0])
    node.ask("add", **wanted(first))

    def bytes_there() -> int:
        return int(node.ask("transfers")["transfers"][0]["bytes"])

    eventually("as much is there as at the first", lambda: bytes_there() == 2 * MIB, node.log)
    gate.set()
    # The image can be seen a moment before its name.
    eventually("it is there", lambda: node.ask("transfers")["transfers"][0]["ended_s"], node.log)
    assert node.ask("find", name=A)["digest"] == f"sha256:{DIGEST}"


def test_ticket_of_another_key_admits_nobody(
    first: Inside, second: Callable[..., Outside], keys: tuple[str, str]
) -> None:
    first.ask("add", uri=A, digest=DIGEST)
    first.settle()
    node = second(relay_key=keys[1])
    node.ask("add", **wanted(first))

    eventually("it has failed", lambda: node.ask("transfers")["transfers"][0]["ended_s"], node.log)
    assert "401" in node.ask("transfers")["transfers"][0]["message"]


def test_relay_that_would_admit_nobody_does_not_start(inside: Callable[..., Inside]) -> None:
    with pytest.raises(CacheError, match="set relay_key, or relay_public"):
        inside(relay_listen="127.0.0.1:0")


class TestHoldings:
    """What the relay sees of a pool."""

    @pytest.fixture
    def pool(self, tmp_path: Path) -> Iterator[ImagePool]:
        path = make_pool(tmp_path / "pool")
        found = ImagePool(RealDisk(), path, CLOCK, SqliteIndex(f"{path}/index.sqlite"))
        yield found
        found.close()

    @pytest.fixture
    def writer(self, pool: ImagePool) -> Writer:
        ingest = pool.want(Want(uri=A, size_bytes=len(CONTENT), digest=DIGEST))
        assert isinstance(ingest, Ingest)
        found = ingest.writer(InlineHasher())
        assert found is not None
        return found

    def test_what_is_nowhere_is_not_held(self, pool: ImagePool) -> None:
        holdings = PoolHoldings(pool, lambda key: None)

        assert holdings.open(f"sha256:{DIGEST}") is None
        assert holdings.open("../../etc") is None

    def test_offset_of_this_process_counts_at_once(self, pool: ImagePool, writer: Writer) -> None:
        held = PoolHoldings(pool, lambda key: writer).open(DIGEST)
        assert held is not None
        before = held.valid_bytes()
        writer.write(CONTENT[:MIB])
        after, data = held.wait(0, 5), held.read(0, MIB)
        held.close()
        writer.close()

        assert (before, after) == (0, MIB)
        assert data == CONTENT[:MIB]

    def test_offset_of_another_process_counts_as_noted(self, pool: ImagePool, writer: Writer) -> None:
        held = PoolHoldings(pool, lambda key: None).open(DIGEST)
        assert held is not None
        writer.write(CONTENT[:MIB])
        before = held.valid_bytes()
        writer.checkpoint()
        after = held.valid_bytes()
        held.close()
        writer.close()

        assert (before, after) == (0, MIB)

    def test_reader_stays_with_the_image_as_it_is_committed_and_evicted(
        self, pool: ImagePool, writer: Writer
    ) -> None:
        held = PoolHoldings(pool, lambda key: None).open(DIGEST)
        assert held is not None
        writer.write(CONTENT)
        writer.commit()
        valid = held.valid_bytes()
        (Path(pool.layout.image(DIGEST)) / "data").unlink()
        data = held.read(len(CONTENT) - 16, 16)
        held.close()

        assert valid == len(CONTENT)
        assert data == b"0123456789abcdef"

    def test_given_up_ingest_is_missing(self, pool: ImagePool, writer: Writer) -> None:
        held = PoolHoldings(pool, lambda key: None).open(DIGEST)
        assert held is not None
        writer.abandon()
        with pytest.raises(NotInPool):
            held.wait(0, 5)
        held.close()

    def test_waiting_ends_in_time(self, pool: ImagePool, writer: Writer) -> None:
        held = PoolHoldings(pool, lambda key: writer).open(DIGEST)
        assert held is not None
        begin_s = CLOCK.monotonic_s()
        valid = held.wait(0, 0.1)
        took_s = CLOCK.monotonic_s() - begin_s
        held.close()
        writer.close()

        assert valid == 0
        assert 0.1 <= took_s < 2
