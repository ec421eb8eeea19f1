"""Copies of a store in use are whole, checked, and can be put back without losing what was there."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from outrider.store.errors import Conflict, Damaged, Full, Locked, StoreMissing, TooNew
from outrider.store.sqlite.backup import back_up, put_back, verify
from outrider.store.sqlite.migrations import NEWEST
from outrider.store.sqlite.store import SqliteStore
from tests.unit.store.samples import new_store, promise_all


def names(path: Path) -> list[str]:
    with SqliteStore.open(path, 99) as store:
        return [each.name for each in store.live_reservations()]


def test_a_store_in_use_is_copied_as_it_is_at_one_instant(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        back_up(store.path, tmp_path / "copy.sqlite")
        promise_all(store, "w2", 2)

        assert verify(tmp_path / "copy.sqlite") == NEWEST
        assert [each.name for each in store.live_reservations()] == ["w1", "w2"]
    assert names(tmp_path / "copy.sqlite") == ["w1"]
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600


def test_copies_made_while_promises_are_made_hold_whole_promises(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        is_over = threading.Event()
        copies: list[Path] = []

        def copy() -> None:
            while not is_over.is_set() and len(copies) < 8:
                target = tmp_path / f"copy{len(copies)}.sqlite"
                back_up(store.path, target)
                copies.append(target)

        thread = threading.Thread(target=copy)
        thread.start()
        number = 0
        while thread.is_alive() and number < 3000:
            number += 1
            promise_all(store, f"w{number}", number)
        is_over.set()
        thread.join(timeout=240)

    assert not thread.is_alive()
    assert copies
    counts = []
    for each in copies:
        with SqliteStore.open(each, 99) as found:
            count = len(found.live_reservations())
            assert len(found.live_transfers()) == len(found.due_effects(0)) == count
            counts.append(count)
    assert counts == sorted(counts)


def test_a_copy_put_back_is_the_store_and_what_was_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        back_up(path, tmp_path / "copy.sqlite")
        promise_all(store, "w2", 2)

    moved = put_back(tmp_path / "copy.sqlite", path, 1234)

    assert names(path) == ["w1"]
    assert [each.name for each in moved] == ["store.sqlite.before-1234"]
    assert names(moved[0]) == ["w1", "w2"]


def test_the_log_of_a_dead_service_is_not_read_into_the_copy_that_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    child = os.fork()
    if not child:
        store = SqliteStore.create(path, 0)
        promise_all(store, "w1", 1)
        back_up(path, tmp_path / "copy.sqlite")
        promise_all(store, "w2", 2)
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "store.sqlite-wal").stat().st_size > 0

    moved = put_back(tmp_path / "copy.sqlite", path, 7)

    assert names(path) == ["w1"]
    assert [each.name for each in moved] == [
        "store.sqlite.before-7",
        "store.sqlite.before-7-wal",
        "store.sqlite.before-7-shm",
    ]
    assert names(moved[0]) == ["w1", "w2"]


def test_nothing_is_put_back_under_a_running_service(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        back_up(store.path, tmp_path / "copy.sqlite")
        with pytest.raises(Locked):
            put_back(tmp_path / "copy.sqlite", store.path, 7)

        promise_all(store, "w2", 2)
    assert names(tmp_path / "store.sqlite") == ["w1", "w2"]


def test_a_damaged_copy_is_neither_verified_nor_put_back(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for number in range(1, 30):
            promise_all(store, f"w{number}", number)
        copy = tmp_path / "copy.sqlite"
        back_up(store.path, copy)
    whole = copy.read_bytes()
    for damaged in (
        b"",
        b"garbage" * 99,
        whole[: len(whole) // 2],
        whole[:8192] + b"\xa5" * 4096 + whole[12288:],
    ):
        copy.write_bytes(damaged)
        with pytest.raises(Damaged):
            verify(copy)
        with pytest.raises(Damaged):
            put_back(copy, tmp_path / "store.sqlite", 7)

    assert len(names(tmp_path / "store.sqlite")) == 29


def test_a_copy_of_a_later_version_is_not_put_back(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        store._database.connection.execute("INSERT INTO schema VALUES (99, 0)")
        copy = tmp_path / "copy.sqlite"
        with pytest.raises(TooNew, match="version 99"):
            back_up(store.path, copy)

    assert not copy.exists()
    assert [path.name for path in tmp_path.iterdir() if "draft" in path.name] == []


def test_no_copy_and_no_store_are_overwritten(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        copy = tmp_path / "copy.sqlite"
        back_up(store.path, copy)
        before = copy.read_bytes()
        with pytest.raises(Conflict, match="not overwritten"):
            back_up(store.path, copy)
        assert copy.read_bytes() == before
    put_back(copy, tmp_path / "store.sqlite", 7)
    with pytest.raises(Conflict, match="move it away"):
        put_back(copy, tmp_path / "store.sqlite", 7)

    assert names(tmp_path / "store.sqlite") == ["w1"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for act in (
        lambda: verify(tmp_path / "none"),
        lambda: back_up(tmp_path / "none", tmp_path / "copy"),
        lambda: put_back(tmp_path / "none", tmp_path / "store", 7),
    ):
        with pytest.raises(StoreMissing, match="there is none"):
            act()

    assert list(tmp_path.iterdir()) == []


def test_a_copy_can_be_put_back_where_there_was_no_store(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        back_up(store.path, tmp_path / "copy.sqlite")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    assert put_back(tmp_path / "copy.sqlite", elsewhere / "store.sqlite", 7) == []
    assert names(elsewhere / "store.sqlite") == ["w1"]


def test_a_copy_without_room_blames_the_disk_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> int:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("outrider.store.sqlite.backup.verify", full)
    with new_store(tmp_path) as store, pytest.raises(Full, match=r"copy\.sqlite: its disk has no room"):
        back_up(store.path, tmp_path / "copy.sqlite")

    assert not list(tmp_path.glob("copy.sqlite*"))
