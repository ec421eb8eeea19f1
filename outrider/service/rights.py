"""Who may see and change what of others."""

from __future__ import annotations

from outrider.service.requests import Caller
from outrider.store.records import Decision, ReservationRecord


def may_read(record: ReservationRecord, caller: Caller) -> bool:
    """Whether somebody may see all of a reservation, and change it."""
    return caller.is_admin or caller.uid == record.owner.uid


def may_see(decision: Decision, caller: Caller, own: set[str]) -> bool:
    """Whether somebody may read what was decided; `own` are the names of their reservations."""
    return caller.is_admin or decision.name in own or (decision.uid == caller.uid and caller.uid != 0)
