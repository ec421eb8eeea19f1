"""What a schedule was like: waiting, slowdown, utilisation, as the field counts them.

Pure functions over columns of integers, one index a job. Only ratios are floats, and
they are computed last. The conventions are those of the Parallel Workloads Archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Runs shorter than this count as this long, so that a one-second job that waited a
# minute does not outweigh everything else.
BOUND_S = 10
# A bounded slowdown from which on a job belongs to the tail.
TAIL = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A column in five numbers; percentiles are values that occur (nearest rank)."""

    mean: float
    median: float
    p90: float
    p99: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        if not values:
            raise ValueError("there is nothing to summarise: the log has no jobs left")
        ordered = sorted(values)
        return cls(
            mean=sum(ordered) / len(ordered),
            median=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p99=percentile(ordered, 99),
            maximum=ordered[-1],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """A schedule's report."""

    jobs: int
    waiting_s: Summary
    turnaround_s: Summary
    slowdown: Summary
    bounded_slowdown: Summary
    tail_jobs: int
    makespan_s: int
    utilisation: float


def measure(
    submit_s: Sequence[int],
    start_s: Sequence[int],
    end_s: Sequence[int],
    processors: Sequence[int],
    *,
    capacity: int,
    trim_percent: int = 0,
) -> Measures:
    """Everything at once, for jobs in order of submission.

    Trimming leaves the first and the last jobs out of what is counted by the job, since
    they met an empty or a draining machine. Makespan and utilisation are about the whole
    schedule.
    """
    kept = trimmed(len(submit_s), trim_percent)
    waits = waiting_s(submit_s, start_s)[kept]
    runs = [end - start for start, end in zip(start_s, end_s, strict=True)][kept]
    pairs = list(zip(waits, runs, strict=True))
    bounded = [bounded_slowdown(wait, run) for wait, run in pairs]
    first_s, last_s = min(submit_s, default=0), max(end_s, default=0)
    return Measures(
        jobs=len(waits),
        waiting_s=Summary.of(waits),
        turnaround_s=Summary.of([wait + run for wait, run in pairs]),
        slowdown=Summary.of([slowdown(wait, run) for wait, run in pairs]),
        bounded_slowdown=Summary.of(bounded),
        tail_jobs=sum(each >= TAIL for each in bounded),
        makespan_s=last_s - first_s,
        utilisation=utilisation(
            start_s, end_s, processors, capacity=capacity, from_s=first_s, until_s=last_s
        ),
    )


def waiting_s(submit_s: Sequence[int], start_s: Sequence[int]) -> list[int]:
    """From submission to start."""
    return [start - submit for submit, start in zip(submit_s, start_s, strict=True)]


def slowdown(wait_s: int, run_s: int) -> float:
    """Turnaround over run time. A job that ran for no time counts as one of 1 s."""
    run_s = max(run_s, 1)
    return (wait_s + run_s) / run_s


def bounded_slowdown(wait_s: int, run_s: int, bound_s: int = BOUND_S) -> float:
    """Turnaround over run time, where no run counts as shorter than the bound."""
    return max(1.0, (wait_s + run_s) / max(run_s, bound_s))


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent of all do not exceed."""
    if not 0 < percent <= 100:
        raise ValueError(f"the percentile {percent} does not exist: use 1 to 100")
    rank = -(-len(ordered) * percent // 100)
    return ordered[rank - 1]


def trimmed(count: int, percent: int) -> slice:
    """The jobs that remain without the first and the last `percent` of them."""
    if not 0 <= percent < 50:
        raise ValueError(f"trimming {percent} % at either end leaves nothing: use 0 to 49")
    cut = count * percent // 100
    return slice(cut, count - cut)


def utilisation(
    start_s: Sequence[int],
    end_s: Sequence[int],
    processors: Sequence[int],
    *,
    capacity: int,
    from_s: int,
    until_s: int,
) -> float:
    """The share of the processors in use, as a mean over the time from one to the other."""
    if from_s >= until_s:
        return 0.0
    used = sum(
        width * max(0, min(end, until_s) - max(start, from_s))
        for start, end, width in zip(start_s, end_s, processors, strict=True)
    )
    return used / (capacity * (until_s - from_s))
