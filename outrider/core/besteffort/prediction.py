"""How long best effort will take, as far as can be told now: for admission that protects it.

The machine is looked at as one pool of processors: leases have their stretches, whoever runs goes on, and the
queue is laid behind them one after the other, each as early as it fits (conservative backfilling by what is
asked for). Images and the shape of nodes are left out, and so is whatever nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from outrider.core.besteffort.board import BestEffortRun, QueueBoard
from outrider.core.besteffort.waiting import WaitingWorkspace
from outrider.core.leases.admission import PlannedLease
from outrider.core.nodes.free_profile import FreeProfile

SHORTEST_S = 10
"""The bound of the bounded slowdown: what is shorter counts as that long."""

MOST_PREDICTED = 1000
"""Of a longer queue only so many are laid out, from its front."""


def slowdown_percent(
    board: QueueBoard,
    waiting: Iterable[WaitingWorkspace],
    leases: Iterable[PlannedLease],
    unit: str,
    now_s: int,
) -> int:
    """The mean bounded slowdown of all that runs and waits, in hundredths; 100 if there is nothing."""
    capacity = sum(node.capacity[unit] for node in board.book.timeline.nodes)
    profile = FreeProfile(capacity)
    profile.forget_before(now_s)
    for lease in leases:
        for start_s, end_s in lease.spans:
            profile.add(start_s, end_s, -lease.units)
    slowdowns = [
        _slowdown(end_s - run.submitted_s, run.workspace.duration_s)
        for run, end_s in _runs(board, profile, unit, now_s)
    ]
    for each in islice(waiting, MOST_PREDICTED):
        workspace = each.workspace
        count = workspace.instances if workspace.is_parallel else 1
        units, times = count * workspace.resources[unit], 1 if workspace.is_parallel else each.left
        for _ in range(min(times, MOST_PREDICTED)):
            end_s = _lay(profile, units, workspace.duration_s, capacity, now_s)
            slowdowns.append(_slowdown(end_s - each.submitted_s, workspace.duration_s))
    return sum(slowdowns) // len(slowdowns) if slowdowns else 100


def _runs(
    board: QueueBoard, profile: FreeProfile, unit: str, now_s: int
) -> Iterable[tuple[BestEffortRun, int]]:
    """Every run with its end: those that have begun first."""
    capacity = sum(node.capacity[unit] for node in board.book.timeline.nodes)
    for run in sorted(board.runs.values(), key=lambda run: (not run.has_begun, run.order, run.index)):
        done_s = sum(max(0, min(each.end_s, now_s) - each.start_s - each.resume_s) for each in run.segments)
        left_s = max(1, run.workspace.duration_s - done_s)
        yield run, _lay(profile, run.together * run.workspace.resources[unit], left_s, capacity, now_s)


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
