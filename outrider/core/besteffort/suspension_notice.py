"""The notice that running best effort needs: it must be written to disk before a reservation.

A run whose suspension takes time cannot leave its nodes at once. Until everything that runs
on a node could have been written, no reservation may begin there; and what makes way for a
reservation runs on until it must be written.
"""

from __future__ import annotations

from outrider.core.besteffort.board import BestEffortRun, QueueBoard
from outrider.core.besteffort.suspension import Segment, free_until, suspending
from outrider.core.nodes.timeline import BUCKET_S

Hold = tuple[int, int, int, int]
"""What is kept from reservations for a moment: node, amount, from when to when."""


def hold_nodes(board: QueueBoard, now_s: int, from_s: int) -> list[Hold]:
    """Take from the book what no reservation can have because runs could not be written before it.

    Only nodes that are not free by `from_s`, from which on somebody looks at the book: most reservations are
    asked for long before. Whoever looks at a node in an interval looks at the index's buckets, too.
    """
    timeline = board.book.timeline
    holds: list[Hold] = []
    for node, until_s in sorted(busy_until(board, now_s, from_s // BUCKET_S * BUCKET_S).items()):
        free = [(node, *step) for step in timeline.rows[node].steps(now_s, until_s) if step[0]]
        for hold in free:
            timeline.reserve(*hold)
        holds += free
    return holds


def give_back(board: QueueBoard, holds: list[Hold]) -> None:
    """The decision has been made."""
    for node, amount, start_s, end_s in holds:
        board.book.timeline.release(node, amount, start_s, end_s)


def withdraw(board: QueueBoard, run: BestEffortRun, start_s: int, now_s: int) -> None:
    """Take back what a run has that is in the way of a reservation.

    What runs and takes time to be written goes on until the reservation starts, or until the
    suspension that it has before that; all else can be planned anew from now on.
    """
    current = _current(run, now_s)
    if current is None or not _overhead_s(board, run):
        board.vacate(run, now_s)
        return
    if start_s < current.end_s:
        written_s = current.end_s - current.suspend_s
        for node, begin_s, length_s in current.disk:
            if begin_s >= written_s:
                board.disks[node].give_back(begin_s, length_s)
        disk = tuple(each for each in current.disk if each[1] < written_s)
        unsuspended = current._replace(suspend_s=0, disk=disk)
        run.segments = tuple(unsuspended if each is current else each for each in run.segments)
    board.vacate(run, min(current.end_s, start_s))


def suspend_in_time(board: QueueBoard, run: BestEffortRun, now_s: int) -> None:
    """End what a run is doing before it is in anybody's way, with its memory written."""
    current = _current(run, now_s)
    if current is None or current.suspend_s:
        return
    table, shares = board.everything, current.shares
    missing_s = run.workspace.duration_s - sum(segment.useful_s for segment in run.segments)
    end_s = free_until(table, shares, current.end_s, current.end_s + missing_s)
    if end_s > current.end_s:
        board.everything.reserve_all(current.amounts(), current.end_s, end_s)
    whole = current._replace(end_s=end_s)
    if end_s < current.end_s + missing_s:
        written = suspending(board.disks, shares, end_s, _overhead_s(board, run), board.rules.suspension)
        for node, begin_s, length_s in written.disk:
            board.disks[node].take(begin_s, length_s)
        whole = whole._replace(suspend_s=written.seconds, disk=whole.disk + written.disk)
    run.segments = (*run.segments[:-1], whole)


def _current(run: BestEffortRun, now_s: int) -> Segment | None:
    return next((each for each in run.segments if each.start_s <= now_s < each.end_s), None)


def _overhead_s(board: QueueBoard, run: BestEffortRun) -> int:
    if run.is_in_book or not run.has_begun:
        return 0
    return board.rules.suspension.overhead_s(run.workspace.resources)


def busy_until(board: QueueBoard, now_s: int, after_s: int = 0) -> dict[int, int]:
    """Before when no reservation can begin on a node, if after `after_s`; of nodes that need notice only."""
    running = [
        (current, overhead_s)
        for run in board.runs.values()
        if (overhead_s := _overhead_s(board, run)) and (current := _current(run, now_s)) is not None
    ]
    if all(current.end_s <= after_s for current, _ in running):
        return {}
    rules = board.rules.suspension
    ready_s: dict[int, int] = {}
    lengths: dict[int, list[int]] = {}
    for current, overhead_s in running:
        # What is being resumed is resumed first.
        resumed_s = max(now_s, current.start_s + current.resume_s)
        for share in current.shares:
            disk = rules.disk_of(share.node)
            ready_s[disk] = max(ready_s.get(disk, now_s), resumed_s)
            each_s = rules.writing_on(share.node, overhead_s)
            lengths.setdefault(disk, []).append(each_s * share.instances)
    written_s = {
        disk: board.disks[disk].safe_by(from_s, lengths[disk])
        if rules.is_serialised
        else from_s + max(lengths[disk])
        for disk, from_s in ready_s.items()
    }
    if max(written_s.values()) <= after_s:
        return {}
    busy: dict[int, int] = {}
    for current, _ in running:
        nodes = [share.node for share in current.shares]
        away_s = min(current.end_s, max(written_s[rules.disk_of(node)] for node in nodes))
        for node in nodes:
            busy[node] = max(busy.get(node, away_s), away_s)
    return {node: until_s for node, until_s in busy.items() if until_s > after_s}
