"""What is answered about events that begin or end reservations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenWindow:
    """An open reservation's time: its event may come between `from_s` and `until_s`, and it starts within
    `within_s` of it. `events` are those that it waits for beside its user's word, or those that end it."""

    from_s: int
    until_s: int
    within_s: int
    duration_s: int
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    triggered_s: int | None = None
    """When its event came; None as long as it waits, and if none came."""
    event: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventTaken:
    """A signed call was taken: the reservation begins, or has ended."""

    name: str
    what: str
