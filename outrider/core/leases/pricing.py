"""What a lease costs, in whole thousandths of the site's unit of money.

A price is the sum over the lease's hours of units times time times the rate, with the surcharges of the
hours; on the sum come the surcharges of the whole lease: for load, for short notice, and the discount
(a negative one) of a lease that may yield. Each surcharge is a small class with a Protocol of one method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

HOUR_S = 3600
DAY_S = 24 * HOUR_S


class HourRate(Protocol):
    """A surcharge by time."""

    def percent_at(self, at_s: int) -> int:
        """What is added at an instant; less than nothing is a discount. It changes only at full hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What a lease's price may depend on beside its hours."""

    notice_s: int
    load_percent: int
    may_yield: bool


class Surcharge(Protocol):
    """A surcharge on a whole lease."""

    def percent(self, circumstances: Circumstances) -> int:
        """What is added; less than nothing is a discount."""


@dataclass(frozen=True, slots=True)
class ByHourOfDay:
    """24 surcharges, from midnight on; midnight is so many hours before a multiple of 24 hours."""

    percents: tuple[int, ...]
    ahead_hours: int = 0

    def __post_init__(self) -> None:
        if len(self.percents) != 24 or min(self.percents) < -100:
            raise ValueError(f"{len(self.percents)} surcharges by the hour: give 24, none below -100")

    def percent_at(self, at_s: int) -> int:
        return self.percents[(at_s // HOUR_S + self.ahead_hours) % 24]


@dataclass(frozen=True, slots=True)
class ByLoad:
    """Steps: from which percentage of the machine that others have on, which surcharge; the last counts."""

    steps: tuple[tuple[int, int], ...]

    def percent(self, circumstances: Circumstances) -> int:
        reached = [added for from_percent, added in self.steps if circumstances.load_percent >= from_percent]
        return reached[-1] if reached else 0


@dataclass(frozen=True, slots=True)
class ByNotice:
    """Steps: within how long of the request it starts, which surcharge; the first that holds counts."""

    steps: tuple[tuple[int, int], ...]

    def percent(self, circumstances: Circumstances) -> int:
        return next((added for within_s, added in self.steps if circumstances.notice_s < within_s), 0)


@dataclass(frozen=True, slots=True)
class ForYielding:
    """What may yield is cheaper."""

    discount_percent: int

    def percent(self, circumstances: Circumstances) -> int:
        return -self.discount_percent if circumstances.may_yield else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """A rate for a unit for an hour, and surcharges. Without these the price is fixed."""

    rate: int
    hours: tuple[HourRate, ...] = ()
    surcharges: tuple[Surcharge, ...] = ()

    def price(
        self,
        units: int,
        spans: Sequence[tuple[int, int]],
        *,
        notice_s: int,
        load_percent: int,
        may_yield: bool,
    ) -> int:
        """Rounded up to a thousandth, once."""
        circumstances = Circumstances(notice_s=notice_s, load_percent=load_percent, may_yield=may_yield)
        percent = 100 + sum(each.percent(circumstances) for each in self.surcharges)
        # Rate times seconds times hundredths of the hour's surcharge.
        raw = sum(self._weighted_s(start_s, end_s) for start_s, end_s in spans)
        total = units * self.rate * raw * max(0, percent)
        return -(-total // (HOUR_S * 100 * 100))

    def _weighted_s(self, start_s: int, end_s: int) -> int:
        """Seconds of an interval, each counted with the percentage of its hour."""
        if not self.hours:
            return 100 * (end_s - start_s)
        days = (end_s - start_s) // DAY_S
        if days > 1 and all(isinstance(each, ByHourOfDay) for each in self.hours):
            # One day costs what another does.
            rest_s = start_s + days * DAY_S
            return days * self._weighted_s(start_s, start_s + DAY_S) + self._weighted_s(rest_s, end_s)
        total, at_s = 0, start_s
        while at_s < end_s:
            until_s = min(end_s, (at_s // HOUR_S + 1) * HOUR_S)
            percent = max(0, 100 + sum(each.percent_at(at_s) for each in self.hours))
            total += percent * (until_s - at_s)
            at_s = until_s
        return total
