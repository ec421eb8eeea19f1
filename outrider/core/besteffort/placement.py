"""Where and when one instance of best effort can run, or the rest of something suspended.

Nothing is changed here; what is found is a `RunPlacement`, which `queue` takes or leaves. Gangs are placed by
`gang_placement`.
"""

from __future__ import annotations

from typing import NamedTuple

from outrider.core.besteffort.board import QueueBoard
from outrider.core.besteffort.suspension import Segment, SegmentShare, next_fit, plan_run
from outrider.core.images.pools import Life
from outrider.core.model import Image, Workspace
from outrider.core.nodes.earliest_slots import SlotSweep
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.selection import fit
from outrider.core.nodes.timeline import numbers


class RunPlacement(NamedTuple):
    """A way to run a workspace: its segments, and where its image comes from.

    `joined` are stays of the image to be extended, `revived` nodes where it lingers, and
    `missing` those to which it must be transferred.
    """

    ready_s: int
    segments: tuple[Segment, ...]
    joined: tuple[tuple[int, Life], ...] = ()
    revived: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()

    @property
    def end_s(self) -> int:
        return self.segments[-1].end_s


class ImageSource(NamedTuple):
    """When an image can be used on a node, and why then: a stay, lingering, or a transfer."""

    ready_s: int
    life: Life | None = None


def source_on(board: QueueBoard, image: Image, node: int, now_s: int) -> ImageSource | None:
    """The earliest use of the image on the node without a new transfer; None if there is none."""
    if not board.book.terms.is_reusing:
        return None
    pool, key = board.book.pools.pools[node], image.key
    if key in pool.lives:
        life = pool.life_at(key, now_s)
        if life is not None and life.transfer is None:
            return ImageSource(now_s, life)
    if key in pool.lingering:
        return ImageSource(now_s)
    # A transfer on the best-effort link may be joined; one with a deadline may still move.
    coming = pool.coming(key, now_s)
    if coming is not None and coming.transfer is not None and coming.is_firm:
        return ImageSource(coming.ready_s, coming)
    return None


def place_one(board: QueueBoard, workspace: Workspace, need: int, now_s: int) -> RunPlacement | None:
    """The place for one instance that ends first; among equals the first node's."""
    image = workspace.image
    arrival_s = now_s
    if image is not None:
        arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
    best: RunPlacement | None = None
    best_end_s = FOREVER
    if image is None or not board.book.pools.mask_with(image.key):
        candidates = board.free_nodes(need, arrival_s)
    else:
        candidates = board.book.available
    rows = board.everything.rows
    for node in numbers(candidates):
        source = None if image is None else source_on(board, image, node, now_s)
        ready_s = arrival_s if source is None else source.ready_s
        if ready_s + workspace.duration_s >= best_end_s or not rows[node].fits(need, ready_s, ready_s + 1):
            continue
        place = _one_on(board, workspace, need, node, source, ready_s, now_s)
        if place is not None and place.end_s < best_end_s:
            best, best_end_s = place, place.end_s
    return best


def _one_on(
    board: QueueBoard,
    workspace: Workspace,
    need: int,
    node: int,
    source: ImageSource | None,
    ready_s: int,
    now_s: int,
) -> RunPlacement | None:
    shares = (SegmentShare(node, 1, need),)
    segments = segments_on(board, workspace, shares, ready_s)
    if segments is None:
        return None
    place = RunPlacement(ready_s=ready_s, segments=segments)
    if workspace.image is None:
        return place
    if source is None:
        place = place._replace(missing=(node,))
    elif source.life is not None:
        place = place._replace(joined=((node, source.life),))
    else:
        place = place._replace(revived=(node,))
    return place if pools_allow(board, workspace.image, place, now_s) else None


def segments_on(
    board: QueueBoard, workspace: Workspace, shares: tuple[SegmentShare, ...], start_s: int
) -> tuple[Segment, ...] | None:
    rules = board.rules.suspension
    if not workspace.is_preemptible:
        rules = rules.of(workspace)
    return plan_run(
        board.everything,
        board.disks,
        shares,
        start_s,
        workspace.duration_s,
        rules,
        rules.overhead_s(workspace.resources),
        reserved=None if rules.makes_way_for_all else board.book.timeline,
    )


def pools_allow(board: QueueBoard, image: Image, place: RunPlacement, now_s: int) -> bool:
    """Whether every pool has room for what the place keeps or brings, at every instant."""
    pools, size_bytes, end_s = board.book.pools.pools, image.size_bytes, place.end_s
    added = [(node, max(life.expires_s, now_s)) for node, life in place.joined if end_s > life.expires_s]
    added += [(node, now_s) for node in (*place.revived, *place.missing)]
    for node, from_s in added:
        pool = pools[node]
        if not pool.is_roomy_beside(size_bytes) and not pool.has_room([(from_s, end_s, size_bytes)], now_s):
            return False
    return True


def resumed(
    board: QueueBoard, workspace: Workspace, shares: tuple[SegmentShare, ...], work_s: int, from_s: int
) -> tuple[Segment, ...] | None:
    """Segments for the rest of something suspended, on the same nodes or, if allowed, on others."""
    rules = board.rules.suspension
    overhead_s = rules.overhead_s(workspace.resources)
    resuming_s = rules.resuming_s(overhead_s)
    table = board.everything
    here = plan_run(table, board.disks, shares, from_s, work_s, rules, overhead_s, is_resumed=True)
    if not rules.is_migrating:
        return here
    image_bytes = workspace.image.size_bytes if workspace.image is not None else 0
    there_from_s = from_s + rules.migration_seconds(workspace.resources, image_bytes)
    if next_fit(table, shares, from_s) <= there_from_s:
        return here
    need = shares[0].amount // shares[0].instances
    sweep = SlotSweep(
        board.everything,
        instances=sum(share.instances for share in shares),
        need=need,
        duration_s=resuming_s + work_s,
        start_s=there_from_s,
        available=board.book.available,
    )
    start_s = sweep.advance()
    if start_s is None or (here is not None and here[-1].end_s <= start_s + resuming_s + work_s):
        return here
    fits = fit(
        board.everything,
        instances=sum(share.instances for share in shares),
        need=need,
        start_s=start_s,
        end_s=start_s + resuming_s + work_s,
        available=board.book.available,
    )
    assert not isinstance(fits, int)
    others = tuple(SegmentShare(chosen.node, chosen.instances, need * chosen.instances) for chosen in fits)
    there = plan_run(table, board.disks, others, start_s, work_s, rules, overhead_s, is_resumed=True)
    if there is None or (here is not None and here[-1].end_s <= there[-1].end_s):
        return here
    return there
