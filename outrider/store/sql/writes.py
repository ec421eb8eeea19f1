"""What is written to the tables within one transaction.

Progress may be lost if the power fails, because it can be found out again; somebody relies on
what is promised.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from outrider.core.model import Reservation
from outrider.core.restart.snapshot import KeptTransfer, TransferStage
from outrider.store import forms
from outrider.store.errors import Conflict, StoreError, TooMuch
from outrider.store.records import (
    EMPTY_DOCUMENT,
    MOST_REASON,
    Effect,
    LedgerEntry,
    NodeRecord,
    RecordedAnswer,
    RecordedDecision,
    ReservationOwner,
    ReservationRecord,
    check_document,
    check_text,
)
from outrider.store.sql import rows
from outrider.store.sql import statements as sql
from outrider.store.sql.tables import Check, Row, Tables
from outrider.store.states import STEPS, TRANSFER_STEPS, State, TransferState
from outrider.store.store import ProgressWrites, PromiseWrites

MOST_EFFECTS = 100_000
"""How many effects may wait. More means that the batch system has been away for very long."""
NEXT_TRANSFER = "next_transfer"


class SqlProgressWrites(ProgressWrites):
    """Rows that change by themselves."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def put_transfers(self, transfers: Iterable[KeptTransfer], now_s: int) -> None:
        next_number = 0
        for kept in transfers:
            self._put_transfer(kept, now_s)
            next_number = max(next_number, kept.transfer.number + 1)
        if next_number:
            self._tables.send(sql.RAISE_SETTING, (NEXT_TRANSFER, str(next_number)))

    def end_transfer(self, number: int, state: TransferState, now_s: int) -> None:
        found = self._tables.row(sql.GET_TRANSFER_STATE, (number,))
        if found is None:
            raise Conflict(f"there is no transfer {number}")
        before, _ = _transfer_state(found)
        if before is not state:
            _check_transfer_step(number, before, state)
            self._tables.send(sql.END_TRANSFER, (state.value, now_s, number))

    def put_node(self, node: NodeRecord) -> None:
        pool = None if node.pool is None else forms.write_pool(node.pool)
        values = (node.name, node.reported_s, node.is_available, node.report, pool)
        self._tables.send(sql.SET_NODE, values)

    def drop_node(self, name: str) -> None:
        self._tables.send(sql.DROP_NODE, (name,))

    def finish_effect(self, identity: str, now_s: int) -> bool:
        """An effect has been carried out; False if that was known."""
        return self._tables.execute(sql.FINISH_EFFECT, (now_s, identity)) > 0

    def postpone_effect(self, identity: str, trouble: str, due_s: int) -> None:
        self._tables.send(sql.POSTPONE_EFFECT, (trouble[:MOST_REASON], due_s, identity))

    def hasten_effects(self, now_s: int, latest_s: int) -> None:
        self._tables.send(sql.HASTEN_EFFECTS, (now_s, latest_s))

    def retry_effects(self, now_s: int) -> None:
        self._tables.send(sql.RETRY_EFFECTS, (now_s, now_s))

    def _put_transfer(self, kept: KeptTransfer, now_s: int) -> None:
        transfer, state = kept.transfer, TransferState(kept.stage.value)
        text = forms.write_transfer(kept)
        found = self._tables.row(sql.GET_TRANSFER_STATE, (transfer.number,))
        if found is None:
            begun_s, before = None, TransferState.WAITING
        else:
            before, begun_s = _transfer_state(found)
        if before is not state:
            _check_transfer_step(transfer.number, before, state)
        elif before.is_final:
            return
        if begun_s is None and kept.stage is not TransferStage.WAITING:
            begun_s = now_s
        ended_s = now_s if state.is_final else None
        if found is None:
            size_bytes = transfer.image.size_bytes
            new = (transfer.number, state.value, now_s, begun_s, ended_s, size_bytes, text)
            self._tables.send(sql.ADD_TRANSFER, new)
        else:
            changed = (state.value, begun_s, ended_s, text, transfer.number)
            self._tables.send(sql.CHANGE_TRANSFER, changed)


class SqlPromiseWrites(SqlProgressWrites, PromiseWrites):
    """Rows that change by a decision."""

    def next_reservation_number(self) -> int:
        return self._tables.last_number("reservations") + 1

    def skip_reservation_numbers(self, last: int) -> None:
        self._tables.skip_numbers("reservations", last)

    def add_reservation(
        self, kept: Reservation, owner: ReservationOwner, now_s: int, *, document: str = EMPTY_DOCUMENT
    ) -> int:
        workspace = kept.workspace
        check_text("a reservation's name", workspace.name)
        check_document("what was asked for", document)
        taken = Conflict(f"a reservation named {workspace.name} exists already: choose another name")
        self._tables.expect(sql.LIVE_NAME, (workspace.name,), _none(taken))
        number = self._tables.add(
            "reservations",
            sql.ADD_RESERVATION,
            (
                workspace.name,
                State.ACCEPTED.value,
                owner.uid,
                owner.user,
                owner.account,
                kept.start_s,
                now_s,
                now_s,
                forms.write_reservation(kept),
                document,
            ),
        )
        self._need(number, kept)
        return number

    def change_reservation(
        self,
        record: ReservationRecord,
        now_s: int,
        *,
        state: State | None = None,
        kept: Reservation | None = None,
        receipt: str | None = None,
        why: str | None = None,
        document: str | None = None,
    ) -> None:
        after = record.state if state is None else state
        if after is not record.state and after not in STEPS[record.state]:
            raise Conflict(
                f"reservation {record.name} is {record.state.value}: it cannot become {after.value}"
            )
        if receipt is not None:
            check_document("a receipt", receipt)
        if document is not None:
            check_document("what was asked for", document)
        check_text("a reason", why or "", MOST_REASON)
        kept_after = record.reservation if kept is None else kept
        if kept is not None and kept.workspace.name != record.name:
            raise ValueError(f"reservation {record.name} cannot be renamed")
        values = (
            after.value,
            kept_after.start_s,
            now_s,
            now_s if after.is_final else None,
            forms.write_reservation(kept_after),
            record.receipt if receipt is None else receipt,
            record.why if why is None else why,
            record.document if document is None else document,
            record.number,
            record.version,
        )
        stale = Conflict(
            f"reservation {record.name} has changed since version {record.version}: read it again"
        )
        if record.state.is_final:
            raise stale
        self._tables.send(sql.CHANGE_RESERVATION, values, stale)
        if kept is not None:
            self._tables.send(sql.DROP_NEEDS, (record.number,))
            self._need(record.number, kept)

    def decide(self, decision: RecordedDecision) -> int:
        return self._tables.add(
            "decisions", sql.ADD_DECISION, rows.values(decision, sql.DECISION_COLUMNS[1:])
        )

    def enter(self, entry: LedgerEntry) -> None:
        values = (
            entry.at_s,
            entry.kind.value,
            entry.name,
            entry.uid,
            entry.user,
            entry.account,
            entry.group,
            entry.node_seconds,
            entry.amount,
        )
        self._tables.add("ledger", sql.ADD_ENTRY, values)

    def answer(self, answer: RecordedAnswer) -> None:
        taken = Conflict(f"the idempotency key {answer.key} has been answered already: use a new one")
        self._tables.expect(sql.HAS_ANSWER, (answer.uid, answer.key), _none(taken))
        self._tables.send(sql.ADD_ANSWER, rows.values(answer, sql.ANSWER_COLUMNS))

    def change_answer(self, answer: RecordedAnswer) -> None:
        unknown = Conflict(f"nothing was answered under the idempotency key {answer.key}")
        self._tables.send(sql.CHANGE_ANSWER, (answer.text, answer.uid, answer.key), unknown)

    def todo(self, *effects: Effect) -> None:
        for effect in effects:
            self._tables.expect(sql.GET_EFFECT, (effect.identity,), partial(_check_same, effect))
            self._tables.send(sql.RETRY_EFFECTS_OF, (effect.due_s, effect.due_s, effect.subject))
            self._tables.add("todo", sql.ADD_EFFECT, rows.values(effect, sql.EFFECT_COLUMNS))
        if effects:
            self._tables.expect(sql.COUNT_EFFECTS, (), _check_not_too_many)

    def set(self, name: str, value: str) -> None:
        check_text("a setting's name", name)
        check_text("a setting", value, MOST_REASON)
        self._tables.send(sql.SET_SETTING, (name, value))

    def _need(self, number: int, kept: Reservation) -> None:
        needed = {hold.transfer for hold in kept.holds if hold.transfer is not None}
        for transfer in sorted(needed.union(kept.transfers)):
            self._tables.send(sql.ADD_NEED, (number, transfer))


def _none(error: StoreError) -> Check:
    """There must be no such row."""

    def check(row: Row | None) -> None:
        if row is not None:
            raise error

    return check


def _check_same(effect: Effect, found: Row | None) -> None:
    """What was asked for before is asked for once; but it must be the same."""
    if found is not None and (found[1], found[2], found[3]) != (effect.kind, effect.subject, effect.payload):
        raise Conflict(f"effect {effect.identity} was asked for before, and was another one")


def _check_not_too_many(found: Row | None) -> None:
    assert found is not None
    if isinstance(found[0], int) and found[0] > MOST_EFFECTS:
        raise TooMuch(
            f"more than {MOST_EFFECTS} effects wait to be carried out: see why the batch system does not "
            "answer"
        )


def _transfer_state(row: Row) -> tuple[TransferState, int | None]:
    begun_s = row[1]
    assert begun_s is None or isinstance(begun_s, int)
    return TransferState(row[0]), begun_s


def _check_transfer_step(number: int, before: TransferState, after: TransferState) -> None:
    if after not in TRANSFER_STEPS[before]:
        raise Conflict(f"transfer {number} is {before.value}: it cannot become {after.value}")
