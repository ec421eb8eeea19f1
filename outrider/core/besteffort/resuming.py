"""How something suspended goes on: on its own nodes, or, where memory may be moved, on others."""

from __future__ import annotations

from outrider.core.besteffort.board import QueueBoard
from outrider.core.besteffort.suspension import Segment, SegmentShare, next_fit, plan_run
from outrider.core.model import Workspace
from outrider.core.reservations.fitting import fit
from outrider.core.reservations.sweep import SlotSweep


def resumed(
    board: QueueBoard, workspace: Workspace, shares: tuple[SegmentShare, ...], work_s: int, from_s: int
) -> tuple[Segment, ...] | None:
    """Segments for the rest of something suspended, on the same nodes or, if allowed, on others."""
    rules = board.rules.suspension
    overhead_s = rules.overhead_s(workspace.resources)
    rows = board.everything.rows
    here = plan_run(rows, board.lanes, shares, from_s, work_s, rules, overhead_s, is_resumed=True)
    if not rules.is_migrating:
        return here
    image_bytes = workspace.image.size_bytes if workspace.image is not None else 0
    there_from_s = from_s + rules.migration_seconds(workspace.resources, image_bytes)
    if next_fit(rows, shares, from_s) <= there_from_s:
        return here
    need = shares[0].amount // shares[0].instances
    sweep = SlotSweep(
        board.everything,
        instances=sum(share.instances for share in shares),
        need=need,
        duration_s=overhead_s + work_s,
        start_s=there_from_s,
        available=board.book.available,
    )
    start_s = sweep.advance()
    if start_s is None or (here is not None and here[-1].end_s <= start_s + overhead_s + work_s):
        return here
    fits = fit(
        board.everything,
        instances=sum(share.instances for share in shares),
        need=need,
        start_s=start_s,
        end_s=start_s + overhead_s + work_s,
        available=board.book.available,
    )
    assert not isinstance(fits, int)
    others = tuple(SegmentShare(chosen.node, chosen.instances, need * chosen.instances) for chosen in fits)
    there = plan_run(rows, board.lanes, others, start_s, work_s, rules, overhead_s, is_resumed=True)
    if there is None or (here is not None and here[-1].end_s <= there[-1].end_s):
        return here
    return there
