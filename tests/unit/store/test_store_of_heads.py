"""What only a database has that several heads share: an epoch, and a server that can go away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from outrider.store.errors import Conflict, NotLeader, StoreFailed, StoreMissing
from outrider.store.postgresql import schema
from outrider.store.postgresql.connection import shown
from outrider.store.postgresql.store import PostgresStore
from outrider.store.postgresql.tables import PostgresTables
from outrider.store.sqlite.migrations import NEWEST
from testbed.postgresql import PostgresServer
from tests.unit.store.conftest import PostgresPlace
from tests.unit.store.samples import ALICE, new_store, promise_all, reservation, transfer


def tables_of(store: PostgresStore) -> PostgresTables:
    assert isinstance(store._tables, PostgresTables)
    return store._tables


def put_transfer(store: PostgresStore) -> None:
    with store.progress() as progress:
        progress.put_transfers([transfer(9)], 11)


def promise_while(store: PostgresStore, name: str, happens: Callable[[], object]) -> None:
    """A promise in whose middle something happens."""
    with store.promise() as promise:
        promise.add_reservation(reservation(name), ALICE, 0)
        happens()


def lead_anew(address: str) -> None:
    """Another head begins to lead."""
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("UPDATE leader SET epoch = epoch + 1")


def test_every_write_of_an_old_leader_fails_and_leaves_nothing(postgres_place: PostgresPlace) -> None:
    writes: dict[str, Callable[[PostgresStore], object]] = {
        "a promise": lambda store: promise_all(store, "w2", 2),
        "progress": put_transfer,
        "pruning": lambda store: store.prune(1 << 40),
    }

    PostgresStore.create(postgres_place.address, 0).close()
    for name, write in writes.items():
        with PostgresStore.open(postgres_place.address) as old:
            if old.reservation("w1") is None:
                promise_all(old, "w1", 1)
            lead_anew(postgres_place.address)
            with pytest.raises(NotLeader):
                write(old)
            assert old.is_broken, name
            with pytest.raises(StoreFailed):
                write(old)

    with PostgresStore.open(postgres_place.address) as now:
        assert [each.name for each in now.live_reservations()] == ["w1"]
        assert [each.number for each in now.live_transfers()] == [1]
        assert now.last_decision() == 1


def test_an_old_leader_in_the_middle_of_a_transaction_ends_it_with_nothing(
    postgres_place: PostgresPlace,
) -> None:
    with PostgresStore.create(postgres_place.address, 0) as old, pytest.raises(NotLeader):
        promise_while(old, "w1", lambda: lead_anew(postgres_place.address))

    with PostgresStore.open(postgres_place.address) as now:
        assert now.live_reservations() == []


def test_a_store_is_opened_only_in_the_epoch_that_was_won(postgres_place: PostgresPlace) -> None:
    PostgresStore.create(postgres_place.address, 0).close()
    lead_anew(postgres_place.address)

    PostgresStore.open(postgres_place.address, 1).close()
    with pytest.raises(NotLeader, match="epoch"):
        PostgresStore.open(postgres_place.address, 0)


def test_a_connection_that_is_cut_loses_what_was_not_committed_and_nothing_else(
    postgres_place: PostgresPlace, postgres: PostgresServer
) -> None:
    with PostgresStore.create(postgres_place.address, 0) as store:
        promise_all(store, "w1", 1)
        cut = f"SELECT pg_terminate_backend({tables_of(store).connection.info.backend_pid}, 10000)"
        with pytest.raises(StoreFailed, match="not known"):
            promise_while(store, "w2", lambda: postgres.sql(cut))

        assert store.is_broken
        with pytest.raises(StoreFailed):
            promise_all(store, "w3", 3)
    with PostgresStore.open(postgres_place.address) as again:
        assert [each.name for each in again.live_reservations()] == ["w1"]
        promise_all(again, "w2", 2)
        assert len(again.live_reservations()) == 2


def test_a_promise_is_synchronous_and_progress_is_not(postgres_place: PostgresPlace) -> None:
    with PostgresStore.create(postgres_place.address, 0) as store:
        seen = []
        for open_transaction in (store.promise, store.progress, store.promise):
            with open_transaction():
                seen.append(store._tables.row("SHOW synchronous_commit"))

        assert seen == [("on",), ("off",), ("on",)]


def test_a_role_whose_commits_are_not_synchronous_promises_synchronously_all_the_same(
    postgres_place: PostgresPlace,
) -> None:
    address = postgres_place.address.replace("-csearch_path", "-csynchronous_commit%3Doff%20-csearch_path")
    assert "off" in address
    with PostgresStore.create(address, 0) as store, store.promise():
        assert store._tables.row("SHOW synchronous_commit") == ("on",)


def test_a_database_without_tables_is_none_and_one_with_tables_is_not_overwritten(
    postgres_place: PostgresPlace,
) -> None:
    with pytest.raises(StoreMissing, match="outriderd --init"):
        PostgresStore.open(postgres_place.address)
    with PostgresStore.create(postgres_place.address, 0) as store:
        promise_all(store, "w1", 1)
    with pytest.raises(Conflict, match="not overwritten"):
        PostgresStore.create(postgres_place.address, 0)


def test_its_tables_have_the_columns_of_a_file_of_the_same_version(
    postgres_place: PostgresPlace, postgres: PostgresServer, tmp_path: Path
) -> None:
    PostgresStore.create(postgres_place.address, 0).close()
    with new_store(tmp_path) as store:
        tables = store._tables.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = sorted(str(row[0]) for row in tables if not str(row[0]).startswith("sqlite_"))
        columns = {
            (name, str(row[1])) for name in names for row in store._tables.rows(f"PRAGMA table_info({name})")
        }

    found = postgres.sql(
        "SELECT table_name || ' ' || column_name FROM information_schema.columns "
        f"WHERE table_schema = '{postgres_place.address.rpartition('%3D')[2]}' AND table_name <> 'leader'"
    )

    assert schema.VERSION == NEWEST
    assert {tuple(line.split()) for line in found.splitlines()} == columns


def test_a_password_is_not_shown() -> None:
    assert shown("postgresql://outrider:secret@db1:5433/site") == "postgresql://db1:5433/site"
