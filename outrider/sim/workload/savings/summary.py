"""What a replay comes to: totals, and the same by months."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from outrider.sim.workload.savings.records import Accounting, ImageMap
from outrider.sim.workload.savings.replay import (
    Cost,
    ImageNeed,
    SavingsSite,
    as_it_was,
    wants_of,
    with_outrider,
)

HOUR_S = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two ways, for some jobs: what the server sent, the node-hours that went into fetching, and
    the seconds from a submission until the image could be used."""

    sent_bytes: int
    lost_node_hours: float
    wait_mean_s: float
    wait_median_s: float
    wait_p95_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """`name` is a month, as 2026-11, or empty for all."""

    name: str
    jobs: int
    before: Side
    after: Side
    later_jobs: int
    """How many would have waited for longer than they did, images included."""

    @property
    def saved_bytes(self) -> int:
        return self.before.sent_bytes - self.after.sent_bytes

    @property
    def saved_node_hours(self) -> float:
        return self.before.lost_node_hours - self.after.lost_node_hours


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    whole: Period
    months: tuple[Period, ...]
    jobs_without_image: int
    jobs_without_nodes: int
    """Of those with an image, how many had to be put on nodes that are made up."""
    node_hours: float
    """All that the jobs with an image had."""
    passed_over: dict[str, int]


def savings_of(accounting: Accounting, images: ImageMap, site: SavingsSite) -> Savings:
    """Both ways, compared. Raises ValueError if no job wants an image."""
    wants, others = wants_of(accounting.jobs, images)
    if not wants:
        raise ValueError("no job fits a rule of the map")
    before, after = as_it_was(wants, site), with_outrider(wants, site)
    by_month: dict[str, list[int]] = {}
    for number, want in enumerate(wants):
        month = datetime.fromtimestamp(want.job.start_s, UTC).strftime("%Y-%m")
        by_month.setdefault(month, []).append(number)
    return Savings(
        whole=_period("", range(len(wants)), before, after),
        months=tuple(_period(name, by_month[name], before, after) for name in sorted(by_month)),
        jobs_without_image=others,
        jobs_without_nodes=sum(not want.job.nodes for want in wants),
        node_hours=sum(_node_s(want) for want in wants) / HOUR_S,
        passed_over=dict(accounting.passed_over),
    )


def _node_s(want: ImageNeed) -> int:
    return (want.job.end_s - want.job.start_s) * want.job.count


def _period(name: str, chosen: Sequence[int], before: Sequence[Cost], after: Sequence[Cost]) -> Period:
    return Period(
        name=name,
        jobs=len(chosen),
        before=_side([before[number] for number in chosen]),
        after=_side([after[number] for number in chosen]),
        later_jobs=sum(after[number].wait_s > before[number].wait_s for number in chosen),
    )


def _side(costs: Sequence[Cost]) -> Side:
    waits = sorted(each.wait_s for each in costs)
    return Side(
        sent_bytes=sum(each.bytes for each in costs),
        lost_node_hours=sum(each.lost_s for each in costs) / HOUR_S,
        wait_mean_s=sum(waits) / len(waits),
        wait_median_s=_quantile(waits, 0.5),
        wait_p95_s=_quantile(waits, 0.95),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share is not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
