"""Open leases: nodes that wait for an event, and the best effort that may run there meanwhile.

From its first instant on an open lease has its image on its nodes, and no other reservation gets these. Until
its event comes, best effort that can be cleared in time may run there: what is suspendable, if a node's disk
can write all the memory that the node has within the time that was promised. All other best effort is kept
away as if the lease had begun. So the slot table of the board leaves a lent lease out, and is completed for
the moment in which something is placed that cannot be cleared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from outrider.core.besteffort.board import BestEffortRun, QueueBoard
from outrider.core.besteffort.suspension import memory_bytes
from outrider.core.model import Workspace
from outrider.core.nodes.selection import Fit

DISK_TURNS = 3
"""What a node's disk may have to do before a lease begins there: end reading what is being resumed, and write
everything, with gaps between what it has to do at fixed times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLease:
    """A lease that waits for its event until `until_s`, and begins within `within_s` of it."""

    name: str
    until_s: int
    within_s: int
    duration_s: int
    fits: tuple[Fit, ...]
    need: int
    start_s: int
    end_s: int
    is_lent: bool


def is_clearable_within(board: QueueBoard, fits: tuple[Fit, ...], within_s: int) -> bool:
    """Whether suspendable best effort can always be gone from these nodes in so much time."""
    rules = board.rules.suspension
    if not rules.is_allowed:
        return False
    if rules.disk_bytes_per_s is None:
        return True
    nodes = board.book.timeline.nodes
    rate = min(rules.disk_bytes_per_s, rules.read_bytes_per_s or rules.disk_bytes_per_s)
    if rules.is_shared:
        turn_s = -(-sum(memory_bytes(node.capacity) for node in nodes) // rate)
    else:
        turn_s = max(
            rules.reading_on(chosen.node, -(-memory_bytes(nodes[chosen.node].capacity) // rate))
            for chosen in fits
        )
    return DISK_TURNS * turn_s + rules.restart_s <= within_s


def is_clearable(board: QueueBoard, workspace: Workspace) -> bool:
    """Whether it may run where an event is waited for."""
    return workspace.is_preemptible and board.rules.suspension.is_allowed


def misplaced(board: QueueBoard) -> list[BestEffortRun]:
    """Runs that cannot be cleared and have not begun, and would not find their place free: beside a lent
    lease, the slot table of the board shows less than is promised."""
    book_rows = board.book.timeline.rows
    nodes = {chosen.node for _, fits in board.lent.values() for chosen in fits}
    rows = {node: book_rows[node].copy() for node in nodes}
    found: list[BestEffortRun] = []
    for run in sorted(board.runs.values(), key=lambda run: (run.order, run.index)):
        if run.is_in_book or is_clearable(board, run.workspace):
            continue
        taken = [
            (rows[share.node], share.amount, segment.start_s, segment.end_s)
            for segment in run.segments
            for share in segment.shares
            if share.node in rows
        ]
        if all(row.fits(amount, start_s, end_s) for row, amount, start_s, end_s in taken):
            for row, amount, start_s, end_s in taken:
                row.reserve(amount, start_s, end_s)
        else:
            found.append(run)
    return found


def guarded(board: QueueBoard, workspace: Workspace) -> AbstractContextManager[None]:
    """For the time being the slot table has lent leases in it, too, unless the workspace can be cleared."""
    if not board.lent or is_clearable(board, workspace):
        return nullcontext()
    return _with_lent_leases(board)


@contextmanager
def _with_lent_leases(board: QueueBoard) -> Iterator[None]:
    rows, past_s, holds = board.everything.rows, board.everything.past_s, []
    for spans, fits in board.lent.values():
        for chosen in fits:
            for start_s, end_s in spans:
                for amount, from_s, until_s in list(rows[chosen.node].steps(max(start_s, past_s), end_s)):
                    if amount:
                        board.everything.reserve(chosen.node, amount, from_s, until_s)
                        holds.append((chosen.node, amount, from_s, until_s))
    try:
        yield
    finally:
        for node, amount, start_s, end_s in holds:
            board.everything.release(node, amount, start_s, end_s)
