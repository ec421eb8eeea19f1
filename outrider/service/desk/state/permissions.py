"""Who may see and change what of others."""

from __future__ import annotations

from outrider.service.requests import Caller
from outrider.store.records import RecordedDecision, ReservationRecord


def may_read(record: ReservationRecord, caller: Caller) -> bool:
    """Whether somebody may see all of a reservation, and change it."""
    return caller.is_admin or caller.uid == record.owner.uid


def may_see(decision: RecordedDecision, caller: Caller, own: set[str]) -> bool:
    """Whether somebody may read what was decided; `own` are the names of their reservations."""
    if caller.is_admin:
        return True
    is_own = decision.uid == caller.uid and caller.uid != 0
    return is_own or (decision.name in own and not is_request(decision))


def is_request(decision: RecordedDecision) -> bool:
    """Whether it is about a request, which is noted under whatever name its user gave it: that may be
    the name of another user's reservation."""
    return decision.kind == "reserve"
