"""A store goes from one database to the other and back, whole, and only while nobody uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.core.restart.snapshot import KeptPool
from outrider.store import migration
from outrider.store.errors import Conflict, Damaged, Locked
from outrider.store.migration import TABLES, migrate_store
from outrider.store.postgresql.exclusive import alone
from outrider.store.postgresql.store import PostgresStore
from outrider.store.records import EntryKind, LedgerEntry, NodeRecord
from outrider.store.sql.reading import SqlStore
from outrider.store.sqlite.store import SqliteStore
from outrider.store.states import State
from tests.unit.store.conftest import PostgresPlace
from tests.unit.store.samples import promise_all, transfer


def fill(store: SqlStore) -> None:
    """Something in each table, and numbers that are not given any more."""
    for number in range(1, 4):
        promise_all(store, f"w{number}", number)
    record = store.reservation("w2")
    assert record is not None
    with store.promise() as promise:
        promise.change_reservation(record, 20, state=State.CANCELLED, why="by its user")
        promise.skip_reservation_numbers(17)
        promise.set("a", "b")
        promise.enter(
            LedgerEntry(
                at_s=3, kind=EntryKind.CHARGED, name="w2", uid=1, user="u", account="", group="g",
                node_seconds=7, amount=9,
            )
        )  # fmt: skip
    with store.progress() as progress:
        progress.put_transfers([transfer(3, is_done=True)], 30)
        pool = KeptPool(node="n1", lingering=(), leaving=(), uses=())
        progress.put_node(NodeRecord(name="n1", reported_s=3, is_available=False, pool=pool))


def seen(store: SqlStore) -> object:
    return (
        store.live_reservations(),
        store.past_reservations(),
        store.kept_book(40),
        store.decisions(),
        store.due_effects(100),
        store.nodes(),
        store.answered(1001, "key of w1", "aa"),
        store.ledger_sums("user", 0, 100, None),
    )


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    with SqliteStore.create(path, 0) as store:
        fill(store)
    return path


def test_a_store_that_went_to_postgresql_and_back_is_the_same(
    filled: Path, tmp_path: Path, postgres_place: PostgresPlace
) -> None:
    there = migrate_store(str(filled), postgres_place.address, 50)
    back = migrate_store(postgres_place.address, str(tmp_path / "back.sqlite"), 60)

    assert there.rows == back.rows
    assert all(there.rows[table] for table in set(TABLES) - {"progress"})
    with (
        SqliteStore.open(filled, 70) as first,
        PostgresStore.open(postgres_place.address) as middle,
        SqliteStore.open(tmp_path / "back.sqlite", 70) as last,
    ):
        assert seen(first) == seen(middle) == seen(last)
        for store in (middle, last):
            with store.promise() as promise:
                assert promise.next_reservation_number() == 18
            promise_all(store, "w9", 9)


def test_a_store_in_use_is_not_copied(filled: Path, tmp_path: Path, postgres_place: PostgresPlace) -> None:
    with SqliteStore.open(filled, 1), pytest.raises(Locked):
        migrate_store(str(filled), postgres_place.address, 50)
    migrate_store(str(filled), postgres_place.address, 50)
    with alone(postgres_place.address, 1), pytest.raises(Locked, match="stop outriderd"):
        migrate_store(postgres_place.address, str(tmp_path / "back.sqlite"), 60)

    assert not (tmp_path / "back.sqlite").exists()


def test_a_target_that_is_there_is_not_overwritten(filled: Path, postgres_place: PostgresPlace) -> None:
    migrate_store(str(filled), postgres_place.address, 50)

    with pytest.raises(Conflict, match="not overwritten"):
        migrate_store(str(filled), postgres_place.address, 50)


@pytest.mark.parametrize("change", [lambda row: (*row[:-1], "x"), lambda row: None])
def test_a_row_that_arrives_otherwise_or_not_is_found_and_nothing_stays(
    filled: Path,
    postgres_place: PostgresPlace,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[tuple[object, ...]], tuple[object, ...] | None],
) -> None:
    true_rows, reads = migration._rows, 0

    def rows(tables: object, table: str) -> list[tuple[object, ...]]:
        nonlocal reads
        found = list(true_rows(tables, table))  # type: ignore[arg-type]
        if table == "decisions":
            reads += 1
            if reads == 1:
                found[1:2] = [each for each in [change(found[1])] if each is not None]
        return found

    monkeypatch.setattr(migration, "_rows", rows)
    with pytest.raises(Damaged, match="decisions"):
        migrate_store(str(filled), postgres_place.address, 50)
    monkeypatch.setattr(migration, "_rows", true_rows)

    assert sum(migrate_store(str(filled), postgres_place.address, 50).rows.values()) > 20


def test_the_command_says_how_many_rows_are_the_same(
    filled: Path, postgres_place: PostgresPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "migrate", str(filled), postgres_place.address]) == 0

    said = capsys.readouterr().out
    assert "reservations: 3 rows, the same in both" in said
    assert main(["store", "migrate", str(filled), postgres_place.address]) == 28
