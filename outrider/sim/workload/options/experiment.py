"""Schemes run on generated requests, and what came of them: the paper's Figures 2 to 4 as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from outrider.core.model import Node
from outrider.core.options.plan import provisioner
from outrider.core.options.priority import FactorReading, PlanOrder
from outrider.core.options.request import Request
from outrider.core.options.schemes import Rules, Scheme
from outrider.sim.experiments.parallel import Progress, in_parallel
from outrider.sim.workload.formats.swf import SwfLog, read_log
from outrider.sim.workload.options.generators import (
    INTERVAL_S,
    Drawing,
    Load,
    Overshoot,
    RequestKind,
    cluster,
    requests,
)
from outrider.sim.workload.options.moldable import Model, machine, moldable_requests

LOADS = tuple(Load(average=average) for average in (0.8, 1.0, 1.2, 1.4))
SPIKES = tuple(
    Load(low=low, high=high, pattern=pattern)
    for low, high in ((0.2, 1.8), (0.3, 1.7))
    for pattern in (1, 2, 3, 4, 5)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A scheme with its readings, under the name by which tables show it."""

    name: str
    rules: Rules


def ways(reading: FactorReading = FactorReading.PLAIN, *, all_plans: bool = False) -> tuple[Way, ...]:
    """All schemes: the paper's, the fallback, and plans in their orders."""
    orders = PlanOrder if all_plans else (PlanOrder.FACTOR,)
    found = []
    for scheme in Scheme:
        if scheme not in (Scheme.PLAN, Scheme.PLAN_SCALED):
            found.append(Way(name=scheme.value, rules=Rules(scheme=scheme, reading=reading)))
            continue
        for order in orders:
            name = scheme.value if order is PlanOrder.FACTOR else f"{scheme.value}, {order.value}"
            found.append(Way(name=name, rules=Rules(scheme=scheme, reading=FactorReading.PLAIN, order=order)))
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """One scheme on one draw. Who still waits at the end counts neither as served nor as discarded."""

    decided: int
    served: int
    value: float
    served_value: float
    wait_s: float
    utilisation: float

    @property
    def discarded_percent(self) -> float:
        return 100 * (1 - self.served / self.decided) if self.decided else 0.0

    @property
    def benefit_percent(self) -> float:
        return 100 * self.served_value / self.value if self.value else 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over seeds, with its standard error and half the width of its 95 % confidence interval."""

    mean: float
    error: float
    half_width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionsCell:
    """One scheme under one load."""

    workload: str
    load: str
    scheme: str
    trials: int
    discarded: Estimate
    benefit: Estimate
    wait_min: Estimate
    utilisation: Estimate


def run_trial(
    kind: RequestKind,
    load: Load,
    seed: int,
    intervals: int,
    overshoot: Overshoot,
    drawing: Drawing,
    rules: Rules,
) -> TrialResult:
    """One scheme on one draw of requests."""
    drawn = _drawn(kind, load, seed, intervals, overshoot, drawing)
    return carry_out(drawn, rules, cluster(), is_at_once=drawing is not Drawing.LITERAL)


@lru_cache(maxsize=2)
def _drawn(
    kind: RequestKind, load: Load, seed: int, intervals: int, overshoot: Overshoot, drawing: Drawing
) -> list[list[Request]]:
    return requests(kind, load, seed, intervals, nodes=cluster(), overshoot=overshoot, drawing=drawing)


def run_moldable(
    path: str, processors: int, model: Model, window: int, jobs: int, rules: Rules
) -> TrialResult:
    """One scheme on one stretch of a log."""
    return carry_out(_cut(path, processors, model, window, jobs), rules, machine(processors))


@lru_cache(maxsize=1)
def _log(path: str) -> SwfLog:
    return read_log(path)


@lru_cache(maxsize=2)
def _cut(path: str, processors: int, model: Model, window: int, jobs: int) -> list[list[Request]]:
    log = _log(path)
    rows = range(window * jobs, min(len(log), (window + 1) * jobs))
    return moldable_requests(log, rows, processors, model, window)


def carry_out(
    arrivals: Sequence[Sequence[Request]], rules: Rules, nodes: Sequence[Node], *, is_at_once: bool = False
) -> TrialResult:
    """What a scheme makes of requests that arrive in intervals; `is_at_once`: they are looked at when theirs
    begins, and not when it ends."""
    site = provisioner(nodes, rules)
    if not is_at_once:
        site.step(0, ())
    for number, arrived in enumerate(arrivals, 0 if is_at_once else 1):
        site.step(number * INTERVAL_S, arrived)
    site.finish()
    served, discarded = site.outcome.served, site.outcome.discarded
    value = sum(each.request.value for each in served)
    horizon_s = len(arrivals) * INTERVAL_S
    cpus = sum(node.capacity["cpus"] for node in nodes) * horizon_s
    used = sum(
        each.option.total("cpus") * max(0, min(each.end_s, horizon_s) - min(each.start_s, horizon_s))
        for each in served
    )
    return TrialResult(
        decided=len(served) + len(discarded),
        served=len(served),
        value=value + sum(each.value for each in discarded),
        served_value=value,
        wait_s=fmean(max(0, each.start_s - each.request.arrival_s) for each in served) if served else 0.0,
        utilisation=100 * used / cpus if cpus else 0.0,
    )


def experiment(
    kind: RequestKind,
    loads: Sequence[Load],
    chosen: Sequence[Way],
    *,
    seeds: int,
    first_seed: int = 1,
    intervals: int = 1000,
    overshoot: Overshoot = Overshoot.CARRIED,
    drawing: Drawing = Drawing.LITERAL,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> tuple[OptionsCell, ...]:
    """Each scheme under each load, over so many draws."""
    pieces: list[tuple[object, ...]] = [
        (kind, load, seed, intervals, overshoot, drawing, way.rules)
        for load in loads
        for seed in range(first_seed, first_seed + seeds)
        for way in chosen
    ]
    results = in_parallel(run_trial, pieces, workers=workers, on_progress=on_progress)
    found = []
    for place, load in enumerate(loads):
        for which, way in enumerate(chosen):
            first = place * seeds * len(chosen) + which
            trials = results[first : first + seeds * len(chosen) : len(chosen)]
            name = kind.value if drawing is Drawing.LITERAL else f"{kind.value}, {drawing.value}"
            found.append(_cell(name, load.name, way.name, trials))
    return tuple(found)


def moldable(
    path: str,
    model: Model,
    chosen: Sequence[Way],
    *,
    windows: int,
    jobs: int,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> tuple[OptionsCell, ...]:
    """Each scheme on so many stretches of a log, spread over all of it."""
    log = _log(path)
    processors = log.max_processors or max(log.processors)
    last = len(log) // jobs
    if last < windows:
        raise ValueError(
            f"{path}: {len(log)} jobs are not {windows} stretches of {jobs}; take fewer or shorter"
        )
    places = [place * last // windows for place in range(windows)]
    pieces: list[tuple[object, ...]] = [
        (path, processors, model, window, jobs, way.rules) for window in places for way in chosen
    ]
    results = in_parallel(run_moldable, pieces, workers=workers, on_progress=on_progress)
    return tuple(
        _cell(f"{Path(path).name}, {model.value}", "as it is", way.name, results[which :: len(chosen)])
        for which, way in enumerate(chosen)
    )


def _cell(workload: str, load: str, scheme: str, trials: Sequence[TrialResult]) -> OptionsCell:
    return OptionsCell(
        workload=workload,
        load=load,
        scheme=scheme,
        trials=len(trials),
        discarded=estimate([each.discarded_percent for each in trials]),
        benefit=estimate([each.benefit_percent for each in trials]),
        wait_min=estimate([each.wait_s / 60 for each in trials]),
        utilisation=estimate([each.utilisation for each in trials]),
    )


_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
            2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
            2.045)  # fmt: skip
"""Student's t for 95 %, for 1 to 29 degrees of freedom."""


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of some draws and how far it may be off; one draw alone says nothing of that."""
    if len(values) < 2:
        return Estimate(mean=fmean(values), error=0.0, half_width=0.0)
    error = stdev(values) / sqrt(len(values))
    t = _STUDENT[len(values) - 2] if len(values) - 2 < len(_STUDENT) else 1.96
    return Estimate(mean=fmean(values), error=error, half_width=t * error)
