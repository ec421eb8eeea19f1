"""A store of version 1, as it was written then, becomes one of today; half a step is none."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from outrider.core.kept import KeptPool
from outrider.store import migrations
from outrider.store.errors import StoreError
from outrider.store.records import NodeRecord
from outrider.store.states import State
from outrider.store.store import Store
from tests.store.samples import ALICE, answer, effect, promise_all, reservation, transfer

VERSION_1 = Path(__file__).parent / "data" / "version-1.sqlite"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the committed file, which holds one reservation and what belongs to it."""
    path = tmp_path / "store.sqlite"
    shutil.copyfile(VERSION_1, path)
    return path


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


def test_a_store_of_version_1_is_read_with_all_that_is_in_it(old: Path) -> None:
    assert versions(old) == [(1, 1_790_000_000)]
    with Store.open(old, 1_800_000_000) as store:
        (record,) = store.live_reservations()
        assert (record.kept, record.owner, record.state) == (reservation("old", 3), ALICE, State.ACCEPTED)
        assert [each.kept for each in store.live_transfers()] == [transfer(3)]
        assert [(each.name, each.reason) for each in store.decisions("old")] == [("old", "it fits")]
        assert store.answered(1001, "key", "aa") == answer("key")
        assert store.due_effects(0) == [effect("reserve old")]
        assert store.nodes() == [NodeRecord(name="n1", reported_s=9, is_available=False)]
        assert store.kept_book(20).next_transfer == 4

    assert versions(old) == [(1, 1_790_000_000), (2, 1_800_000_000)]


def test_a_migrated_store_takes_what_only_later_versions_know(old: Path) -> None:
    pool = KeptPool(node="n1", uses=(("k", 1),))
    with Store.open(old, 5) as store:
        with store.progress() as progress:
            progress.put_node(NodeRecord(name="n1", reported_s=10, pool=pool))
        promise_all(store, "new", 4)

        assert store.kept_book(20).pools == (pool,)
        assert [each.name for each in store.live_reservations()] == ["old", "new"]


def test_a_migrated_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    Store.open(old, 5).close()
    Store.create(tmp_path / "new.sqlite", 5).close()

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
        Store.open(old, 5)

    assert versions(old) == [(1, 1_790_000_000)]
    assert tables(old) == before
    monkeypatch.undo()
    with Store.open(old, 6) as store:
        assert len(store.live_reservations()) == 1


def test_there_is_a_migration_for_every_version() -> None:
    assert len(migrations.MIGRATIONS) == migrations.NEWEST == 2


def test_the_docs_name_every_table_and_column(tmp_path: Path) -> None:
    Store.create(tmp_path / "store.sqlite", 0).close()
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    words = page.split("## The store of the service")[1].split("```")[1]
    documented: dict[str, str] = {}
    for line in words.strip().splitlines():
        name, _, columns = line.partition(" ")
        if name:
            documented[last := name] = columns
        elif not line.lstrip().startswith(("promise:", "kept:", '"')):
            documented[last] += line

    for name in sorted(tables(tmp_path / "store.sqlite") - {"sqlite_sequence"}):
        connection = sqlite3.connect(tmp_path / "store.sqlite")
        columns_there = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        connection.close()
        shown = re.split(r"[,\s]+", documented.pop(name).strip())
        assert shown[: len(columns_there)] == columns_there
    assert documented == {}
