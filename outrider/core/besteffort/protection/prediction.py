"""How long best effort will take, as far as can be told now: for admission that protects it.

The machine is looked at as one pool of processors: leases have their stretches, whoever runs goes on, and the
queue is laid behind them one after the other, each as early as it fits (conservative backfilling by what is
asked for). Images and the shape of nodes are left out, and so is whatever nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from outrider.core.besteffort.board import QueueBoard
from outrider.core.besteffort.waiting import WaitingWorkspace
from outrider.core.leases.admission import PlannedLease, Span
from outrider.core.nodes.free_profile import FreeProfile

SHORTEST_S = 10
"""The bound of the bounded slowdown: what is shorter counts as that long."""

MOST_PREDICTED = 1000
"""Of a longer queue only so many are laid out, from its front."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedJob:
    """Best effort as it is laid out: so many processors for `left_s` of `duration_s`; so many `times`."""

    submitted_s: int
    duration_s: int
    left_s: int
    units: int
    times: int = 1


def pool_slowdown_percent(
    capacity: int,
    leases: Iterable[tuple[int, Span]],
    runs: Iterable[QueuedJob],
    waiting: Iterable[QueuedJob],
    now_s: int,
) -> int:
    """The mean bounded slowdown of all that runs and waits, in hundredths; 100 if there is nothing.

    `leases` are processors with when they are taken; runs and what waits are in their order.
    """
    profile = FreeProfile(capacity)
    profile.forget_before(now_s)
    for units, (start_s, end_s) in leases:
        profile.add(start_s, end_s, -units)
    slowdowns: list[int] = []
    for job in (*runs, *islice(waiting, MOST_PREDICTED)):
        for _ in range(min(job.times, MOST_PREDICTED)):
            end_s = _lay(profile, job.units, job.left_s, capacity, now_s)
            slowdowns.append(_slowdown(end_s - job.submitted_s, job.duration_s))
    return sum(slowdowns) // len(slowdowns) if slowdowns else 100


def slowdown_percent(
    board: QueueBoard,
    waiting: Iterable[WaitingWorkspace],
    leases: Iterable[PlannedLease],
    unit: str,
    now_s: int,
) -> int:
    """The same of the simulator's queue."""
    return pool_slowdown_percent(
        sum(node.capacity[unit] for node in board.book.timeline.nodes),
        [(lease.units, span) for lease in leases for span in lease.spans],
        _runs(board, unit, now_s),
        (_waiting(each, unit) for each in waiting),
        now_s,
    )


def wanted_units(board: QueueBoard, waiting: Iterable[WaitingWorkspace], unit: str, now_s: int) -> int:
    """What the simulator's queue runs on and waits for."""
    jobs = chain(_runs(board, unit, now_s), (_waiting(each, unit) for each in waiting))
    return sum(job.units * job.times for job in jobs)


def _waiting(each: WaitingWorkspace, unit: str) -> QueuedJob:
    workspace = each.workspace
    count = workspace.instances if workspace.is_parallel else 1
    return QueuedJob(
        submitted_s=each.submitted_s,
        duration_s=workspace.duration_s,
        left_s=workspace.duration_s,
        units=count * workspace.resources[unit],
        times=1 if workspace.is_parallel else each.left,
    )


def _runs(board: QueueBoard, unit: str, now_s: int) -> Iterator[QueuedJob]:
    """Every run: those that have begun first."""
    for run in sorted(board.runs.values(), key=lambda run: (not run.has_begun, run.order, run.index)):
        done_s = sum(max(0, min(each.end_s, now_s) - each.start_s - each.resume_s) for each in run.segments)
        yield QueuedJob(
            submitted_s=run.submitted_s,
            duration_s=run.workspace.duration_s,
            left_s=max(1, run.workspace.duration_s - done_s),
            units=run.together * run.workspace.resources[unit],
        )


def _lay(profile: FreeProfile, units: int, duration_s: int, capacity: int, now_s: int) -> int:
    """Take the first place there is; its end."""
    units = min(units, capacity)
    if not units:
        return now_s + duration_s
    start_s = profile.earliest_s(now_s, duration_s, units)
    profile.add(start_s, start_s + duration_s, -units)
    return start_s + duration_s


def _slowdown(turnaround_s: int, duration_s: int) -> int:
    return max(100, 100 * turnaround_s // max(SHORTEST_S, duration_s))
