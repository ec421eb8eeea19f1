"""Leases beyond what the machine has, for the time of those who do not come: with a stated risk.

Such a lease is on *standby*: it is promised for the case that enough of those who have nodes then do not
show up, and begins only on nodes that nobody has. So whoever shows up in time loses nothing, and what may be
broken is the standby's promise alone, at most with the probability that the site allows. That rests on two
things: users come or stay away independently of each other, and as often as those whose time has come so far.
Of the risk one per cent is kept back for an unlucky history; and when more promises were broken than the risk
explains, nothing is overbooked any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.core.leases.admission import PlannedLease

DOUBT = 0.01
"""How likely it is at most that the rate of those who stay away is overestimated."""
LEAST_KNOWN = 30
"""Leases whose time has come, before anything is overbooked."""
MOST_KNOWN = 400
STEPS = 20


@dataclass(slots=True)
class ShowUps:
    """Who has come and who has not, the newest of them."""

    came: int = 0
    stayed_away: int = 0
    _rate: float | None = None

    def note(self, has_come: bool) -> None:
        self._rate = None
        if has_come:
            self.came += 1
        else:
            self.stayed_away += 1
        if self.came + self.stayed_away > MOST_KNOWN:
            self.came, self.stayed_away = self.came // 2, self.stayed_away // 2

    @property
    def least_rate(self) -> float:
        """The rate of those who stay away is at least this, but for `DOUBT` (Clopper and Pearson)."""
        if self._rate is None:
            self._rate = self._least_rate()
        return self._rate

    def _least_rate(self) -> float:
        known = self.came + self.stayed_away
        if known < LEAST_KNOWN or not self.stayed_away:
            return 0.0
        low, high = 0.0, self.stayed_away / known
        for _ in range(STEPS):
            middle = (low + high) / 2
            if at_least(self.stayed_away, known, middle) > DOUBT:
                high = middle
            else:
                low = middle
        return low


class Overbooking:
    """Decides who is put on standby, and learns from how that ended."""

    def __init__(self, risk_percent: int) -> None:
        if not 2 <= risk_percent <= 50:
            raise ValueError(f"a risk of {risk_percent} %: use 2 to 50")
        self.risk = risk_percent / 100
        self.show_ups = ShowUps()
        self.settled = self.broken = 0

    def note_standby(self, *, was_broken: bool) -> None:
        """The time of one on standby has come."""
        self.settled += 1
        self.broken += was_broken

    @property
    def is_trusted(self) -> bool:
        """Whether as many promises were broken as the risk explains, and not more."""
        return self.broken < 2 or at_least(self.broken, self.settled, self.risk) > DOUBT

    def accepts(
        self, lease: PlannedLease, held: Sequence[PlannedLease], standbys: Iterable[PlannedLease], units: int,
        now_s: int,
    ) -> bool:  # fmt: skip
        """Whether one may be on standby beside those who have nodes in its time, and others on standby."""
        return self.is_trusted and self.risk_of(lease, held, standbys, units, now_s) <= self.risk - DOUBT

    def risk_of(
        self, lease: PlannedLease, held: Sequence[PlannedLease], standbys: Iterable[PlannedLease], units: int,
        now_s: int,
    ) -> float:  # fmt: skip
        """How likely it is at most that it finds no nodes.

        Those whose time has come already, or comes after its own, are taken to be there for all of it, as are
        all others on standby.
        """
        own_s, end_s = lease.start_s, lease.spans[-1][1]
        sure = sum(each.units for each in standbys if each.start_s < end_s and own_s < each.spans[-1][1])
        open_units = []
        for each in held:
            if now_s < each.start_s <= own_s:
                open_units.append(each.units)
            else:
                sure += each.units
        return more_than(open_units, 1 - self.show_ups.least_rate, units - lease.units - sure)


def more_than(sizes: Sequence[int], chance: float, room: int) -> float:
    """How likely it is that those who come, each with the same chance, need more than there is room for."""
    if room < 0:
        return 1.0
    within = [0.0] * (room + 1)
    within[0] = 1.0
    for size in sizes:
        for need in range(room, -1, -1):
            came = within[need - size] * chance if need >= size else 0.0
            within[need] = within[need] * (1 - chance) + came
    return max(0.0, 1 - sum(within))


def at_least(count: int, of: int, chance: float) -> float:
    """How likely it is that so many or more of so many happen."""
    if count <= 0:
        return 1.0
    if chance <= 0:
        return 0.0
    part, below = (1 - chance) ** of, 0.0
    for number in range(count):
        below += part
        part *= (of - number) / (number + 1) * chance / (1 - chance)
    return max(0.0, 1 - below)
