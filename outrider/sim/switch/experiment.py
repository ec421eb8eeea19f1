"""Section 5.1 of the paper: what a switch costs beside First Fit Decreasing, over many random sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from outrider.core.switch.cost import longest_cost, sum_cost
from outrider.core.switch.model import Target
from outrider.core.switch.planner import Improve, plan_switch
from outrider.core.switch.selection import Decreasing
from outrider.core.switch.stages import plan_stages
from outrider.core.switch.timing import ActionPace, continuous, duration_s, in_stages
from outrider.sim.experiments.parallel import Progress, in_parallel
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.situations import MIXES, draw

NODES = 200
SIZES = tuple(range(54, 487, 54))
PAPER_REDUCTION_PERCENT = 95


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One random site. Costs are in MB; the second reading of a cost counts the longest of each stage."""

    mix: str
    machines: int
    seed: int
    cost: int
    packed_cost: int
    longest: int
    packed_longest: int
    bound: int
    stages: int
    actions: int
    in_stages_s: int
    continuous_s: int
    by: str

    @property
    def is_optimal(self) -> bool:
        return self.cost == self.bound

    @property
    def reduction_percent(self) -> float:
        return _reduction(self.cost, self.packed_cost)

    @property
    def longest_reduction_percent(self) -> float:
        return _reduction(self.longest, self.packed_longest)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReductionRow:
    """All samples of one mix and size. Errors are standard errors of the means."""

    mix: str
    machines: int
    samples: int
    reduction_percent: float
    reduction_error: float
    longest_reduction_percent: float
    optimal: int
    gap_percent: float
    """By how much the costs together are above their bounds."""
    stages: float
    in_stages_s: float
    continuous_s: float


class WrongPlan(Exception):
    """The check found a fault in a plan: a fault of the planner."""


def _reduction(cost: int, before: int) -> float:
    return 100 * (1 - cost / before) if before else 0.0


def sample(nodes: int, machines: int, mix: str, seed: int, order: str, effort: float) -> Sample:
    """Plan one site in both ways, and check every instant of both plans. `effort` 0: no solver."""
    situation = draw(nodes, machines, MIXES[mix], seed)
    switch = plan_switch(
        situation, range(len(situation.jobs)), order=Decreasing[order], improve=solver(effort)
    )
    packed = plan_stages(situation, Target(hosts=switch.selection.hosts))
    pace, members = ActionPace(), situation.machines
    timed = continuous(situation, switch.plan, pace)
    for plan, hosts in (
        (staged(switch.plan), switch.target.hosts),
        (timed, switch.target.hosts),
        (staged(packed), switch.selection.hosts),
    ):
        if found := faults(situation, plan, hosts):
            raise WrongPlan(f"{mix}, {machines} machines, seed {seed}: {found[0]}")
    return Sample(
        mix=mix,
        machines=machines,
        seed=seed,
        cost=switch.cost,
        packed_cost=sum_cost(packed, members),
        longest=longest_cost(switch.plan, members),
        packed_longest=longest_cost(packed, members),
        bound=switch.bound,
        stages=len(switch.plan.stages),
        actions=len(switch.plan.actions),
        in_stages_s=duration_s(in_stages(switch.plan, members, pace)),
        continuous_s=duration_s(timed),
        by=switch.by,
    )


def solver(effort: float) -> Improve | None:
    if not effort:
        return None
    from outrider.solver.placement import improver

    return improver(effort)


def samples(
    *,
    nodes: int,
    sizes: Sequence[int],
    mixes: Sequence[str],
    seeds: Sequence[int],
    order: Decreasing,
    effort: float,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> list[Sample]:
    """Every mix with every size and every seed, on all cores."""
    pieces = [
        (nodes, size, mix, seed, order.name, effort) for mix in mixes for size in sizes for seed in seeds
    ]
    return in_parallel(sample, pieces, workers=workers, on_progress=on_progress)


def rows(found: Sequence[Sample]) -> list[ReductionRow]:
    return [_row(mix, size, group) for (mix, size), group in _groups(found)]


def _groups(found: Sequence[Sample]) -> Iterator[tuple[tuple[str, int], list[Sample]]]:
    groups: dict[tuple[str, int], list[Sample]] = {}
    for each in found:
        groups.setdefault((each.mix, each.machines), []).append(each)
    yield from groups.items()


def _row(mix: str, size: int, group: Sequence[Sample]) -> ReductionRow:
    reductions = [each.reduction_percent for each in group]
    bound = sum(each.bound for each in group)
    return ReductionRow(
        mix=mix,
        machines=size,
        samples=len(group),
        reduction_percent=fmean(reductions),
        reduction_error=stdev(reductions) / sqrt(len(group)) if len(group) > 1 else 0.0,
        longest_reduction_percent=fmean(each.longest_reduction_percent for each in group),
        optimal=sum(each.is_optimal for each in group),
        gap_percent=100 * (sum(each.cost for each in group) / bound - 1) if bound else 0.0,
        stages=fmean(each.stages for each in group),
        in_stages_s=fmean(each.in_stages_s for each in group),
        continuous_s=fmean(each.continuous_s for each in group),
    )
