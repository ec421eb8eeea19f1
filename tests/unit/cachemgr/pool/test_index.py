"""The index is a cache: whatever becomes of its file, the pool goes on with the right sums."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.base.errors import DiskFailed
from cachemgr.pool.index import IndexFailed, SqliteIndex
from cachemgr.pool.policies import PolicyEntry
from cachemgr.pool.pool import ImagePool
from tests.simulation.crash.memorydisk import MemoryDisk
from tests.simulation.crash.memoryindex import MemoryIndex
from tests.simulation.crash.world import SetClock, digest_of
from tests.unit.cachemgr.pool.conftest import Add, pin_of

A, B, C = b"a" * 400, b"b" * 300, b"c" * 200
BOOT = "boot-1"


@pytest.fixture(params=["sqlite", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteIndex | MemoryIndex]:
    found = SqliteIndex(str(tmp_path / "i")) if request.param == "sqlite" else MemoryIndex(MemoryDisk())
    yield found
    found.close()


def entry(key: str, size_bytes: int, uses: int = 0, expires_s: int | None = None) -> PolicyEntry:
    return PolicyEntry(key=key, size_bytes=size_bytes, added_s=5, uses=uses, expires_s=expires_s)


def test_new_index_is_not_believed_until_it_is_filled(index: SqliteIndex) -> None:
    assert not index.is_open
    assert not index.open(BOOT)
    index.refill(BOOT, [entry("a", 3), entry("b", 4)], {"ingest:c": 5})

    assert index.is_open
    assert index.open(BOOT)
    assert not index.open("boot-2")
    assert index.used_bytes() == 12


def test_what_is_put_taken_touched_and_dropped_adds_up(index: SqliteIndex) -> None:
    index.refill(BOOT, [], {})
    index.put(entry("a", 3))
    index.put(entry("a", 30, uses=2))
    index.put(entry("b", 4, expires_s=9))
    index.take("ingest:c", 5)
    index.take("ingest:c", 50)
    index.take("instance:d", 6)
    index.touch("a", 77)
    index.touch("nothing", 77)
    index.drop("b")
    index.drop("b")
    index.give_back("instance:d")
    index.give_back("instance:d")

    assert index.used_bytes() == 80
    assert index.taken() == {"ingest:c": 50}
    (only,) = index.entries()
    assert (only.key, only.size_bytes, only.uses, only.last_use_s, only.added_s) == ("a", 30, 3, 77, 5)


def test_index_that_was_never_filled_is_an_error_of_the_disk(index: SqliteIndex) -> None:
    with pytest.raises(OSError, match="open"):
        index.used_bytes()

    assert not index.is_open


SPOILS: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a database " * 100),
    "cut": lambda path: os.truncate(path, 5000),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another database": lambda path: other_database(path),
    "of a later version": lambda path: execute(path, "PRAGMA user_version = 99"),
    "without a table": lambda path: execute(path, "DROP TABLE total"),
}


def other_database(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE t (x)")


def execute(path: Path, statement: str) -> None:
    base = sqlite3.connect(path)
    base.execute(statement)
    base.commit()
    base.close()


@pytest.mark.parametrize("is_others_open", [False, True], ids=["alone", "open elsewhere"])
@pytest.mark.parametrize("how", SPOILS)
def test_spoiled_index_is_made_anew_by_the_next_changes(
    how: str,
    is_others_open: bool,
    root: Path,
    open_pool: Callable[[], ImagePool],
    add: Add,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the latest the second change has right sums: the first may meet the damage half-way."""
    monkeypatch.setattr("cachemgr.pool.index.BUSY_S", 0.3)
    add(A)
    others = open_pool() if is_others_open else None
    if others is not None:
        with others.changing("opening the index"):
            pass
    SPOILS[how](root / "index.sqlite")
    if how != "removed":
        for suffix in ("-wal", "-shm"):
            (root / f"index.sqlite{suffix}").unlink(missing_ok=True)
    fresh = open_pool()
    for attempt in range(2):
        try:
            with fresh.changing("looking"):
                used_bytes = fresh.index.used_bytes()
        except DiskFailed:
            assert attempt == 0
    assert used_bytes == 400
    add(B)
    if others is not None:
        with others.changing("looking"):
            assert others.index.used_bytes() == 700

    with fresh.changing("looking"):
        assert fresh.index.used_bytes() == 700


def test_index_in_whose_place_is_a_folder_is_an_error_with_a_sentence(
    root: Path, open_pool: Callable[[], ImagePool]
) -> None:
    (root / "index.sqlite").mkdir()
    pool = open_pool()

    with (
        pytest.raises(DiskFailed, match=r"looking failed: Is a directory .*index.sqlite"),
        pool.changing("looking"),
    ):
        raise AssertionError("not reached")


def test_damage_met_while_reading_is_an_error_of_the_disk(tmp_path: Path) -> None:
    index = SqliteIndex(str(tmp_path / "i"))
    index.refill(BOOT, [entry(f"{number:064}", 1) for number in range(500)], {})
    index.close()
    with open(tmp_path / "i", "r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (os.path.getsize(tmp_path / "i") - 8192))
    index = SqliteIndex(str(tmp_path / "i"))
    index.open(BOOT)

    with pytest.raises(IndexFailed, match="malformed"):
        index.entries()
    index.close()


def test_index_deleted_while_others_have_it_open_does_not_split_them(
    root: Path, open_pool: Callable[[], ImagePool], add: Add
) -> None:
    """Whoever has the deleted file open closes it last: that must not take the new one's log."""
    one, two = open_pool(), open_pool()
    for pool in (one, two):
        with pool.changing("opening"):
            pass
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (root / name).unlink(missing_ok=True)
    with one.changing("making it anew"):
        one.index.take("ingest:x", 7)
    two.index.close()
    add(A)
    three = open_pool()

    sums = []
    for pool in (one, two, three):
        with pool.changing("looking"):
            sums.append(pool.index.used_bytes())
    assert sums == [407, 407, 407]


def test_uses_are_counted_by_every_process_and_survive_the_index(
    root: Path, pool: ImagePool, open_pool: Callable[[], ImagePool], add: Add, clock: SetClock
) -> None:
    image = add(A)
    clock.at_s += 50
    other = open_pool()
    for each in (pool, other, pool):
        each.use(image.digest)
    (root / "index.sqlite").unlink()
    with other.changing("looking"):
        (found,) = other.index.entries()

    assert (found.uses, found.last_use_s) == (3, clock.now_s())


def test_use_whose_statistic_cannot_be_written_is_no_failure(pool: ImagePool, add: Add, root: Path) -> None:
    image = add(A)
    pool.index.close()
    (root / "index.sqlite").unlink()
    (root / "index.sqlite").mkdir()
    pool.use(image.digest)
    pool.use(digest_of(b"nobody has it"))

    assert (root / "images" / image.digest / "uses").read_text().split()[0] == "1"


def test_torn_statistics_count_as_no_use(pool: ImagePool, add: Add, root: Path) -> None:
    image = add(A)
    for text in ("", "7", "x y", "-3 5", "\0\0\0\0", "1 2 3"):
        (root / "images" / image.digest / "uses").write_text(text)
        (root / "lock").write_text("busy")
        with pool.changing("looking"):
            (found,) = pool.index.entries()
        assert found.uses == 0
        assert found.last_use_s in (image.added_s, 5)


def test_policy_decides_by_what_the_index_says(pool: ImagePool, add: Add, clock: SetClock) -> None:
    add(A, pin_of("job 1", clock))
    clock.at_s += 10
    b = add(B)
    clock.at_s += 10
    c = add(C)
    clock.at_s += 10
    pool.use(b.digest)
    add(b"d" * 200)

    assert pool.find(c.digest) is None
    assert pool.find(b.digest) == b
