"""Policies by users by systems, over draws: each run alone, and all of them as rows with 95 % intervals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from outrider.sim.experiments.parallel import Progress, in_parallel
from outrider.sim.leases.injection import Injection, LogPiece, best_effort, injected, mixed_with
from outrider.sim.leases.measures import METRICS, LeaseMeasures, measure_leases
from outrider.sim.leases.systems import SystemTerms, site
from outrider.sim.leases.users import Lessees
from outrider.sim.workload.formats.swf import SwfLog, read_log
from outrider.sim.workload.options.experiment import Estimate, estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseCase:
    """Everything that one run depends on. Runs of one seed have the same jobs and the same wishes.

    The seed also says which days of the log are played: seed 1 those from `from_day` on, seed 2 those after
    them, and so on; behind the log's end it begins anew.
    """

    log: str
    from_day: int = 30
    days: int = 30
    processors_per_node: int = 1
    injection: Injection = field(default_factory=Injection)
    system: str = "suspend"
    policy: str = "all"
    users: str = "steadfast"
    premium_percent: int = 50
    waiting_price: int = 10
    images: int = 0
    terms: SystemTerms = field(default_factory=SystemTerms)
    seed: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRow:
    """The draws of one case: every metric as a mean with a 95 % interval.

    `slowdown_ratio` and `completion_ratio` compare with the same system, jobs and draw without reservations;
    `slowdown_pooled` does so once for the jobs of all draws, so that a draw of few slow jobs counts little;
    `worth_gain` is the worth less that of another policy with the same users and draw, if one was named.
    """

    case: LeaseCase
    seeds: int
    metrics: dict[str, Estimate]


def run_case(case: LeaseCase) -> LeaseMeasures:
    """One run."""
    log = _log(case.log)
    piece = LogPiece(
        log=log,
        name=os.path.basename(case.log),
        from_day=_first_day(case, log),
        days=case.days,
        processors_per_node=case.processors_per_node,
    )
    nodes, length_s = piece.nodes, piece.length_s
    jobs = best_effort(piece, images=case.images, seed=case.seed)
    leases = injected(case.injection, nodes=len(nodes), length_s=length_s, seed=case.seed, images=case.images)
    trace = mixed_with(piece.name, jobs, leases, nodes)
    users = Lessees(model=case.users, seed=f"{case.seed}/users", premium_percent=case.premium_percent)
    terms = replace(case.terms, has_images=case.images > 0)
    world = site(case.system, case.policy, terms, trace, users)
    outcome = world.run()
    return measure_leases(
        outcome,
        jobs,
        users.stories,
        length_s=length_s,
        lost=world.lost,
        rate_bytes_per_s=world.setup.rate_bytes_per_s,
        waiting_price=case.waiting_price,
    )


def alone(case: LeaseCase) -> LeaseCase:
    """The same without anybody who wants a reservation: what the ratios are over."""
    nobody = Injection(work_percent=0)
    return replace(case, injection=nobody, policy="all", users="steadfast", premium_percent=50)


def run_cases(
    cases: Sequence[LeaseCase],
    *,
    seeds: Sequence[int],
    against: str | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> list[LeaseRow]:
    """Every case with every seed, and what that is compared with: no reservations, and maybe a policy."""
    wanted: dict[LeaseCase, None] = {}
    for case in cases:
        for seed in seeds:
            own = replace(case, seed=seed)
            wanted[own] = wanted[alone(own)] = None
            if against is not None:
                wanted[replace(own, policy=against)] = None
    order = list(wanted)
    found = in_parallel(run_case, [(each,) for each in order], workers=workers, on_progress=on_progress)
    measured = dict(zip(order, found, strict=True))
    return [row_of(case, seeds, measured, against) for case in cases]


def row_of(
    case: LeaseCase,
    seeds: Sequence[int],
    measured: dict[LeaseCase, LeaseMeasures],
    against: str | None = None,
) -> LeaseRow:
    own = [measured[replace(case, seed=seed)] for seed in seeds]
    others = [measured[alone(replace(case, seed=seed))] for seed in seeds]
    metrics = {name: estimate([float(getattr(each, name)) for each in own]) for name in METRICS}
    pairs = list(zip(own, others, strict=True))
    metrics["slowdown_ratio"] = estimate([mine.slowdown / other.slowdown for mine, other in pairs])
    metrics["slowdown_pooled"] = ratio_of_sums(
        [(mine.jobs * mine.slowdown, other.jobs * other.slowdown) for mine, other in pairs]
    )
    metrics["completion_ratio"] = estimate(
        [mine.all_best_effort_h / other.all_best_effort_h for mine, other in pairs]
    )
    if against is not None:
        rivals = [measured[replace(case, seed=seed, policy=against)] for seed in seeds]
        gains = [mine.worth - rival.worth for mine, rival in zip(own, rivals, strict=True)]
        metrics["worth_gain"] = estimate(gains)
    return LeaseRow(case=case, seeds=len(own), metrics=metrics)


def ratio_of_sums(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """One sum over another, and how far it may be off: by what it would be without each pair (jackknife)."""
    above, below = (sum(side) for side in zip(*pairs, strict=True))
    if len(pairs) < 2:
        return Estimate(mean=above / below, error=0.0, half_width=0.0)
    count, whole = len(pairs), above / below
    without = [(above - mine) / (below - other) for mine, other in pairs]
    return replace(estimate([count * whole - (count - 1) * each for each in without]), mean=whole)


def _first_day(case: LeaseCase, log: SwfLog) -> int:
    """Where the seed's piece begins."""
    last_day = max(log.submit_s, default=0) // 86_400
    pieces = max(1, (last_day + 1 - case.from_day) // case.days)
    return case.from_day + (case.seed - 1) % pieces * case.days


@lru_cache(maxsize=1)
def _log(path: str) -> SwfLog:
    """Read once in each process."""
    return read_log(path)
