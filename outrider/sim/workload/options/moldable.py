"""Requests with several options made of a log's jobs: how fast each were on other numbers of processors.

By G. Amdahl's law, or by A. Downey's model ("A model for speedup of parallel programs", 1997) with an average
parallelism A and its variance σ. A log says neither, so both are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random

from outrider.core.model import Node, Resources, Workspace
from outrider.core.options.request import Option, Request
from outrider.sim.workload.formats.swf import SwfLog
from outrider.sim.workload.options.generators import INTERVAL_S
from outrider.sim.workload.trace import Trace, TraceSubmission

SIZES = (0.5, 1.0, 2.0, 4.0)
"""Of the processors that the job had."""


class Model(Enum):
    """Which law says how much faster a job is on more processors."""

    AMDAHL = "amdahl"
    DOWNEY = "downey"


def amdahl(parallel: float, processors: int) -> float:
    """The speedup of what is parallel to such a part."""
    return 1 / ((1 - parallel) + parallel / processors)


def downey(average: float, variance: float, processors: int) -> float:
    """Downey's speedup, for variances below and from 1 on."""
    n, a, s = processors, average, variance
    if s < 1:
        if n <= a:
            return a * n / (a + s / 2 * (n - 1))
        if n <= 2 * a - 1:
            return a * n / (s * (a - 0.5) + n * (1 - s / 2))
        return a
    if n <= a + a * s - s:
        return n * a * (s + 1) / (s * (n + a - 1) + a)
    return a


def _speedup(model: Model, processors: int, random: Random) -> Callable[[int], float]:
    """How one job scales: it was worth its user's while on the processors that it had."""
    if model is Model.AMDAHL:
        parallel = random.uniform(0.9, 0.999)
        return lambda count: amdahl(parallel, count)
    average, variance = max(1.0, processors * random.uniform(0.5, 2)), random.uniform(0, 2)
    return lambda count: downey(average, variance, count)


def machine(processors: int) -> tuple[Node, ...]:
    """Interchangeable processors: one node that has them all."""
    return (Node(name="all", capacity=Resources.of(cpus=processors)),)


def moldable_requests(
    log: SwfLog, rows: Sequence[int], processors: int, model: Model, seed: int
) -> list[list[Request]]:
    """Jobs of a log as requests that arrive within intervals, from the first one's on.

    A deadline is 2 to 4 times the longest time after the arrival, as in the paper; a value is what the job
    took, in processor-hours.
    """
    random = Random(f"{model.value} {seed}")
    usable = [row for row in rows if log.run_s[row] > 0 and 0 < log.processors[row] <= processors]
    if not usable:
        return []
    origin_s = min(log.submit_s[row] for row in usable)
    found: list[list[Request]] = []
    for row in sorted(usable, key=log.submit_s.__getitem__):
        arrival_s = log.submit_s[row] - origin_s
        while len(found) <= arrival_s // INTERVAL_S:
            found.append([])
        found[arrival_s // INTERVAL_S].append(
            _request(row, arrival_s, log.processors[row], log.run_s[row], processors, model, random)
        )
    return found


def moldable_trace(log: SwfLog, model: Model, *, name: str, seed: int = 1) -> Trace:
    """A log's jobs as reservations with options: each may begin at once and has to end by its deadline."""
    processors = log.max_processors or max(log.processors)
    submissions = []
    for arrived in moldable_requests(log, range(len(log)), processors, model, seed):
        for each in arrived:
            first = each.options[0]
            workspace = Workspace(
                name=each.name,
                instances=first.instances,
                resources=first.resources,
                duration_s=first.duration_s,
                start_s=each.arrival_s,
                finish_by_s=each.finish_by_s,
            )
            submissions.append(
                TraceSubmission(
                    at_s=each.arrival_s, workspace=workspace, run_s=first.duration_s, options=each.options[1:]
                )
            )
    nodes = tuple(Node(name=f"p{number}", capacity=_PROCESSOR) for number in range(1, processors + 1))
    return Trace(name=name, submissions=tuple(submissions), nodes=nodes)


_PROCESSOR = Resources.of(cpus=1)


def _request(
    row: int, arrival_s: int, size: int, run_s: int, most: int, model: Model, random: Random
) -> Request:
    speedup = _speedup(model, size, random)
    options: list[Option] = []
    for part in SIZES:
        count = min(most, max(1, round(size * part)))
        time_s = max(1, round(run_s * speedup(size) / speedup(count)))
        if not options or (count > options[-1].instances and time_s < options[-1].duration_s):
            options.append(Option(instances=count, resources=Resources.of(cpus=1), duration_s=time_s))
    return Request(
        name=f"j{row}",
        arrival_s=arrival_s,
        finish_by_s=arrival_s + INTERVAL_S + round(random.uniform(2, 4) * options[0].duration_s),
        value=size * run_s / 3600,
        options=tuple(options),
    )
