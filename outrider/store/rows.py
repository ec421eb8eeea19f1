"""Rows of the tables as values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outrider.core.nodes.timeline import BUCKET_S
from outrider.core.restart.snapshot import KeptBook, KeptReservation
from outrider.store import forms
from outrider.store import statements as sql
from outrider.store.database import Database, Row
from outrider.store.errors import Damaged
from outrider.store.records import (
    Effect,
    NodeProgress,
    NodeRecord,
    RecordedAnswer,
    RecordedDecision,
    ReservationOwner,
    ReservationRecord,
    TransferRecord,
)
from outrider.store.states import State, TransferState


def reservation_record(row: Row) -> ReservationRecord:
    values: list[Any] = list(row)
    return ReservationRecord(
        kept=forms.read_reservation(values[0]),
        owner=ReservationOwner(uid=values[1], user=values[2], account=values[3]),
        state=State(values[4]),
        version=values[5],
        number=values[6],
        accepted_s=values[7],
        changed_s=values[8],
        ended_s=values[9],
        receipt=values[10],
        why=values[11],
        document=values[12],
    )


def transfer(database: Database, row: Row) -> TransferRecord:
    progress = tuple(node_progress(each) for each in database.rows(sql.GET_PROGRESS, (row[0],)))
    values: list[Any] = list(row)
    return TransferRecord(
        kept=forms.read_transfer(values[1]),
        state=TransferState(values[2]),
        planned_s=values[3],
        begun_s=values[4],
        ended_s=values[5],
        source=values[6],
        progress=progress,
    )


def node_progress(row: Row) -> NodeProgress:
    values: list[Any] = list(row)
    return NodeProgress(
        transfer=values[0],
        node=values[1],
        moved_bytes=values[2],
        reported_s=values[3],
        is_done=bool(values[4]),
    )


def decision(row: Row) -> RecordedDecision:
    values: list[Any] = list(row)
    return RecordedDecision(
        number=values[0],
        at_s=values[1],
        uid=values[2],
        kind=values[3],
        name=values[4],
        outcome=values[5],
        reason=values[6],
        details=values[7],
    )


def answer(row: Row) -> RecordedAnswer:
    values: list[Any] = list(row)
    return RecordedAnswer(
        uid=values[0], key=values[1], request_hash=values[2], text=values[3], at_s=values[4]
    )


def effect(row: Row) -> Effect:
    values: list[Any] = list(row)
    return Effect(
        identity=values[0],
        kind=values[1],
        subject=values[2],
        payload=values[3],
        created_s=values[4],
        due_s=values[5],
        attempts=values[6],
        trouble=values[7],
    )


def node(row: Row) -> NodeRecord:
    values: list[Any] = list(row)
    return NodeRecord(
        name=values[0],
        reported_s=values[1],
        is_available=bool(values[2]),
        report=values[3],
        pool=None if values[4] is None else forms.read_pool(values[4]),
    )


def next_transfer(database: Database) -> int:
    """The number of the next transfer: never one that was given before."""
    row = database.row(sql.GET_SETTING, ("next_transfer",))
    if row is None:
        return 1
    text = str(row[0])
    if not text.isdecimal():
        raise Damaged(f"store {database.path}: its next transfer is {text[:20]!r}: put a backup back")
    return int(text)


def kept_book(database: Database, reservations: Iterable[KeptReservation], now_s: int) -> KeptBook:
    """All that a book is restored from, with the reservations that are not over."""
    nodes = [node(row) for row in database.rows(sql.NODES)]
    return KeptBook(
        reservations=tuple(reservations),
        transfers=tuple(forms.read_transfer(_text(row)) for row in database.rows(sql.KEPT_TRANSFERS)),
        runs=tuple(forms.read_run(_text(row)) for row in database.rows(sql.RUNS)),
        pools=tuple(each.pool for each in nodes if each.pool is not None),
        unavailable=tuple(each.name for each in nodes if not each.is_available),
        used_lately=_used_lately(database, now_s),
        next_transfer=next_transfer(database),
    )


def _promise(row: Row) -> KeptReservation:
    return forms.read_reservation(_text(row))


def _text(row: Row) -> str:
    return str(row[0])


def _used_lately(database: Database, now_s: int) -> tuple[str, ...]:
    """The nodes of reservations that were over only in this hour of the slot table's index."""
    used: set[str] = set()
    for row in database.rows(sql.PAST_PROMISES, (now_s // BUCKET_S * BUCKET_S,)):
        reservation = _promise(row).reservation
        if reservation.workspace.resources.amounts:
            used.update(reservation.nodes)
    return tuple(sorted(used))
