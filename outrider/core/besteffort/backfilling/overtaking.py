"""Who may overtake whom among those that wait: one rule for the simulator's queue and the service's.

A walk goes through what waits, in the order of the queue, and asks before each one; it says what became
of it. Where nodes are free, and which, is none of this module's business.
"""

from __future__ import annotations

from enum import Enum


class Backfilling(Enum):
    """Who may overtake whom."""

    OFF = "off"
    """Nobody: the first that cannot be placed holds up all behind it."""
    GREEDY = "greedy"
    """Everybody who can start; nobody is promised a start (thesis, section 6.1)."""
    RESERVING = "reserving"
    """The first few that cannot start get a place in the future; the rest may use what is left."""


class Overtaking:
    """One walk through a queue."""

    __slots__ = ("_places", "is_strict", "may_wait")

    def __init__(self, rule: Backfilling, places: int) -> None:
        """`places` of those that wait may have a place in the future, with RESERVING."""
        self._places = places if rule is Backfilling.RESERVING else 0
        self.may_wait = self._places > 0
        """Whether the next may have a place for which it has to wait."""
        self.is_strict = rule is Backfilling.OFF
        """Whether nobody behind one that has no place may be placed."""

    def placed(self, start_s: int, ready_s: int) -> None:
        """One has a place. If only its image is waited for it waits for nobody."""
        if start_s > ready_s:
            self._places -= 1
            self.may_wait = self._places > 0
