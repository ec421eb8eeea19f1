"""How a store of an older version becomes one of this version: one function for each step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from outrider.store.errors import Damaged, TooNew
from outrider.store.sql import statements as sql
from outrider.store.sqlite import schema

Migration = Callable[[sqlite3.Connection], None]


def _to_1(connection: sqlite3.Connection) -> None:
    for statement in schema.VERSION_1:
        connection.execute(statement)


def _to_2(connection: sqlite3.Connection) -> None:
    """What lingers in pools outlives a restart, too. Its tables of runs have always been empty."""
    for statement in schema.VERSION_2:
        connection.execute(statement)


def _to_3(connection: sqlite3.Connection) -> None:
    """What the user asked for is kept beside what was promised."""
    for statement in schema.VERSION_3:
        connection.execute(statement)


def _to_4(connection: sqlite3.Connection) -> None:
    """What was charged, and what was refused."""
    for statement in schema.VERSION_4:
        connection.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (_to_1, _to_2, _to_3, _to_4)
NEWEST = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; 0 of an empty file."""
    if not connection.execute(schema.TABLES).fetchone()[0]:
        return 0
    if connection.execute(schema.GET_APPLICATION_ID).fetchone()[0] != schema.APPLICATION_ID:
        raise Damaged(f"store {path}: it is a SQLite file of another program; name the right one")
    version = connection.execute(sql.GET_VERSION).fetchone()[0]
    if type(version) is not int or version < 1:
        raise Damaged(f"store {path}: it does not say its version; put a backup back")
    if version > NEWEST:
        raise TooNew(
            f"store {path}: it has schema version {version}, this program knows up to {NEWEST}: "
            "upgrade the program, or put back a backup from before the upgrade"
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path, now_s: int) -> int:
    """Bring the store to the newest version, each step whole or not at all; the version it had."""
    found = version_of(connection, path)
    for version in range(found + 1, NEWEST + 1):
        connection.execute(schema.BEGIN)
        try:
            if version == 1:
                connection.execute(schema.SET_APPLICATION_ID)
            MIGRATIONS[version - 1](connection)
            connection.execute(sql.ADD_VERSION, (version, now_s))
            connection.execute(schema.COMMIT)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute(schema.ROLLBACK)
            raise
    return found
