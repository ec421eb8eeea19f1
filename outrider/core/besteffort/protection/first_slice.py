"""What protects best effort from leases: whom they keep waiting has a first slice of time at once.

Most of what leases cost best effort is the slowdown of few short jobs that wait, and most of those have asked
for hours: they fail, or are tests. Nobody knows them before they run, so each gets the time in which they
would be over, on nodes of long ones, which are suspended meanwhile. Who is not over by then waits again where
it was in the queue, and begins anew. (To suspend it was tried: its rest is bound to the nodes of its slice,
and wide jobs wait for days until these are free together.)

Bounds: each job has one such slice; a run makes way for others' at most `MOST_PAUSES` times, each for a slice
and what suspending takes; and whoever has a place in the future from the queue keeps it. Without leases there
are no slices. Images are not brought for one, so jobs that need an image have none; nor have those that may
not be stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.placement import RunPlacement
from outrider.core.besteffort.queue import BestEffortQueue
from outrider.core.besteffort.suspension import Segment, SegmentShare
from outrider.core.besteffort.suspension_notice import busy_until
from outrider.core.besteffort.waiting import WaitingWorkspace
from outrider.core.nodes.selection import Fit

MOST_PAUSES = 3
"""So often a run makes way for others' slices."""
LONGER = 10
"""A run that makes way asks for so many times a slice beyond what it has done."""
WHOLE = 5
"""Who asks for no more than so many times a slice has all of it at once."""
AHEAD_S = 3_600
"""So long before it begins a lease keeps others waiting: what cannot end before it does not begin."""
LATEST_S = 120
"""A slice begins so soon, or not at all: what makes way has to be written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceRules:
    """How long a first slice is. `is_always`: also without leases, to compare with."""

    length_s: int = 120
    is_always: bool = False

    def __post_init__(self) -> None:
        if self.length_s < 1:
            raise ValueError(f"a first slice of {self.length_s} s: use 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class SlicePlace:
    """Where a slice can be, once all that runs there has made way: one instance on each node."""

    fits: tuple[Fit, ...]
    start_s: int
    end_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ground:
    """The nodes on which a slice can be, the best first, and when what runs on nodes could be written."""

    nodes: list[int]
    busy: dict[int, int]


class FirstSlices:
    """Who has a first slice, and where."""

    def __init__(self, queue: BestEffortQueue, rules: SliceRules) -> None:
        self._queue = queue
        self._board = queue.board
        self._rules = rules
        self._held_s = 0
        """When a lease had nodes for the last time."""
        self._had: set[str] = set()
        """Who has had a slice, of those that wait or run."""

    def begin(self, now_s: int) -> list[BestEffortRun]:
        """A slice for each that waits and may have one; the runs with new segments."""
        changed: list[BestEffortRun] = []
        grounds: dict[tuple[int, int], _Ground] = {}
        for waiting in [each for each in self._queue.waiting if self._is_due(each, now_s)]:
            place = self._find(waiting, grounds, now_s)
            if place is not None:
                changed += self._take(waiting, place, now_s)
                grounds.clear()
        # Who moved for one slice may be back in the queue for the next.
        return [run for run in changed if self._board.runs.get(run.name) is run]

    def lease_ended(self, now_s: int) -> None:
        """A lease that had begun is over."""
        self._held_s = now_s

    def _is_due(self, waiting: WaitingWorkspace, now_s: int) -> bool:
        """Whether a lease has nodes or soon will, or has had some while it waited; and whether it may be
        stopped and has had no slice."""
        board, workspace = self._board, waiting.workspace
        if not workspace.is_preemptible or not workspace.is_parallel or workspace.image is not None:
            return False
        if not board.rules.suspension.is_allowed or workspace.name in self._had:
            return False
        if self._rules.is_always or waiting.submitted_s < self._held_s:
            return True
        entries = board.book.entries.values()
        return any(entry.reservation.start_s <= now_s + AHEAD_S for entry in entries)

    def _find(
        self, waiting: WaitingWorkspace, grounds: dict[tuple[int, int], _Ground], now_s: int
    ) -> SlicePlace | None:
        """A place within minutes, on free nodes first, then on those whose runs have made way least often,
        and of few runs rather than of many."""
        length_s, asked_s = self._rules.length_s, waiting.workspace.duration_s
        if asked_s <= WHOLE * length_s:
            length_s = asked_s
        ground = grounds.get((length_s, waiting.need))
        if ground is None:
            ground = grounds[length_s, waiting.need] = self._ground(length_s, waiting.need, now_s)
        if len(ground.nodes) < waiting.workspace.instances:
            return None
        chosen = ground.nodes[: waiting.workspace.instances]
        start_s = max([now_s, *(ground.busy.get(node, now_s) for node in chosen)])
        fits = tuple(Fit(node, 1) for node in sorted(chosen))
        return SlicePlace(fits=fits, start_s=start_s, end_s=start_s + length_s)

    def _ground(self, length_s: int, need: int, now_s: int) -> _Ground:
        """Where slices of one length can be now."""
        board, until_s = self._board, now_s + LATEST_S + length_s
        busy = busy_until(board, now_s)
        users = self._users(now_s, until_s)
        spared = {run.name for run in board.runs.values() if not self._may_pause(run, now_s)}
        usable = [
            node
            for node, row in enumerate(board.book.timeline.rows)
            if board.book.available >> node & 1
            and busy.get(node, now_s) <= now_s + LATEST_S
            and not any(run.name in spared for run in users.get(node, ()))
            and row.fits(need, now_s, until_s)
        ]
        return _Ground(nodes=sorted(usable, key=_least_in_the_way(users, usable)), busy=busy)

    def _take(self, waiting: WaitingWorkspace, place: SlicePlace, now_s: int) -> list[BestEffortRun]:
        queue, need = self._queue, waiting.need
        moved = queue.make_room(place.fits, need, place.start_s, place.end_s, now_s)
        for run in moved:
            run.pauses += 1
        shares = tuple([SegmentShare(node, count, need * count) for node, count in place.fits])
        segment = Segment(place.start_s, place.end_s, shares)
        self._board.everything.release_all(segment.amounts(), segment.start_s, segment.end_s)
        run = queue.take(waiting, RunPlacement(ready_s=place.start_s, segments=(segment,)), now_s)
        queue.waiting.remove(waiting)
        run.is_slice = segment.useful_s < run.workspace.duration_s
        there = {each.workspace.name for each in (*queue.waiting, *self._board.runs.values())}
        self._had = {name for name in self._had if name in there} | {run.workspace.name}
        return [*moved, run]

    def _users(self, from_s: int, until_s: int) -> dict[int, list[BestEffortRun]]:
        """By node, the runs that have it in an interval."""
        users: dict[int, list[BestEffortRun]] = {}
        for run in self._board.runs.values():
            nodes = {
                share.node
                for segment in run.segments
                if segment.start_s < until_s and from_s < segment.end_s
                for share in segment.shares
            }
            for node in nodes:
                users.setdefault(node, []).append(run)
        return users

    def _may_pause(self, run: BestEffortRun, now_s: int) -> bool:
        if run.is_in_book or run.is_slice or not run.has_begun or run.pauses >= MOST_PAUSES:
            return False
        done_s = sum(max(0, min(each.end_s, now_s) - each.start_s - each.resume_s) for each in run.segments)
        return run.workspace.duration_s - done_s >= LONGER * self._rules.length_s


def _least_in_the_way(
    users: dict[int, list[BestEffortRun]], usable: Sequence[int]
) -> Callable[[int], tuple[int, int, int, tuple[int, ...], int]]:
    """The order of nodes by how little is disturbed on them."""
    nodes_of = Counter(run.name for node in usable for run in users.get(node, ()))

    def order(node: int) -> tuple[int, int, int, tuple[int, ...], int]:
        runs = users.get(node, [])
        return (
            len(runs),
            max((run.pauses for run in runs), default=0),
            -min((nodes_of[run.name] for run in runs), default=0),
            min(((run.order, run.index) for run in runs), default=()),
            node,
        )

    return order
