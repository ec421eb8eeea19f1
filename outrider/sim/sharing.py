"""Concurrent transfers over one server's link, sharing it max-min fairly.

A transfer's rate is bounded by three things: its fair share of the server's link, its fair
share of its receiver's link, and a cap of its own. Max-min fairness gives nobody more while
somebody who could use it has less. Scheduling does not belong here: who may start a
transfer, and when, is the caller's matter.

Transfers start at whole seconds. Progress is kept in exact fractions, so no float can creep
in. Only when a denominator outgrows 64 bits is progress rounded up to the next 2^-64 byte;
with one server link a transfer that ends sooner slows no other one, so the error stays far
below a microsecond and on the early side. A finish is reported as the whole second in which
the last byte has arrived, rounded up.

Transfers with the same receiver and the same cap always have the same rate. They form a
group that keeps one progress for all, so that an event costs as much as there are groups,
however many transfers each of them holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush

FINEST_DENOMINATOR = 1 << 64
NO_CAP = 1 << 62
"""In bytes/s: more than any link carries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedTransfer:
    """Bytes that set out over the shared link at `start_s`.

    `receiver` names a link of the receiving side; without it that side is not a limit.
    """

    key: str
    start_s: int
    size_bytes: int
    cap_bytes_per_s: int | None = None
    receiver: str | None = None

    def __post_init__(self) -> None:
        if self.size_bytes < 1:
            raise ValueError(f"transfer {self.key} has {self.size_bytes} bytes: send some")
        if self.cap_bytes_per_s is not None and self.cap_bytes_per_s < 1:
            raise ValueError(
                f"transfer {self.key} capped at {self.cap_bytes_per_s} bytes/s never ends: "
                "give 1 or more, or no cap"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTransfer:
    """A transfer that has ended, and the whole second by which it had."""

    key: str
    finish_s: int


class FluidLink:
    """A server's link, and any receivers' links behind it, over time."""

    def __init__(self, rate_bytes_per_s: int, receivers_bytes_per_s: Mapping[str, int] | None = None) -> None:
        self._receivers = dict(receivers_bytes_per_s or {})
        for name, rate in [("the server's", rate_bytes_per_s), *self._receivers.items()]:
            if rate < 1:
                raise ValueError(f"link {name} carries {rate} bytes/s; give 1 or more")
        self._rate = rate_bytes_per_s
        self._now = Fraction(0)
        self._groups: dict[tuple[str | None, int], _Group] = {}
        self._active: set[str] = set()
        self._finished: list[FinishedTransfer] = []

    def add(self, transfer: SharedTransfer) -> None:
        """Start a transfer at its `start_s`, no sooner than any earlier call's time."""
        if transfer.receiver is not None and transfer.receiver not in self._receivers:
            raise ValueError(f"transfer {transfer.key}: {transfer.receiver} has no link")
        self._run_until(transfer.start_s)
        if transfer.key in self._active:
            raise ValueError(f"transfer {transfer.key} is under way already")

        cap = transfer.cap_bytes_per_s or NO_CAP
        group = self._groups.get((transfer.receiver, cap))
        if group is None:
            group = self._groups[transfer.receiver, cap] = _Group(self._now)
        group.add(self._now, transfer)
        self._active.add(transfer.key)
        self._share()

    @property
    def is_idle(self) -> bool:
        return not self._groups

    def set_rate(self, now_s: int, rate_bytes_per_s: int) -> None:
        """From now on the server's link carries more or less, no sooner than any earlier call's time."""
        if rate_bytes_per_s < 1:
            raise ValueError(f"a link of {rate_bytes_per_s} bytes/s carries nothing; give 1 or more")
        self._run_until(now_s)
        self._rate = rate_bytes_per_s
        self._share()

    def next_finish_s(self) -> int | None:
        """The first second at which `advance` reports something if nothing is added.

        None when nothing is under way. What ended before the last `add` is due at once.
        """
        if self._finished:
            return math.ceil(self._now)
        if not self._groups:
            return None
        return math.ceil(min(group.finish for group in self._groups.values()))

    def advance(self, now_s: int) -> list[FinishedTransfer]:
        """What has ended by `now_s` and was not reported yet, in order of its end."""
        self._run_until(now_s)
        finished, self._finished = self._finished, []
        return finished

    def _run_until(self, now_s: int) -> None:
        if now_s < self._now:
            raise ValueError(f"second {now_s} is past: it is {math.ceil(self._now)} by now")
        while self._groups:
            finish = min(group.finish for group in self._groups.values())
            if finish > now_s:
                break
            self._now = finish
            self._finish_due()
            self._share()
        self._now = Fraction(now_s)

    def _finish_due(self) -> None:
        """End every transfer that is complete at this instant, in order of its key."""
        keys: list[str] = []
        for identity, group in list(self._groups.items()):
            if group.finish == self._now:
                keys += group.pop_complete(self._now)
                if not group.goals:
                    del self._groups[identity]
        self._active.difference_update(keys)
        finish_s = math.ceil(self._now)
        self._finished += [FinishedTransfer(key=key, finish_s=finish_s) for key in sorted(keys)]

    def _share(self) -> None:
        """Give every group its max-min rate.

        With one link behind another, a transfer gets the least of its cap, the level its
        receiver's link is filled to, and the level the server's link is filled to with
        transfers thus limited: filling twice is enough.
        """
        caps: dict[str | None, list[tuple[Fraction, int]]] = {}
        for (receiver, cap), group in self._groups.items():
            caps.setdefault(receiver, []).append((Fraction(cap), len(group.goals)))
        levels: dict[str | None, Fraction] = {None: Fraction(self._rate)}
        for receiver, demands in caps.items():
            if receiver is not None:
                levels[receiver] = fill_level(Fraction(self._receivers[receiver]), demands)
        limits = {(receiver, cap): min(Fraction(cap), levels[receiver]) for receiver, cap in self._groups}
        demands = [(limits[name], len(group.goals)) for name, group in self._groups.items()]
        if demands:
            level = fill_level(Fraction(self._rate), demands)
            for name, group in self._groups.items():
                group.set_rate(self._now, min(level, limits[name]))


class _Group:
    """Transfers of one rate: each has got `progress` bytes since the group began."""

    __slots__ = ("finish", "goals", "progress", "rate", "since")

    def __init__(self, now: Fraction) -> None:
        self.since = now
        self.rate = Fraction(0)
        self.progress = Fraction(0)
        self.goals: list[tuple[Fraction, str]] = []
        self.finish = now

    def add(self, now: Fraction, transfer: SharedTransfer) -> None:
        self._settle(now)
        heappush(self.goals, (self.progress + transfer.size_bytes, transfer.key))
        self._expect_finish()

    def pop_complete(self, now: Fraction) -> list[str]:
        self._settle(now)
        keys = []
        while self.goals and self.goals[0][0] <= self.progress:
            keys.append(heappop(self.goals)[1])
        if self.goals:
            self._expect_finish()
        return keys

    def set_rate(self, now: Fraction, rate: Fraction) -> None:
        if rate != self.rate:
            self._settle(now)
            self.rate = rate
            self._expect_finish()

    def _settle(self, now: Fraction) -> None:
        self.progress = _rounded(self.progress + self.rate * (now - self.since))
        self.since = now

    def _expect_finish(self) -> None:
        if self.rate:
            left_bytes = max(Fraction(0), self.goals[0][0] - self.progress)
            self.finish = self.since + left_bytes / self.rate


def fill_level(capacity: Fraction, demands: Iterable[tuple[Fraction, int]]) -> Fraction:
    """The rate at which `capacity` runs out when all demands are raised together.

    A demand is a limit and how many share it. Whoever's limit is below the level gets the
    limit. If the capacity suffices for all, the level is the largest limit.
    """
    ordered = sorted(demands)
    members = sum(count for _, count in ordered)
    left = capacity
    for limit, count in ordered:
        if limit * members >= left:
            return left / members
        left -= limit * count
        members -= count
    return ordered[-1][0]


def _rounded(value: Fraction) -> Fraction:
    if value.denominator <= FINEST_DENOMINATOR:
        return value
    return Fraction(math.ceil(value * FINEST_DENOMINATOR), FINEST_DENOMINATOR)
