"""When best-effort transfers are expected to end, if they have the link a turn at a time and none is added.

What a turn takes is told in bytes that the whole link would send meanwhile: `when_sent` makes an instant of
it, round the slots of deadlines. In a network each lane counts for itself, and slots of deadlines on any
link are taken to hold up all: what is expected is rather too late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.core.links.schedule import DeadlineSchedule
from outrider.core.links.ways import Hop

MOST_SLOTS = 500
"""So many deadlines ahead are looked at: what is behind them is expected too early."""

Slots = tuple[tuple[int, int], ...]
"""From when to when transfers with deadlines have the link, in order."""


@dataclass(frozen=True, slots=True)
class ExpectedTurn:
    """A transfer's turn: its place among all turns is what its user has had before it, and then when it
    was asked for."""

    had: int
    place: int
    size: int
    number: int
    hops: Sequence[Hop]

    @property
    def order(self) -> tuple[int, int]:
        return self.had, self.place


@dataclass(slots=True)
class _Lane:
    """Which turns a lane has, and when each of them is over."""

    turns: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


class ExpectedTurns:
    """Turns in the order in which they are expected, and when each is over."""

    def __init__(self, turns: Iterable[ExpectedTurn], ahead: dict[int, int]) -> None:
        """`ahead`: by user, what has been had and is still to come."""
        self.ahead = ahead
        self.ends: dict[int, int] = {}
        """By transfer, when its last turn is over."""
        ordered = sorted(turns, key=lambda turn: turn.order)
        self._orders = [turn.order for turn in ordered]
        self._lanes: dict[str, _Lane] = {}
        for index, turn in enumerate(ordered):
            self._enter(index, turn)

    def __bool__(self) -> bool:
        return bool(self._orders)

    def free_at(self, hops: Iterable[Hop], order: tuple[int, int]) -> int:
        """When a turn at this place could begin."""
        index = bisect_left(self._orders, order)
        return max((min(self._free(lane, index) for lane in hop) for hop in hops), default=0)

    def _enter(self, index: int, turn: ExpectedTurn) -> None:
        chosen = [min(hop, key=lambda lane: self._free(lane, index)) for hop in turn.hops]
        begin = max([self.ends.get(turn.number, 0), *(self._free(lane, index) for lane in chosen)])
        self.ends[turn.number] = end = begin + turn.size
        for name in chosen:
            lane = self._lanes.setdefault(name, _Lane())
            lane.turns.append(index)
            lane.ends.append(end)

    def _free(self, name: str, index: int) -> int:
        """When a lane is free after all turns before this one."""
        lane = self._lanes.get(name)
        if lane is None:
            return 0
        place = bisect_left(lane.turns, index)
        return lane.ends[place - 1] if place else 0


def when_sent(
    size_bytes: int, slots: Iterable[tuple[int, int]], now_s: int, rate: int, beside_rate: int
) -> int:
    """When so many bytes of best effort will have been sent: at one rate outside the slots of
    deadlines, at another within them."""
    clock_s, missing = now_s, size_bytes
    for start_s, end_s in slots:
        gap = max(0, start_s - clock_s) * rate
        if missing <= gap:
            break
        missing -= gap
        beside = max(0, end_s - max(start_s, clock_s)) * beside_rate
        if missing <= beside:
            return max(start_s, clock_s) + -(-missing // beside_rate)
        missing -= beside
        clock_s = max(clock_s, end_s)
    return clock_s + -(-max(0, missing) // rate)


def slots_of(link: DeadlineSchedule, now_s: int, *, is_taken: bool = True) -> Slots:
    """When deadlines have the link, or any of several, as it is planned now; without what runs if it takes
    nothing of it."""
    found = [(now_s, max(now_s, end_s)) for _, end_s in link.under_way() if is_taken]
    found += [(start_s, start_s + each.duration_s) for each, start_s in link.planned(now_s, MOST_SLOTS)]
    slots: list[tuple[int, int]] = []
    for start_s, end_s in found:
        if slots and start_s < slots[-1][1]:
            slots[-1] = slots[-1][0], max(slots[-1][1], end_s)
        else:
            slots.append((start_s, end_s))
    return tuple(slots)
