"""Rows of the tables as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outrider.core.model import Reservation
from outrider.core.nodes.timeline import BUCKET_S
from outrider.core.restart.snapshot import KeptBook
from outrider.store import forms
from outrider.store.errors import Damaged
from outrider.store.records import (
    Effect,
    EntryKind,
    LedgerSum,
    NodeRecord,
    RecordedAnswer,
    RecordedDecision,
    ReservationOwner,
    ReservationRecord,
    TransferRecord,
)
from outrider.store.sql import statements as sql
from outrider.store.sql.tables import Row, Tables
from outrider.store.states import State, TransferState


def reservation_record(row: Row) -> ReservationRecord:
    named = _named(sql.RESERVATION_COLUMNS, row)
    return ReservationRecord(
        reservation=forms.read_reservation(named.pop("promise")),
        owner=ReservationOwner(uid=named.pop("uid"), user=named.pop("user"), account=named.pop("account")),
        state=State(named.pop("state")),
        **named,
    )


def transfer(row: Row) -> TransferRecord:
    named = _named(sql.TRANSFER_COLUMNS, row)
    kept, state = forms.read_transfer(named.pop("kept")), TransferState(named.pop("state"))
    return TransferRecord(kept=kept, state=state, **named)


def decision(row: Row) -> RecordedDecision:
    return RecordedDecision(**_named(sql.DECISION_COLUMNS, row))


def answer(row: Row) -> RecordedAnswer:
    return RecordedAnswer(**_named(sql.ANSWER_COLUMNS, row))


def effect(row: Row) -> Effect:
    return Effect(**_named(sql.EFFECT_COLUMNS, row))


def node(row: Row) -> NodeRecord:
    named = _named(sql.NODE_COLUMNS, row)
    is_available, pool = bool(named.pop("is_available")), named.pop("pool")
    return NodeRecord(
        is_available=is_available, pool=None if pool is None else forms.read_pool(pool), **named
    )


def ledger_sum(row: Row) -> LedgerSum:
    payer, kind, count, node_seconds, amount = row
    assert isinstance(count, int)
    assert isinstance(node_seconds, int)
    assert isinstance(amount, int)
    return LedgerSum(
        payer=str(payer), kind=EntryKind(kind), count=count, node_seconds=node_seconds, amount=amount
    )


def values(record: object, columns: Sequence[str]) -> tuple[object, ...]:
    """What of a value goes into these columns."""
    return tuple(getattr(record, name) for name in columns)


def _named(columns: Sequence[str], row: Row) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def next_transfer(tables: Tables) -> int:
    """The number of the next transfer: never one that was given before."""
    row = tables.row(sql.GET_SETTING, ("next_transfer",))
    if row is None:
        return 1
    text = str(row[0])
    if not text.isdecimal():
        raise Damaged(f"store {tables.place}: its next transfer is {text[:20]!r}: put a backup back")
    return int(text)


def kept_book(tables: Tables, reservations: Iterable[Reservation], now_s: int) -> KeptBook:
    """All that a book is restored from, with the reservations that are not over."""
    nodes = [node(row) for row in tables.rows(sql.NODES)]
    return KeptBook(
        reservations=tuple(reservations),
        transfers=tuple(forms.read_transfer(_text(row)) for row in tables.rows(sql.KEPT_TRANSFERS)),
        pools=tuple(each.pool for each in nodes if each.pool is not None),
        unavailable=tuple(each.name for each in nodes if not each.is_available),
        used_lately=_used_lately(tables, now_s),
        next_transfer=next_transfer(tables),
    )


def _text(row: Row) -> str:
    return str(row[0])


def _used_lately(tables: Tables, now_s: int) -> tuple[str, ...]:
    """The nodes of reservations that were over only in this hour of the slot table's index."""
    used: set[str] = set()
    for row in tables.rows(sql.PAST_PROMISES, (now_s // BUCKET_S * BUCKET_S,)):
        reservation = forms.read_reservation(_text(row))
        if reservation.workspace.resources.amounts:
            used.update(reservation.nodes)
    return tuple(sorted(used))
