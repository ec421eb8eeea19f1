"""A place for a store, in each of the databases that keep one."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from outrider.store.postgresql.store import PostgresStore
from outrider.store.sql.reading import SqlStore
from outrider.store.sqlite.store import SqliteStore
from testbed.postgresql import PostgresServer


class StorePlace(Protocol):
    """Where a store is made, and opened again."""

    name: str

    def create(self, now_s: int = 0) -> SqlStore: ...

    def open(self, now_s: int = 0) -> SqlStore: ...

    def change(self, store: SqlStore, statement: str) -> None:
        """Change rows behind the store's back."""


class SqlitePlace:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.sqlite"

    def create(self, now_s: int = 0) -> SqlStore:
        return SqliteStore.create(self._path, now_s)

    def open(self, now_s: int = 0) -> SqlStore:
        return SqliteStore.open(self._path, now_s)

    def change(self, store: SqlStore, statement: str) -> None:
        assert isinstance(store, SqliteStore)
        store._database.connection.execute(statement)


class PostgresPlace:
    name = "postgresql"

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self._server, self._schema = server, schema
        self.address = server.place_of(schema)
        server.sql(f"CREATE SCHEMA {schema}")

    def create(self, now_s: int = 0) -> SqlStore:
        return PostgresStore.create(self.address, now_s)

    def open(self, now_s: int = 0) -> SqlStore:
        return PostgresStore.open(self.address)

    def change(self, store: SqlStore, statement: str) -> None:
        self._server.sql(f"SET search_path TO {self._schema}; {statement}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="outrider-pg-", dir="/tmp"))
    server = PostgresServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


_SCHEMAS = itertools.count(1)


@pytest.fixture
def postgres_place(postgres: PostgresServer) -> PostgresPlace:
    return PostgresPlace(postgres, f"s{next(_SCHEMAS)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StorePlace]:
    """A new place each time."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return lambda: PostgresPlace(server, f"s{next(_SCHEMAS)}")

    def make() -> StorePlace:
        folder = tmp_path / str(next(_SCHEMAS))
        folder.mkdir()
        return SqlitePlace(folder)

    return make


@pytest.fixture
def place(places: Callable[[], StorePlace]) -> StorePlace:
    return places()
