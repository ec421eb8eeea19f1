"""A log of batch jobs run through the queue over a counted pool: who starts when.

Columns in, columns out: one list a field, one index a job. That is what a log reader
gives and what a hundred thousand jobs in a second need. No images and no nodes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from outrider.core.besteffort.counted import Block, CountedJob, CountedQueue, Policy, counted_queue

# Later than anything that a log can hold.
NEVER_S = 1 << 62

# Inclusive intervals of processor ids, sorted and disjoint.
Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """When each job of the log started and ended, in the log's order."""

    start_s: Sequence[int]
    end_s: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLog:
    """The four columns that decide a schedule, in order of submission."""

    submit_s: Sequence[int]
    run_s: Sequence[int]
    processors: Sequence[int]
    requested_s: Sequence[int]

    def __post_init__(self) -> None:
        columns = (self.submit_s, self.run_s, self.processors, self.requested_s)
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            raise ValueError(f"the log's columns have different lengths: {lengths}")

    def __len__(self) -> int:
        return len(self.submit_s)


def cleaned(rows: Iterable[tuple[int, int, int, int]]) -> BatchLog:
    """Turns rows of (submit, run, processors, requested) into what can be simulated.

    In these logs anything unknown is negative. A job without processors or without a
    run time is dropped. A missing estimate becomes the run time, a run beyond the
    estimate is cut at it (as a batch system does), and an estimate is at least 1 s.
    """
    kept = []
    for submit_s, run_s, processors, requested_s in rows:
        if processors < 1 or run_s < 0:
            continue
        if requested_s < 1:
            requested_s = run_s or 1
        kept.append((submit_s, min(run_s, requested_s), processors, requested_s))
    submits, runs, widths, requests = zip(*kept, strict=True) if kept else ((), (), (), ())
    return BatchLog(submit_s=submits, run_s=runs, processors=widths, requested_s=requests)


def run_batch(
    submit_s: Sequence[int],
    run_s: Sequence[int],
    processors: Sequence[int],
    requested_s: Sequence[int],
    *,
    capacity: int,
    policy: Policy,
    blocks: Sequence[Block] = (),
) -> BatchResult:
    """Runs the whole log under a policy, until its last job has ended."""
    log = BatchLog(submit_s=submit_s, run_s=run_s, processors=processors, requested_s=requested_s)
    return run_queue(log, counted_queue(policy, capacity=capacity, blocks=blocks), blocks)


def run_queue(log: BatchLog, queue: CountedQueue, blocks: Sequence[Block] = ()) -> BatchResult:
    """Feeds a log to a queue: completions, then submissions, then one decision an instant.

    A job that runs for 0 s gives its processors back within the instant of its start, and
    that instant gets another decision. The end of a block is an instant of its own,
    because a job may have been waiting for nothing else.
    """
    _check(log)
    count = len(log)
    arrivals = [*log.submit_s, NEVER_S]
    wakes = [*sorted({block.end_s for block in blocks if block.end_s > 0}), NEVER_S]
    starts, ends = [-1] * count, [-1] * count
    running: list[tuple[int, int, CountedJob]] = []
    arrived = ended = woken = 0
    while ended < count:
        now_s = min(arrivals[arrived], wakes[woken], running[0][0] if running else NEVER_S)
        while running and running[0][0] == now_s:
            queue.finished(heappop(running)[2], now_s)
            ended += 1
        while arrivals[arrived] == now_s:
            job = CountedJob(
                number=arrived,
                processors=log.processors[arrived],
                requested_s=log.requested_s[arrived],
            )
            queue.submit(job, now_s)
            arrived += 1
        if wakes[woken] == now_s:
            woken += 1
        for job in queue.schedule(now_s):
            number = job.number
            end_s = now_s + log.run_s[number]
            starts[number] = now_s
            ends[number] = end_s
            heappush(running, (end_s, number, job))
    return BatchResult(start_s=starts, end_s=ends)


def assign_processors(
    start_s: Sequence[int], end_s: Sequence[int], processors: Sequence[int]
) -> list[Intervals]:
    """Which processors each job had, as inclusive intervals: the lowest free ones.

    No decision needs this; it is for the pictures. A job of 0 s holds nothing for any
    time, so it is shown where it would have fitted and nobody has to wait for it.
    """
    # Within an instant: ends (0), then jobs of 0 s (1), then starts (2).
    events = []
    for index, (start, end) in enumerate(zip(start_s, end_s, strict=True)):
        if start == end:
            events.append((start, 1, index))
        else:
            events.append((end, 0, index))
            events.append((start, 2, index))
    events.sort()
    taken: list[Intervals] = [()] * len(processors)
    # The free processors as disjoint sorted intervals; nothing above the last is in use.
    free = [(0, sum(processors))]
    for _, kind, index in events:
        if kind == 0:
            free = joined_intervals([*free, *taken[index]])
            continue
        taken[index], rest = _lowest(free, processors[index])
        if kind == 2:
            free = rest
    return taken


def _check(log: BatchLog) -> None:
    previous_s = 0
    for index, submit_s in enumerate(log.submit_s):
        if submit_s < previous_s:
            raise ValueError(
                f"job {index} is submitted at {submit_s} s, after one at {previous_s} s: "
                f"sort the log by submission, from 0 s on"
            )
        previous_s = submit_s
    pairs = zip(log.run_s, log.requested_s, strict=True)
    for index, (run_s, requested_s) in enumerate(pairs):
        if not 0 <= run_s <= requested_s:
            raise ValueError(
                f"job {index} runs {run_s} s and asked for {requested_s} s: cut its run at its estimate"
            )


def _lowest(free: list[tuple[int, int]], count: int) -> tuple[Intervals, list[tuple[int, int]]]:
    """Splits the lowest `count` processors off the free intervals."""
    taken = []
    for place, (low, high) in enumerate(free):
        if high - low + 1 > count:
            if count:
                taken.append((low, low + count - 1))
            return tuple(taken), [(low + count, high), *free[place + 1 :]]
        taken.append((low, high))
        count -= high - low + 1
    if count:
        raise ValueError(f"{count} processors too few: two jobs overlap more than they can")
    return tuple(taken), []


def joined_intervals(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of disjoint intervals, neighbours made one."""
    union: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if union and union[-1][1] + 1 == low:
            union[-1] = (union[-1][0], high)
        else:
            union.append((low, high))
    return union
