"""Stores of earlier versions, as they were written then, become one of today; half a step is none."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from outrider.core.restart.snapshot import KeptPool
from outrider.store.errors import StoreError
from outrider.store.records import NodeRecord
from outrider.store.sqlite import migrations
from outrider.store.sqlite.store import SqliteStore
from outrider.store.states import State
from tests.repository import ROOT
from tests.unit.store.samples import ALICE, answer, effect, promise_all, reservation, transfer

DATA = Path(__file__).parent / "data"
WRITTEN_S = {1: 1_790_000_000, 2: 1_795_000_000, 3: 1_797_000_000}
"""When the committed file of each version was made."""


def old_store(version: int, folder: Path) -> Path:
    """A copy of a committed file, which holds one reservation and what belongs to it."""
    path = folder / "store.sqlite"
    shutil.copyfile(DATA / f"version-{version}.sqlite", path)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return old_store(1, tmp_path)


@pytest.fixture(params=WRITTEN_S)
def version(request: pytest.FixtureRequest) -> int:
    """Each version there was before this one."""
    assert isinstance(request.param, int)
    return request.param


def versions(path: Path) -> list[tuple[int, int]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT version, migrated_s FROM schema ORDER BY version").fetchall()
    connection.close()
    return found


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    return {name for (name,) in found}


def test_an_old_store_is_read_with_all_that_is_in_it(version: int, tmp_path: Path) -> None:
    old, written_s = old_store(version, tmp_path), WRITTEN_S[version]
    pool = None if version < 2 else KeptPool(node="n1", uses=(("k", 1),))
    had = [(each, written_s) for each in range(1, version + 1)]
    assert versions(old) == had
    with SqliteStore.open(old, 1_800_000_000) as store:
        (record,) = store.live_reservations()
        assert record.reservation == reservation("old", 3)
        assert (record.owner, record.state) == (ALICE, State.ACCEPTED)
        assert [each.kept for each in store.live_transfers()] == [transfer(3)]
        assert [(each.name, each.reason) for each in store.decisions("old")] == [("old", "it fits")]
        assert store.answered(1001, "key", "aa") == answer("key")
        assert store.due_effects(0) == [effect("reserve old")]
        assert store.nodes() == [NodeRecord(name="n1", reported_s=9, is_available=False, pool=pool)]
        assert store.kept_book(20).next_transfer == 4

    assert versions(old) == had + [
        (each, 1_800_000_000) for each in range(version + 1, migrations.NEWEST + 1)
    ]


def test_a_reservation_from_before_documents_has_an_empty_one_and_may_get_another(
    version: int, tmp_path: Path
) -> None:
    with SqliteStore.open(old_store(version, tmp_path), 5) as store:
        (record,) = store.live_reservations()
        assert record.document == '{"version":1}'
        with store.promise() as promise:
            assert promise.next_reservation_number() == record.number + 1
            promise.change_reservation(record, 30, document='{"version":1,"text":"x"}')

        assert [each.document for each in store.live_reservations()] == ['{"version":1,"text":"x"}']


def test_a_migrated_store_takes_what_only_later_versions_know(version: int, tmp_path: Path) -> None:
    old = old_store(version, tmp_path)
    pool = KeptPool(node="n1", uses=(("other", 1),))
    with SqliteStore.open(old, 5) as store:
        with store.progress() as progress:
            progress.put_node(NodeRecord(name="n1", reported_s=10, pool=pool))
        promise_all(store, "new", 4)

        assert store.kept_book(20).pools == (pool,)
        assert [each.name for each in store.live_reservations()] == ["old", "new"]


def test_a_migrated_store_has_the_tables_of_a_new_one(version: int, tmp_path: Path) -> None:
    old = old_store(version, tmp_path)
    SqliteStore.open(old, 5).close()
    SqliteStore.create(tmp_path / "new.sqlite", 5).close()

    def shape(path: Path) -> list[tuple[str, str, str]]:
        connection = sqlite3.connect(path)
        found = connection.execute(
            "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table' ORDER BY m.name, c.cid"
        ).fetchall()
        connection.close()
        return found

    assert shape(old) == shape(tmp_path / "new.sqlite")
    assert len(shape(old)) > 50


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE first_half (x)")
        connection.execute("CREATE TABLE first_half (x)")

    before = tables(old)
    monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.MIGRATIONS[0], half))
    with pytest.raises(StoreError, match="first_half already exists"):
        SqliteStore.open(old, 5)

    assert versions(old) == [(1, 1_790_000_000)]
    assert tables(old) == before
    monkeypatch.undo()
    with SqliteStore.open(old, 6) as store:
        assert len(store.live_reservations()) == 1


def test_there_is_a_migration_for_every_version() -> None:
    assert len(migrations.MIGRATIONS) == migrations.NEWEST == 4


def test_the_docs_name_every_table_and_column(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "store.sqlite", 0).close()
    page = (ROOT / "docs" / "reference/formats.md").read_text()
    words = page.split("## The store of the service")[1].split("```")[1]
    documented: dict[str, str] = {}
    for line in words.strip().splitlines():
        name, _, columns = line.partition(" ")
        if name:
            documented[last := name] = columns
        elif not line.lstrip().startswith(("promise:", "kept:", "document:", '"')):
            documented[last] += line

    for name in sorted(tables(tmp_path / "store.sqlite") - {"sqlite_sequence"}):
        connection = sqlite3.connect(tmp_path / "store.sqlite")
        columns_there = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        connection.close()
        shown = re.split(r"[,\s]+", documented.pop(name).strip())
        assert shown[: len(columns_there)] == columns_there
    assert documented == {}
