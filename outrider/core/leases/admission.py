"""Whether a lease for which there is a plan is accepted.

`AdmissionPolicy.refuse` is asked once a plan has been found and before anything is changed, because what
these policies limit (shares of hours, the queue's delay, prices) depends on when and where the lease would
be. What depends on the request alone, and quotas of users, are asked before: `outrider.metadata.decision`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from outrider.core.model import Workspace

if TYPE_CHECKING:
    from outrider.core.leases.pricing import PriceList

HOUR_S = 3600
Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLease:
    """A lease as it would be: units of the machine (nodes, or processors) during these stretches."""

    workspace: Workspace
    units: int
    spans: tuple[Span, ...]

    @property
    def start_s(self) -> int:
        return self.spans[0][0]

    @property
    def unit_seconds(self) -> int:
        return self.units * sum(end_s - start_s for start_s, end_s in self.spans)


class SiteView(Protocol):
    """What admission may know of the site."""

    @property
    def units(self) -> int:
        """What the whole machine has."""

    def leases(self, start_s: int, end_s: int) -> Iterable[PlannedLease]:
        """The accepted leases that take anything in an interval."""

    def best_effort_units(self, now_s: int) -> int:
        """What best effort runs on and waits for."""

    def queue_slowdown_percent(self, extra: PlannedLease, now_s: int) -> int:
        """The mean bounded slowdown of best effort if the lease were accepted, as is predicted now."""


class AdmissionPolicy(Protocol):
    """One rule of admission."""

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        """Why the lease is not accepted, as a sentence for its user; empty if it is."""


@dataclass(frozen=True, slots=True)
class AcceptNone:
    """No lease is accepted: the machine is for best effort alone."""

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        return "the site accepts no reservations: submit it as best effort"


@dataclass(frozen=True, slots=True)
class HourShare:
    """Leases have at most so much of every hour of the clock, all together."""

    percent: int

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        first_s = lease.start_s // HOUR_S * HOUR_S
        last_s = -(-lease.spans[-1][1] // HOUR_S) * HOUR_S
        own_hours, hours = _Hours([lease]), _Hours(site.leases(first_s, last_s))
        most = site.units * HOUR_S * self.percent // 100
        for hour_s in sorted({*own_hours.changes, *hours.changes}):
            own, taken = own_hours.taken(hour_s), hours.taken(hour_s)
            if first_s <= hour_s < last_s and own and own + taken > most:
                return (
                    f"reservations have at most {self.percent} % of an hour, and "
                    f"{100 * taken // (site.units * HOUR_S)} % of one that it would need are taken: "
                    "ask for another time, or for less"
                )
        return ""


@dataclass(frozen=True, slots=True)
class ProtectBestEffort:
    """Only while the mean bounded slowdown of what waits and runs stays below a bound, as predicted."""

    most_slowdown_percent: int

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        predicted = site.queue_slowdown_percent(lease, now_s)
        if predicted <= self.most_slowdown_percent:
            return ""
        return (
            f"best effort would be slowed down {hundredths(predicted)} times, and "
            f"{hundredths(self.most_slowdown_percent)} is the most: ask for less, or for a later time"
        )


@dataclass(frozen=True, slots=True)
class WithinIdle:
    """Leases, with what best effort runs on and waits for now, fit into a share of the machine.

    What leases cost best effort is the waiting of few short jobs that come while no node is free, and no plan
    of the queue knows of them. What is in use says more: much of the next hour, little of the next day.
    """

    percent: int

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        others = site.leases(lease.start_s, lease.spans[-1][1])
        taken = most_taken([*others], lease.spans) + site.best_effort_units(now_s)
        most = site.units * self.percent // 100
        if lease.units + taken <= most:
            return ""
        return (
            f"reservations and best effort may fill {most} nodes or processors, and {taken} are wanted "
            "without it: ask later, for another time, or for less"
        )


@dataclass(frozen=True, slots=True)
class WithinMaximumRate:
    """Who has said what he would pay at most gets no lease that costs more."""

    prices: PriceList

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        most = lease.workspace.owner.most_rate
        price = price_of(self.prices, lease, site, now_s)
        if most is None or price * HOUR_S <= most * lease.unit_seconds:
            return ""
        return (
            f"it costs {thousandths(price)}, and {lease.workspace.owner.user or 'its user'} pays at most "
            f"{thousandths(most * lease.unit_seconds // HOUR_S)}: ask for a cheaper time, or pay more"
        )


def price_of(prices: PriceList, lease: PlannedLease, site: SiteView, now_s: int) -> int:
    """What a lease costs, in thousandths."""
    taken = sum(taken_within(site.leases(start_s, end_s), start_s, end_s) for start_s, end_s in lease.spans)
    length_s = sum(end_s - start_s for start_s, end_s in lease.spans)
    load_percent = 100 * taken // (site.units * length_s)
    return prices.price(
        lease.units,
        lease.spans,
        notice_s=max(0, lease.start_s - now_s),
        load_percent=load_percent,
        may_yield=lease.workspace.may_yield,
    )


def first_refusal(
    policies: Sequence[AdmissionPolicy], lease: PlannedLease, site: SiteView, now_s: int
) -> str:
    """What the first policy says that does not accept the lease; empty if all do."""
    return next((words for policy in policies if (words := policy.refuse(lease, site, now_s))), "")


class _Hours:
    """Units times seconds that leases take in each hour of the clock, told apart where that changes.

    Hours are asked for in their order.
    """

    def __init__(self, leases: Iterable[PlannedLease]) -> None:
        self._whole = 0
        """Units that have all of the hour that was asked for last."""
        self._steps: Counter[int] = Counter()
        """By hour, how many more have all of it and of those that follow."""
        self._parts: Counter[int] = Counter()
        """By hour, what those take that have a part of it."""
        for lease in leases:
            for begin_s, stop_s in lease.spans:
                whole_s, rest_s = -(-begin_s // HOUR_S) * HOUR_S, stop_s // HOUR_S * HOUR_S
                if whole_s > rest_s:
                    self._parts[rest_s] += lease.units * (stop_s - begin_s)
                    continue
                self._parts[whole_s - HOUR_S] += lease.units * (whole_s - begin_s)
                self._parts[rest_s] += lease.units * (stop_s - rest_s)
                self._steps[whole_s] += lease.units
                self._steps[rest_s] -= lease.units
        self.changes = {*self._steps, *self._parts, *(hour_s + HOUR_S for hour_s in self._parts)}

    def taken(self, hour_s: int) -> int:
        self._whole += self._steps[hour_s]
        return self._whole * HOUR_S + self._parts[hour_s]


def taken_within(leases: Iterable[PlannedLease], start_s: int, end_s: int) -> int:
    """Units times seconds that leases take in an interval."""
    return sum(
        lease.units * max(0, min(stop_s, end_s) - max(begin_s, start_s))
        for lease in leases
        for begin_s, stop_s in lease.spans
    )


def most_taken(leases: Sequence[PlannedLease], spans: Sequence[Span]) -> int:
    """The most units that leases take at any one instant of these stretches."""
    return max(_most_within(leases, start_s, end_s) for start_s, end_s in spans)


def _most_within(leases: Sequence[PlannedLease], start_s: int, end_s: int) -> int:
    changes: Counter[int] = Counter()
    for lease in leases:
        for begin_s, stop_s in lease.spans:
            if begin_s < end_s and start_s < stop_s:
                changes[max(begin_s, start_s)] += lease.units
                changes[stop_s] -= lease.units
    return max(accumulate(changes[at_s] for at_s in sorted(changes)), default=0)


def hundredths(value: int) -> str:
    return f"{value // 100}.{value % 100:02}"


def thousandths(value: int) -> str:
    return f"{value // 1000}.{value % 1000:03}"
