"""A whole store from one database into another, and a look at each row of it.

The source is only read, and it is nobody's meanwhile: a file is locked, of a database the lead is taken. The
target is new. Numbers go on where they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outrider.store.errors import Conflict, Damaged
from outrider.store.place import is_database
from outrider.store.sql.reading import SqlStore
from outrider.store.sql.tables import NUMBERED, Row, Tables
from outrider.store.sqlite.store import SqliteStore

# In this order each row finds what it names; by these columns rows are in one order everywhere.
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "reservations": (
        "number",
        ("number", "name", "state", "version", "uid", '"user"', "account", "start_s", "accepted_s",
         "changed_s", "ended_s", "promise", "receipt", "why", "document"),
    ),
    "transfers": (
        "number",
        ("number", "state", "planned_s", "begun_s", "ended_s", "source", "size_bytes", "kept"),
    ),
    "needs": ("reservation, transfer", ("reservation", "transfer")),
    "progress": ("transfer, node", ("transfer", "node", "moved_bytes", "reported_s", "is_done")),
    "decisions": ("number", ("number", "at_s", "uid", "kind", "name", "outcome", "reason", "details")),
    "answers": ("uid, key", ("uid", "key", "request_hash", "text", "at_s")),
    "todo": (
        "number",
        ("number", "identity", "kind", "subject", "payload", "created_s", "due_s", "attempts", "trouble",
         "done_s"),
    ),
    "nodes": ("name", ("name", "reported_s", "is_available", "report", "pool")),
    "settings": ("name", ("name", "value")),
    "ledger": (
        "number",
        ("number", "at_s", "kind", "name", "uid", '"user"', "account", "primary_group", "node_seconds",
         "amount"),
    ),
}  # fmt: skip
CLAIMS = ("is_available",)
"""Columns that one database keeps as a number, and the other as a truth value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
    """How many rows of each table are in the target now, each compared with the source's."""

    rows: dict[str, int]


def migrate_store(source: str, target: str, now_s: int) -> Migrated:
    """Copy a store into a new one, and compare each row. Raises StoreError, and leaves no target then."""
    if source == target:
        raise Conflict(f"store {source}: it cannot be copied onto itself")
    with _opened(source, now_s) as old, _created(target, now_s) as new:
        before, after = old.tables, new.tables
        with after.transaction(is_safe=True):
            for table in NUMBERED:
                after.skip_numbers(table, before.last_number(table))
            for name, (_, columns) in TABLES.items():
                insert = _insertion(name, columns)
                for row in _rows(before, name):
                    after.send(insert, row)
        return Migrated(rows={name: _compared(before, after, name) for name in TABLES})


def _compared(before: Tables, after: Tables, table: str) -> int:
    (count, digest), (found, other) = _fingerprint(before, table), _fingerprint(after, table)
    if (count, digest) != (found, other):
        raise Damaged(
            f"store {after.place}: the {found} rows of {table} are not the {count} of {before.place}"
        )
    if any(name == table and before.last_number(name) != after.last_number(name) for name in NUMBERED):
        raise Damaged(f"store {after.place}: table {table} does not go on with the right number")
    return count


def _fingerprint(tables: Tables, table: str) -> tuple[int, str]:
    """How many rows there are, and a hash over all of them in order."""
    count, digest = 0, hashlib.sha256()
    for row in _rows(tables, table):
        count += 1
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return count, digest.hexdigest()


def _rows(tables: Tables, table: str) -> Iterator[Row]:
    order, columns = TABLES[table]
    # What tells of the opening of a store is of that store alone.
    where = " WHERE name <> 'opened_s'" if table == "settings" else ""
    for row in tables.rows(f"SELECT {', '.join(columns)} FROM {table}{where} ORDER BY {order}"):
        yield tuple(
            bool(value) if name in CLAIMS else value for name, value in zip(columns, row, strict=True)
        )


def _insertion(table: str, columns: tuple[str, ...]) -> str:
    places = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"


@contextmanager
def _opened(place: str, now_s: int) -> Iterator[SqlStore]:
    if not is_database(place):
        with SqliteStore.open(Path(place), now_s) as store:
            yield store
        return
    from outrider.store.postgresql.exclusive import alone
    from outrider.store.postgresql.store import PostgresStore

    with alone(place, now_s) as epoch, PostgresStore.open(place, epoch) as database:
        yield database


@contextmanager
def _created(place: str, now_s: int) -> Iterator[SqlStore]:
    """A new store, of which nothing is left after an error."""
    if not is_database(place):
        with SqliteStore.create(Path(place), now_s) as store:
            try:
                yield store
            except BaseException:
                store.path.unlink()
                raise
        return
    from outrider.store.postgresql.exclusive import alone
    from outrider.store.postgresql.store import PostgresStore
    from outrider.store.postgresql.tables import drop_tables

    PostgresStore.create(place, now_s).close()
    try:
        with alone(place, now_s) as epoch, PostgresStore.open(place, epoch) as database:
            yield database
    except BaseException:
        drop_tables(place)
        raise
