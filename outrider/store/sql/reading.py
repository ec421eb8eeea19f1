"""The store in a database's tables: what is read, and transactions for what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from outrider.core.restart.snapshot import KeptBook
from outrider.store.errors import Conflict
from outrider.store.records import (
    LARGEST_NUMBER,
    Effect,
    LedgerSum,
    NodeRecord,
    Payer,
    Pruned,
    RecordedAnswer,
    RecordedDecision,
    ReservationRecord,
    TransferRecord,
)
from outrider.store.sql import rows
from outrider.store.sql import statements as sql
from outrider.store.sql.tables import Tables
from outrider.store.sql.writes import SqlProgressWrites, SqlPromiseWrites
from outrider.store.store import MOST_ROWS, Store


class SqlStore(Store):
    """A store over tables that this process has for itself."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._tell_commit: Callable[[float], None] | None = None
        self._monotonic_s: Callable[[], float] = lambda: 0.0

    @property
    def tables(self) -> Tables:
        """What it keeps its rows in."""
        return self._tables

    def watch_commits(self, tell: Callable[[float], None], monotonic_s: Callable[[], float]) -> None:
        """Tell from now on how long it takes until a promise is on the disk."""
        self._tell_commit, self._monotonic_s = tell, monotonic_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._tables.close()

    @property
    def is_broken(self) -> bool:
        """Whether its disk has failed: nothing is written until it is opened again."""
        return self._tables.is_broken

    @contextmanager
    def promise(self) -> Iterator[SqlPromiseWrites]:
        with self._tables.transaction(is_safe=True):
            yield SqlPromiseWrites(self._tables)
            # What follows is the commit, which the block's end brings about.
            began_s = self._monotonic_s()
        if self._tell_commit is not None:
            self._tell_commit(self._monotonic_s() - began_s)

    @contextmanager
    def progress(self) -> Iterator[SqlProgressWrites]:
        with self._tables.transaction(is_safe=False):
            yield SqlProgressWrites(self._tables)

    def kept_book(self, now_s: int, live: Sequence[ReservationRecord] | None = None) -> KeptBook:
        kept = [each.reservation for each in (self.live_reservations() if live is None else live)]
        return rows.kept_book(self._tables, kept, now_s)

    def reservation(self, name: str) -> ReservationRecord | None:
        row = self._tables.row(sql.LAST_RESERVATION, (name,))
        return None if row is None else rows.reservation_record(row)

    def live_reservations(self) -> list[ReservationRecord]:
        return [rows.reservation_record(row) for row in self._tables.rows(sql.LIVE_RESERVATIONS)]

    def past_reservations(
        self, *, before: int = LARGEST_NUMBER, most: int = MOST_ROWS
    ) -> list[ReservationRecord]:
        found = self._tables.rows(sql.PAST_RESERVATIONS, (before, min(most, MOST_ROWS)))
        return [rows.reservation_record(row) for row in found]

    def past_of_stem(self, stem: str, uid: int | None, *, most: int) -> list[ReservationRecord]:
        # The character behind the 9 is the colon. Between them are names with more than a number, too.
        values = (f"{stem}-", f"{stem}-:", len(stem) + 2, -1 if uid is None else uid, uid is None)
        found = self._tables.rows(sql.PAST_OF_STEM, (*values, min(most, MOST_ROWS)))
        return [rows.reservation_record(row) for row in found]

    def transfer(self, number: int) -> TransferRecord | None:
        row = self._tables.row(sql.GET_TRANSFER, (number,))
        return None if row is None else rows.transfer(row)

    def live_transfers(self) -> list[TransferRecord]:
        """All that wait or run."""
        return [rows.transfer(row) for row in self._tables.rows(sql.LIVE_TRANSFERS)]

    def decisions(
        self, name: str | None = None, *, before: int = LARGEST_NUMBER, most: int = MOST_ROWS
    ) -> list[RecordedDecision]:
        most = min(most, MOST_ROWS)
        if name is None:
            found = self._tables.rows(sql.DECISIONS, (before, most))
        else:
            found = self._tables.rows(sql.DECISIONS_ABOUT, (name, before, most))
        return [rows.decision(row) for row in found]

    def decisions_since(self, after: int, *, most: int = MOST_ROWS) -> list[RecordedDecision]:
        found = self._tables.rows(sql.DECISIONS_SINCE, (after, min(most, MOST_ROWS)))
        return [rows.decision(row) for row in found]

    def last_decision(self) -> int:
        """The number of the last decision, even if it has been pruned; 0 before the first."""
        return self._tables.last_number("decisions")

    def ledger_sums(self, by: Payer, from_s: int, until_s: int, uid: int | None) -> list[LedgerSum]:
        values = (from_s, until_s, -1 if uid is None else uid, uid is None)
        return [rows.ledger_sum(row) for row in self._tables.rows(sql.LEDGER_SUMS[by], values)]

    def answered(self, uid: int, key: str, request_hash: str) -> RecordedAnswer | None:
        row = self._tables.row(sql.GET_ANSWER, (uid, key))
        if row is None:
            return None
        answer = rows.answer(row)
        if answer.request_hash != request_hash:
            raise Conflict(f"the idempotency key {key} was used for another request: use a new one")
        return answer

    def due_effects(self, now_s: int, *, most: int = MOST_ROWS) -> list[Effect]:
        found = self._tables.rows(sql.DUE_EFFECTS, (now_s, min(most, MOST_ROWS)))
        return [rows.effect(row) for row in found]

    def waiting_effects(self, subject: str, *, most: int = MOST_ROWS) -> list[Effect]:
        found = self._tables.rows(sql.WAITING_EFFECTS, (subject, min(most, MOST_ROWS)))
        return [rows.effect(row) for row in found]

    def knows_effect(self, identity: str) -> bool:
        return self._tables.row(sql.GET_EFFECT, (identity,)) is not None

    def waiting_subjects(self) -> set[str]:
        return {str(row[0]) for row in self._tables.rows(sql.WAITING_SUBJECTS)}

    def count_effects(self) -> int:
        return self._number(sql.COUNT_EFFECTS)

    def next_due_s(self) -> int | None:
        row = self._tables.row(sql.NEXT_DUE)
        due_s = None if row is None else row[0]
        assert due_s is None or isinstance(due_s, int)
        return due_s

    def nodes(self) -> list[NodeRecord]:
        return [rows.node(row) for row in self._tables.rows(sql.NODES)]

    def setting(self, name: str) -> str | None:
        row = self._tables.row(sql.GET_SETTING, (name,))
        return None if row is None else str(row[0])

    def _number(self, statement: str) -> int:
        row = self._tables.row(statement)
        number = 0 if row is None else row[0]
        assert isinstance(number, int)
        return number

    def prune(self, before_s: int, *, most: int = MOST_ROWS) -> Pruned:
        with self._tables.transaction(is_safe=False):
            gone = {
                table: self._tables.execute(statement, (before_s, min(most, MOST_ROWS)))
                for table, statement in sql.PRUNE.items()
            }
        return Pruned(rows=gone)
