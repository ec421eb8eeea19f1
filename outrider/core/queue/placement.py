"""Where and when best effort can run: the nodes, the moment its image is there, the segments.

Nothing is changed here; what is found is a `Place`, which `besteffort` takes or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.core.book import Shipping
from outrider.core.fitting import fit
from outrider.core.model import Image, Workspace
from outrider.core.queue.board import Board
from outrider.core.queue.suspension import Segment, Share, next_fit, plan_run
from outrider.core.reuse import Life
from outrider.core.sweep import SlotSweep
from outrider.core.timeline import FOREVER, numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
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


@dataclass(frozen=True, slots=True)
class Source:
    """When an image can be used on a node, and why then: a stay, lingering, or a transfer."""

    ready_s: int
    life: Life | None = None
    is_lingering: bool = False


def source_on(board: Board, image: Image, node: int, now_s: int) -> Source | None:
    """The earliest use of the image on the node without a new transfer; None if there is none."""
    if not board.book.terms.is_reusing:
        return None
    pool = board.book.pools.pools[node]
    life = pool.life_at(image.key, now_s)
    if life is not None:
        return Source(now_s, life)
    if image.key in pool.lingering:
        return Source(now_s, None, True)
    # A transfer on the best-effort link may be joined; one with a deadline may still move.
    coming = pool.coming(image.key, now_s)
    if coming is not None and coming.transfer is not None and coming.is_firm:
        return Source(coming.ready_s, coming)
    return None


def place_one(board: Board, workspace: Workspace, need: int, now_s: int) -> Place | None:
    """The place for one instance that ends first; among equals the first node's."""
    image = workspace.image
    arrival_s = now_s
    if image is not None:
        arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
    best: Place | None = None
    best_end_s = FOREVER
    for node in numbers(board.book.available):
        source = None if image is None else source_on(board, image, node, now_s)
        ready_s = arrival_s if source is None else source.ready_s
        if ready_s + workspace.duration_s >= best_end_s:
            continue
        place = _one_on(board, workspace, need, node, source, ready_s, now_s)
        if place is not None and place.end_s < best_end_s:
            best, best_end_s = place, place.end_s
    return best


def _one_on(
    board: Board, workspace: Workspace, need: int, node: int, source: Source | None, ready_s: int, now_s: int
) -> Place | None:
    shares = (Share(node, 1, need),)
    segments = _segments(board, workspace, shares, ready_s)
    if segments is None:
        return None
    place = Place(ready_s=ready_s, segments=segments)
    if workspace.image is None:
        return place
    if source is None:
        place = replace(place, missing=(node,))
    elif source.life is not None:
        place = replace(place, joined=((node, source.life),))
    else:
        place = replace(place, revived=(node,))
    return place if _pools_allow(board, workspace.image, place, now_s) else None


def place_together(
    board: Board, workspace: Workspace, need: int, now_s: int, *, may_wait: bool
) -> Place | None:
    """A place for all instances at the same time: at once, or, if it `may_wait`, later."""
    image = workspace.image
    sources = _sources(board, image, now_s)
    for ready_s in sorted({now_s, *(source.ready_s for source in sources.values())}):
        if image is not None and not any(source.ready_s <= ready_s for source in sources.values()):
            continue
        ready = {node: source for node, source in sources.items() if source.ready_s <= ready_s}
        only = None if image is None else sum(1 << node for node in ready)
        place = _together_at(board, workspace, need, ready_s, ready, only, now_s)
        if place is not None:
            return place
    arrival_s = now_s
    if image is not None:
        place, arrival_s = _with_transfers(board, workspace, need, sources, now_s)
        if place is not None:
            return place
    return _later(board, workspace, need, sources, arrival_s, now_s) if may_wait else None


def _sources(board: Board, image: Image | None, now_s: int) -> dict[int, Source]:
    if image is None:
        return {}
    found = {node: source_on(board, image, node, now_s) for node in board.book.pools.nodes_with(image.key)}
    return {node: source for node, source in found.items() if source is not None}


def _with_transfers(
    board: Board, workspace: Workspace, need: int, sources: dict[int, Source], now_s: int
) -> tuple[Place | None, int]:
    """A place that begins when the transfers it needs have ended; and the last such moment tried.

    More transfers end later, and later other nodes may be free: so the number is raised until
    it suffices for the nodes that are free then.
    """
    assert workspace.image is not None
    most = 1 if board.book.terms.shipping is Shipping.RELAY else workspace.instances
    count = 1
    while True:
        arrival_s = board.links.end_if_added(workspace.image.size_bytes, count, now_s)
        ready = {node: source for node, source in sources.items() if source.ready_s <= arrival_s}
        place = _together_at(board, workspace, need, arrival_s, ready, None, now_s)
        needed = most if place is None else min(most, len(place.missing))
        if needed <= count:
            return place, arrival_s
        count = needed


def _together_at(
    board: Board,
    workspace: Workspace,
    need: int,
    start_s: int,
    ready: dict[int, Source],
    only: int | None,
    now_s: int,
) -> Place | None:
    """A place that begins at `start_s`: whole if possible, else in segments around reservations."""
    available = board.book.available if only is None else board.book.available & only
    windows = [workspace.duration_s]
    suspension = board.rules.suspension
    if suspension.is_allowed and workspace.is_preemptible:
        windows.append(min(workspace.duration_s, suspension.least_run_s))
    for window_s in windows:
        fits = fit(
            board.everything,
            instances=workspace.instances,
            need=need,
            start_s=start_s,
            end_s=start_s + window_s,
            holders=sorted(ready),
            available=available,
        )
        if isinstance(fits, int):
            continue
        shares = tuple(Share(chosen.node, chosen.instances, need * chosen.instances) for chosen in fits)
        segments = _segments(board, workspace, shares, start_s)
        if segments is None:
            continue
        place = _sourced(workspace, shares, segments, ready, start_s)
        if workspace.image is None or _pools_allow(board, workspace.image, place, now_s):
            return place
    return None


def _sourced(
    workspace: Workspace,
    shares: Sequence[Share],
    segments: tuple[Segment, ...],
    ready: dict[int, Source],
    ready_s: int,
) -> Place:
    place = Place(ready_s=ready_s, segments=segments)
    if workspace.image is None:
        return place
    joined = [(share.node, ready[share.node].life) for share in shares if share.node in ready]
    return replace(
        place,
        joined=tuple((node, life) for node, life in joined if life is not None),
        revived=tuple(node for node, life in joined if life is None),
        missing=tuple(share.node for share in shares if share.node not in ready),
    )


def _later(
    board: Board, workspace: Workspace, need: int, sources: dict[int, Source], arrival_s: int, now_s: int
) -> Place | None:
    """The first place from `arrival_s` on, when every transfer it may need has ended."""
    sweep = SlotSweep(
        board.everything,
        instances=workspace.instances,
        need=need,
        duration_s=workspace.duration_s,
        start_s=arrival_s,
        available=board.book.available,
    )
    start_s = sweep.advance()
    if start_s is None:
        return None
    ready = {node: source for node, source in sources.items() if source.ready_s <= start_s}
    return _together_at(board, workspace, need, start_s, ready, None, now_s)


def _segments(
    board: Board, workspace: Workspace, shares: tuple[Share, ...], start_s: int
) -> tuple[Segment, ...] | None:
    rules = board.rules.suspension
    if not workspace.is_preemptible and rules.is_allowed:
        rules = replace(rules, is_allowed=False)
    return plan_run(
        board.everything.rows,
        board.lanes,
        shares,
        start_s,
        workspace.duration_s,
        rules,
        rules.overhead_s(workspace.resources),
    )


def _pools_allow(board: Board, image: Image, place: Place, now_s: int) -> bool:
    """Whether every pool has room for what the place keeps or brings, at every instant."""
    pools = board.book.pools.pools
    for node, life in place.joined:
        if place.end_s > life.expires_s and not pools[node].has_room(
            [(max(life.expires_s, now_s), place.end_s, image.size_bytes)], now_s
        ):
            return False
    return all(
        pools[node].has_room([(now_s, place.end_s, image.size_bytes)], now_s)
        for node in (*place.revived, *place.missing)
    )


def resumed(
    board: Board, workspace: Workspace, shares: tuple[Share, ...], work_s: int, from_s: int
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
    others = tuple(Share(chosen.node, chosen.instances, need * chosen.instances) for chosen in fits)
    there = plan_run(rows, board.lanes, others, start_s, work_s, rules, overhead_s, is_resumed=True)
    if there is None or (here is not None and here[-1].end_s <= there[-1].end_s):
        return here
    return there
