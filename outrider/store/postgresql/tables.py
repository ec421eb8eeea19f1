"""One PostgreSQL database in the hands of the head that leads.

The server is a journey away, so what nobody waits for is sent together: statements without a result, then
what is expected of the rows, and with the end of the transaction the one statement that proves who writes.
The numbers that rows get are counted here, since nobody else gives any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from outrider.store.errors import (
    Conflict,
    ConnectionLost,
    Damaged,
    NotLeader,
    StoreError,
    StoreFailed,
    StoreMissing,
    TooNew,
)
from outrider.store.postgresql import schema
from outrider.store.postgresql.connection import connect, named_errors, shown, statement_of
from outrider.store.sql import statements as sql
from outrider.store.sql.tables import NUMBERED, Check, Numbered, Row, Tables

WRITER = "outriderd writes"
COUNTED = " RETURNING 1"
"""A row for each that was changed: of what is sent together only rows are waited for."""


class PostgresTables(Tables):
    """The tables, for as long as the epoch lasts. Used by one thread at a time."""

    def __init__(self, place: str, epoch: int | None = None) -> None:
        """Without an epoch it is that of whoever leads, as for a program that has the lock itself."""
        self._address = place
        self._is_broken = False
        self._is_open = False
        self._epoch = 0
        self._numbers: dict[Numbered, int] = {}
        self._pending: list[tuple[psycopg.Cursor[Any], Check]] = []
        self.connection = connect(place, WRITER)
        try:
            self._check_version()
            self._read_numbers(epoch)
        except BaseException:
            self.connection.close()
            raise

    @property
    def place(self) -> str:
        return shown(self._address)

    @property
    def is_broken(self) -> bool:
        return self._is_broken

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self, *, is_safe: bool) -> Iterator[None]:
        if self._is_broken:
            raise ConnectionLost(
                f"store {self.place}: its connection was lost before; it has to be opened again"
            )
        if self._is_open:
            raise ValueError("one decision, one transaction: they cannot be nested")
        numbers, self._pending, self._is_open = dict(self._numbers), [], True
        try:
            with named_errors(self._address), self.connection.pipeline():
                self._begin(schema.BEGIN)
                if not is_safe:
                    self._begin(schema.SYNC_LATER)
                yield
                _look_at(self._pending)
                self._begin(schema.FENCE, (self._epoch, *self._numbers.values()))
                self._begin(schema.COMMIT)
        except BaseException as error:
            self._numbers, pending = numbers, self._pending
            self._roll_back(error)
            if isinstance(error, Conflict):
                _look_at(pending)
            raise
        finally:
            self._is_open, self._pending = False, []

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        self._check_transaction()
        with named_errors(self._address):
            return len(self.connection.execute(statement_of(statement + COUNTED), values).fetchall())

    def send(
        self, statement: str, values: Sequence[object] = (), otherwise: StoreError | None = None
    ) -> None:
        self._check_transaction()
        if otherwise is not None:
            self.expect(statement + COUNTED, values, _some(otherwise))
            return
        with named_errors(self._address):
            self.connection.execute(statement_of(statement), values)

    def expect(self, statement: str, values: Sequence[object], check: Check) -> None:
        self._check_transaction()
        with named_errors(self._address):
            cursor = self.connection.execute(statement_of(statement), values)
        self._pending.append((cursor, check))

    def add(self, table: Numbered, statement: str, values: Sequence[object]) -> int:
        self._numbers[table] = number = self._numbers[table] + 1
        self.send(statement, (number, *values))
        return number

    def last_number(self, table: Numbered) -> int:
        return self._numbers[table]

    def skip_numbers(self, table: Numbered, last: int) -> None:
        self._check_transaction()
        self._numbers[table] = max(self._numbers[table], last)

    def rows(self, statement: str, values: Sequence[object] = ()) -> Iterator[Row]:
        with self._reading():
            found = self.connection.execute(statement_of(statement), values).fetchall()
        return iter(found)

    def row(self, statement: str, values: Sequence[object] = ()) -> Row | None:
        with self._reading():
            return self.connection.execute(statement_of(statement), values).fetchone()

    def _begin(self, statement: str, values: Sequence[object] = ()) -> None:
        self.connection.execute(statement_of(statement), values)

    def _check_transaction(self) -> None:
        if not self._is_open:
            raise ValueError("the transaction is over: nothing can be added to it")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with named_errors(self._address):
                yield
        except StoreFailed:
            self._is_broken = True
            raise

    def _roll_back(self, error: BaseException) -> None:
        """What the server has not confirmed may be there or not: only a new connection shows it."""
        if isinstance(error, (StoreFailed, NotLeader)) or self.connection.closed:
            self._is_broken = True
        elif self.connection.info.transaction_status is not TransactionStatus.IDLE:
            try:
                self.connection.execute(schema.ROLLBACK)
            except psycopg.Error:
                self._is_broken = True
        if self._is_broken:
            with suppress(psycopg.Error):
                self.connection.close()

    def _check_version(self) -> None:
        found = self.row(schema.TABLES)
        if found is None or not found[0]:
            raise StoreMissing(f"store {self.place}: there is none; make one with outriderd --init")
        row = self.row(sql.GET_VERSION)
        version = None if row is None else row[0]
        if not isinstance(version, int) or version < 1:
            raise Damaged(f"store {self.place}: it does not say its version")
        if version > schema.VERSION:
            raise TooNew(
                f"store {self.place}: it has schema version {version}, this program knows up to "
                f"{schema.VERSION}: upgrade the program"
            )

    def _read_numbers(self, epoch: int | None) -> None:
        row = self.row(schema.NUMBERS)
        if row is None or not all(isinstance(each, int) for each in row):
            raise Damaged(f"store {self.place}: it does not say who leads")
        found, *numbers = (int(str(each)) for each in row)
        if epoch is not None and found != epoch:
            raise NotLeader(
                f"store {self.place}: another head leads now (epoch {found}, this one had {epoch})"
            )
        self._epoch = found
        self._numbers = dict(zip(NUMBERED, numbers, strict=True))


def _look_at(pending: list[tuple[psycopg.Cursor[Any], Check]]) -> None:
    """What was expected of rows, in the order in which it was asked.

    After an error those are looked at whose result came before it: they say better what is wrong.
    """
    while pending:
        cursor, check = pending[0]
        is_there = cursor.pgresult is not None or cursor.connection.info.pipeline_status is PipelineStatus.ON
        row = cursor.fetchone() if is_there else None
        del pending[0]
        if is_there:
            check(row)


def _some(error: StoreError) -> Check:
    """At least one row must have been changed."""

    def check(row: Row | None) -> None:
        if row is None:
            raise error

    return check


def create_tables(place: str, now_s: int) -> None:
    """Make the tables where there are none. Raises Conflict if there are some."""
    connection = connect(place, WRITER)
    try:
        with named_errors(place), connection.transaction():
            found = connection.execute(schema.TABLES).fetchone()
            if found is not None and found[0]:
                raise Conflict(f"store {shown(place)}: there is one already; it is not overwritten")
            for statement in schema.CREATE:
                connection.execute(statement.encode())
            connection.execute(statement_of(sql.ADD_VERSION), (schema.VERSION, now_s))
    finally:
        connection.close()


def drop_tables(place: str) -> None:
    """Remove tables that have just been made and are of no use."""
    connection = connect(place, WRITER)
    try:
        with named_errors(place):
            connection.execute(schema.DROP.encode())
    finally:
        connection.close()
