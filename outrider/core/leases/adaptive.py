"""Admission that adapts: the share of each hour that leases may have follows what users do.

A site says what it wants as prices: of an hour of a node that is booked, of one that is used, and of an hour
in which a job waits. `AdaptiveShare` learns how many jobs wait, whether nodes would be used without leases,
and how much of what leases book is used (no-shows, cancellations, early ends, sizes that were too large), and
moves the share step by step between the site's limits towards what is worth more. It never touches what is
promised already.

One hour of a node in a lease holds up every job that waits by one hour over the machine's nodes, from then on
until nobody waits any more. How many jobs that are is known afterwards: each hour is judged when nobody waits
any more, or after half of the time for which what is seen counts (a day, by default); of a site whose share
moves more often, shorter pieces are. To guess it from how long jobs have waited so far would be wrong: what
is booked as they begin to wait holds up most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from outrider.core.leases.admission import HOUR_S, HourShare, PlannedLease, SiteView

MILLION = 1_000_000
BAND_PERCENT = 10
"""The share stays where it is while worth and cost differ by less."""
LEAST_SEEN = 10
"""Before so many leases are over, what they book is taken for used."""
MOST_SEEN = 100
"""When so many are known each counts half: what users did long ago is forgotten."""
LEAST_USED_PERCENT = 50
"""Leases are counted with half of what they book at the least, whatever their users did."""
MOST_PIECES = 1000
"""How many pieces of time are judged in the time for which what is seen counts."""
MOST_MOVES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class SteeringRules:
    """What a site wants, in thousandths of its unit of money, and within which limits.

    `booked` is what an hour of a node brings that a lease books, `used` one that is used, by whomever;
    `waiting` is what an hour costs in which one job waits.
    """

    booked: int = 0
    used: int = 0
    waiting: int = 0
    lowest_percent: int = 0
    highest_percent: int = 100
    start_percent: int = 50
    step_percent: int = 10
    every_s: int = 3600
    memory_s: int = 2 * 86_400

    @property
    def piece_s(self) -> int:
        """How long the pieces of time are that are judged by themselves."""
        return min(HOUR_S, max(self.every_s, self.memory_s // MOST_PIECES))

    def __post_init__(self) -> None:
        if not 0 <= self.lowest_percent <= self.start_percent <= self.highest_percent <= 100:
            raise ValueError(
                f"shares of {self.lowest_percent}, {self.start_percent} and {self.highest_percent} %: "
                "lowest, start and highest rise, within 0 to 100"
            )
        if min(self.step_percent, self.every_s, self.memory_s) < 1:
            raise ValueError("step, every and memory are 1 or more")
        if min(self.booked, self.used, self.waiting) < 0 or not (self.booked or self.used or self.waiting):
            raise ValueError("prices of what is booked, used and waited: none below 0, one above it")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareMove:
    """One change of the share, and why."""

    at_s: int
    before_percent: int
    after_percent: int
    words: str


class AdaptiveShare:
    """One site's share as it is now, and what it has learned. An `AdmissionPolicy`."""

    def __init__(self, rules: SteeringRules) -> None:
        self.rules = rules
        self.percent = rules.start_percent
        self.moves: deque[ShareMove] = deque(maxlen=MOST_MOVES)
        self._seen_s: int | None = None
        self._next_s = 0
        self._now_waiting = 0
        self._waiting = self._held = self._busy = 0
        """Means that forget, in millionths: jobs that wait, jobs that a lease has held up, and the part of
        the time in which any waits."""
        self._pieces: deque[tuple[int, int, int]] = deque()
        """Pieces that are not judged yet: when, how many waited then, and how many had come."""
        self._next_piece_s = 0
        self._leases = self._booked = self._spent = 0

    @property
    def used_percent(self) -> int:
        """How much of what leases book is used, as far as is known and believed."""
        if self._leases < LEAST_SEEN or not self._booked:
            return 100
        return min(100, max(LEAST_USED_PERCENT, 100 * self._spent // self._booked))

    @property
    def booked_percent(self) -> int:
        """How much of an hour may be booked, so that the share is used."""
        return min(100, 100 * self.percent // self.used_percent)

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        refusal = HourShare(self.booked_percent).refuse(lease, site, now_s)
        return f"{refusal}; {self.words()}" if refusal else ""

    def look(self, waiting: int, came: int, units: int, now_s: int) -> ShareMove | None:
        """So many jobs wait from now on, of so many that have come so far, on a machine of so many units; the
        move, if it is time for one."""
        if self._seen_s is None:
            self._seen_s, self._next_s = now_s, now_s + self.rules.every_s
        gone_s, self._seen_s = now_s - self._seen_s, now_s
        self._waiting = self._drawn(self._waiting, self._now_waiting, gone_s)
        self._busy = self._drawn(self._busy, int(self._now_waiting > 0), gone_s)
        self._now_waiting = waiting
        self._look_back(waiting, came, now_s)
        if now_s < self._next_s:
            return None
        self._next_s = now_s + self.rules.every_s
        return self._move(units, now_s)

    def _look_back(self, waiting: int, came: int, now_s: int) -> None:
        """Pieces that can be judged by now: how many jobs waited then, or came before nobody did any more."""
        piece_s = self.rules.piece_s
        hindsight_s = max(piece_s, self.rules.memory_s // 2)
        while self._pieces and (not waiting or now_s - self._pieces[0][0] >= hindsight_s):
            _, waited, had_come = self._pieces.popleft()
            held = waited + came - had_come if waited else 0
            self._held = self._drawn(self._held, held, piece_s)
        if now_s >= self._next_piece_s:
            self._next_piece_s = now_s + piece_s
            self._pieces.append((now_s, waiting, came))

    def ended(self, booked: int, used: int) -> None:
        """A lease is over that had booked so many unit-seconds, and has used so many."""
        self._leases += 1
        self._booked += booked
        self._spent += min(booked, used)
        if self._leases > MOST_SEEN:
            self._leases, self._booked, self._spent = self._leases // 2, self._booked // 2, self._spent // 2

    def worth_and_cost(self, units: int) -> tuple[int, int]:
        """Of an hour of a unit in a lease, in thousandths."""
        rules, used = self.rules, self.used_percent
        gain = 100 * rules.booked + rules.used * (used - 100 * self._busy // MILLION)
        cost = rules.waiting * used * self._held // (MILLION * units)
        return gain // 100, cost // 100

    def words(self) -> str:
        """What the share is now, and why."""
        if not self.moves:
            return f"their share has been {self.percent} % from the beginning"
        return self.moves[-1].words

    def _drawn(self, mean: int, value: int, gone_s: int) -> int:
        """A mean after so long a time at a value."""
        memory_s = self.rules.memory_s
        return mean + (value * MILLION - mean) * min(gone_s, memory_s) // memory_s

    def _move(self, units: int, now_s: int) -> ShareMove | None:
        rules, before = self.rules, self.percent
        worth, cost = self.worth_and_cost(units)
        if 100 * cost > (100 + BAND_PERCENT) * worth:
            after = max(rules.lowest_percent, before - rules.step_percent)
        elif 100 * cost < (100 - BAND_PERCENT) * worth:
            after = min(rules.highest_percent, before + rules.step_percent)
        else:
            after = before
        if after == before:
            return None
        self.percent = after
        words = (
            f"their share went from {before} to {after} %, because {_tenths(self._waiting)} jobs waited on "
            f"average, {_tenths(self._held)} were held up by what was booked, and reservations use "
            f"{self.used_percent} % of it: an hour of a node is worth {_money(worth)} and costs "
            f"{_money(cost)}"
        )
        move = ShareMove(at_s=now_s, before_percent=before, after_percent=after, words=words)
        self.moves.append(move)
        return move


def _money(thousandths: int) -> str:
    sign = "-" if thousandths < 0 else ""
    return f"{sign}{abs(thousandths) // 1000}.{abs(thousandths) % 1000:03}"


def _tenths(millionths: int) -> str:
    return f"{millionths // MILLION}.{millionths * 10 // MILLION % 10}"
