"""Files that are missing, foreign, torn, full, read-only or taken: named, and never made worse."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from outrider.store import errors
from outrider.store.errors import (
    Conflict,
    Damaged,
    Full,
    Locked,
    ReadOnly,
    StoreError,
    StoreFailed,
    StoreMissing,
    TooNew,
)
from outrider.store.sqlite.store import SqliteStore
from tests.unit.store.samples import ALICE, answer, new_store, promise_all, reservation


def left_open(folder: Path, count: int = 1) -> Path:
    """The files of a store whose service has died without closing it."""
    path = folder / "store.sqlite"
    store = SqliteStore.create(path, 0)
    for number in range(1, count + 1):
        promise_all(store, f"w{number}", number)
    dead = folder / "dead"
    dead.mkdir()
    for each in folder.glob("store.sqlite*"):
        shutil.copyfile(each, dead / each.name)
    store.close()
    return dead / path.name


def promise_until_full(store: SqliteStore, first: int) -> list[str]:
    """The names that were promised before the disk was full."""
    names: list[str] = []
    for number in range(first, first + 2000):
        try:
            promise_all(store, f"w{number}", number)
        except Full:
            return names
        names.append(f"w{number}")
    raise AssertionError("the disk was never full")


def in_child(act: Callable[[], object]) -> str:
    """What another process finds: the class of the error that it meets, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        word = b"?"
        try:
            act()
            word = b"-"
        except StoreError as error:
            word = type(error).__name__.encode()
        finally:
            os.write(writing, word)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        word = pipe.read()
    os.waitpid(child, 0)
    return word.decode()


def test_a_store_that_is_not_there_is_not_made_in_silence(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="make one, or put a backup back"):
        SqliteStore.open(tmp_path / "store.sqlite", 0)

    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
    with pytest.raises(Conflict, match="not overwritten"):
        new_store(tmp_path)

    with SqliteStore.open(tmp_path / "store.sqlite", 1) as store:
        assert [each.name for each in store.live_reservations()] == ["w1"]


def test_a_store_belongs_to_its_user_alone(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    assert set(modes.values()) == {0o600}
    assert len(modes) >= 3


def test_a_second_service_is_refused_and_told_who_holds_the_store(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        with pytest.raises(Locked, match=f"process {os.getpid()} uses it"):
            SqliteStore.open(store.path, 0)
        assert in_child(lambda: SqliteStore.open(tmp_path / "store.sqlite", 0)) == "Locked"
        promise_all(store, "w1", 1)

    assert in_child(lambda: SqliteStore.open(tmp_path / "store.sqlite", 0).close()) == "-"


def test_a_program_that_writes_beside_the_service_makes_a_promise_fail_and_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.store.sqlite.database.WAIT_S", 0.01)
    with new_store(tmp_path) as store:
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked, match="another process writes"):
            promise_all(store, "w1", 1)
        other.execute("ROLLBACK")
        other.close()
        promise_all(store, "w1", 1)

        assert len(store.live_reservations()) == 1


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"SQLite format 3\x00", b"\x00" * 8192, os.urandom(9000)]
)
def test_a_file_of_something_else_is_not_taken_for_a_store(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)

    with pytest.raises(Damaged, match=r"backup back|right one"):
        SqliteStore.open(path, 0)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE songs (name TEXT)")
    other.close()
    before = path.read_bytes()

    for enter in (SqliteStore.open, SqliteStore.create):
        with pytest.raises(Damaged, match="another program"):
            enter(path, 0)
    assert path.read_bytes() == before


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_store_is_damaged(tmp_path: Path, share: float) -> None:
    with new_store(tmp_path) as store:
        for number in range(1, 30):
            promise_all(store, f"w{number}", number)
    path = tmp_path / "store.sqlite"
    os.truncate(path, int(path.stat().st_size * share))

    with pytest.raises(Damaged, match="backup back"):
        SqliteStore.open(path, 0)


def test_a_store_with_a_page_of_garbage_is_damaged(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for number in range(1, 30):
            promise_all(store, f"w{number}", number)
    path = tmp_path / "store.sqlite"
    pages = path.stat().st_size // 4096
    damaged = 0
    for page in range(1, pages):
        torn = bytearray(path.read_bytes())
        torn[page * 4096 : page * 4096 + 512] = b"\xa5" * 512
        other = tmp_path / f"torn{page}.sqlite"
        other.write_bytes(torn)
        damaged += in_child(lambda other=other: SqliteStore.open(other, 0)) == "Damaged"  # type: ignore[misc]

    # A page that nothing uses may hold anything.
    assert damaged >= pages - 3 > 10


def test_a_store_of_a_dead_service_has_everything_that_its_log_holds(tmp_path: Path) -> None:
    path = left_open(tmp_path, 3)

    with SqliteStore.open(path, 1) as store:
        assert [each.name for each in store.live_reservations()] == ["w1", "w2", "w3"]


def test_a_missing_log_of_a_dead_service_is_noticed(tmp_path: Path) -> None:
    path = left_open(tmp_path, 3)
    path.with_name(path.name + "-wal").unlink()

    with pytest.raises(Damaged, match="promises may be missing"):
        SqliteStore.open(path, 1)
    SqliteStore.create(tmp_path / "other.sqlite", 0).close()
    SqliteStore.open(tmp_path / "other.sqlite", 1).close()


def test_a_missing_log_can_be_accepted(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copyfile(tmp_path / "store.sqlite", again / "store.sqlite")
    (again / "store.sqlite.lock").write_text("open 1\n")

    with pytest.raises(Damaged):
        SqliteStore.open(again / "store.sqlite", 1)
    with SqliteStore.open(again / "store.sqlite", 1, accepts_loss=True) as store:
        assert [each.name for each in store.live_reservations()] == ["w1"]
    SqliteStore.open(again / "store.sqlite", 2).close()


@pytest.mark.parametrize("cut_bytes", [1, 100, 5000])
def test_a_torn_log_loses_only_the_transactions_it_does_not_hold_whole(
    tmp_path: Path, cut_bytes: int
) -> None:
    path = left_open(tmp_path, 20)
    log = path.with_name(path.name + "-wal")
    os.truncate(log, log.stat().st_size - cut_bytes)

    with SqliteStore.open(path, 1) as store:
        names = [each.name for each in store.live_reservations()]
        assert names == [f"w{number}" for number in range(1, len(names) + 1)]
        assert 15 < len(names) < 20
        assert [each.number for each in store.live_transfers()] == list(range(1, len(names) + 1))
        assert len(store.due_effects(0)) == len(names)


def test_a_full_store_promises_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        connection = store._database.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        accepted = ["w1", *promise_until_full(store, 2)]

        assert [each.name for each in store.live_reservations()] == accepted
        assert [each.number for each in store.live_transfers()] == list(range(1, len(accepted) + 1))
        assert len(store.due_effects(0)) == len(accepted)
        connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        promise_all(store, "after", 500)
        assert [each.name for each in store.live_reservations()] == [*accepted, "after"]


def test_a_transaction_that_went_on_after_the_disk_was_full_adds_nothing(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        connection = store._database.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = answer("k", text=f'{{"version":1,"x":"{"y" * 60_000}"}}')

        def go_on_regardless() -> None:
            with store.promise() as promise:
                with suppress(Full):
                    promise.answer(large)
                promise.set("half", "yes")

        with pytest.raises(ValueError, match="the transaction is over"):
            go_on_regardless()
        assert store.setting("half") is None


def test_a_failed_sync_ends_all_promises_until_the_store_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(statement: str) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    class Faulty:
        """A connection whose commits fail."""

        def __init__(self, real: sqlite3.Connection) -> None:
            self._real = real

        @property
        def in_transaction(self) -> bool:
            return self._real.in_transaction

        def execute(self, statement: str, values: object = ()) -> object:
            if statement == "COMMIT":
                fails(statement)
            return self._real.execute(statement, values)  # type: ignore[arg-type]

        def close(self) -> None:
            self._real.close()

    store = new_store(tmp_path)
    monkeypatch.setattr(store._database, "connection", Faulty(store._database.connection))
    with pytest.raises(StoreFailed, match="its disk fails"):
        promise_all(store, "w1", 1)
    with pytest.raises(StoreFailed, match="its disk failed before"):
        promise_all(store, "w2", 2)
    store.close()

    with SqliteStore.open(tmp_path / "store.sqlite", 5, accepts_loss=True) as store:
        assert store.live_reservations() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KiB."""
    where = tmp_path / "small"
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(where)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"CI cannot mount a small disk: {done.stderr}")
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], capture_output=True, timeout=240, check=True)


def test_a_really_full_disk_is_named_and_what_was_promised_before_is_there(small_disk: Path) -> None:
    store = new_store(small_disk)
    accepted = promise_until_full(store, 1)

    assert len(accepted) > 5
    assert [each.name for each in store.live_reservations()] == accepted
    store.close()
    with SqliteStore.open(small_disk / "store.sqlite", 5) as store:
        assert [each.name for each in store.live_reservations()] == accepted


def test_a_read_only_disk_is_named(small_disk: Path) -> None:
    new_store(small_disk).close()
    subprocess.run(
        ["mount", "-o", "remount,ro", str(small_disk)], capture_output=True, timeout=240, check=True
    )

    with pytest.raises(ReadOnly, match="see who owns it"):
        SqliteStore.open(small_disk / "store.sqlite", 5)
    with pytest.raises(ReadOnly, match="see who owns it"):
        SqliteStore.create(small_disk / "other.sqlite", 5)


def test_another_users_store_is_named_read_only() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new_store(folder).close()
        if os.geteuid():
            (folder / "store.sqlite").chmod(0o400)
        else:
            folder.chmod(0o755)

        def as_nobody() -> None:
            if not os.geteuid():
                os.setgid(65534)
                os.setuid(65534)
            SqliteStore.open(folder / "store.sqlite", 0)

        assert in_child(as_nobody) == "ReadOnly"


def test_a_newer_schema_is_refused_in_a_sentence_and_left_alone(tmp_path: Path) -> None:
    new_store(tmp_path).close()
    path = tmp_path / "store.sqlite"
    other = sqlite3.connect(path)
    with other:
        other.execute("INSERT INTO schema VALUES (99, 0)")
    other.close()

    with pytest.raises(TooNew, match="schema version 99, this program knows up to 4: upgrade"):
        SqliteStore.open(path, 0)
    other = sqlite3.connect(path)
    assert other.execute("SELECT max(version) FROM schema").fetchone() == (99,)
    other.close()


def test_a_row_that_cannot_be_read_is_named_and_not_passed_over(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
        store._database.connection.execute("UPDATE reservations SET promise = '{}'")

        for read in (store.live_reservations, lambda: store.kept_book(0)):
            with pytest.raises(Damaged, match="put a backup back"):
                read()


def test_every_error_has_a_code_and_an_exit_code_of_its_own_and_says_what_it_means() -> None:
    found = errors.every_error()

    assert len({each.code for each in found}) == len({each.exit_code for each in found}) == len(found) == 11
    assert all((each.__doc__ or "").endswith(".") for each in found)


def test_a_reservation_larger_than_the_store_takes_is_refused(tmp_path: Path) -> None:
    huge = reservation("w" * 257)
    with new_store(tmp_path) as store:
        with pytest.raises(StoreError, match="shorten it to 256"), store.promise() as promise:
            promise.add_reservation(huge, ALICE, 0)

        assert store.live_reservations() == []


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_promised_to_files_that_were_moved_away(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.create(path, 0)
    promise_all(store, "w1", 1)
    path.with_name(path.name + suffix).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreMissing, match="moved, removed or replaced"):
        promise_all(store, "w2", 2)
    (tmp_path / "elsewhere").rename(path.with_name(path.name + suffix))
    promise_all(store, "w3", 3)
    store.close()

    with SqliteStore.open(path, 9) as again:
        assert [record.name for record in again.live_reservations()] == ["w1", "w3"]


def test_log_that_was_taken_from_an_open_store_is_missed_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.create(path, 0)
    promise_all(store, "w1", 1)
    path.with_name("store.sqlite-wal").unlink()
    store.close()

    with pytest.raises(Damaged, match="is gone"):
        SqliteStore.open(path, 9)


def test_start_that_fails_does_not_make_the_next_one_miss_the_log(tmp_path: Path) -> None:
    path = left_open(tmp_path)
    child = os.fork()
    if not child:
        sqlite3.connect(path, isolation_level=None).execute("INSERT INTO schema VALUES (99, 0)")
        os._exit(0)
    os.waitpid(child, 0)
    found = []
    for _ in range(2):
        with pytest.raises(StoreError) as raised:
            SqliteStore.open(path, 9)
        found.append(type(raised.value))

    assert found == [TooNew, TooNew]
