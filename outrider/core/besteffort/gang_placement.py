"""Where and when best effort that must run together can run: the nodes, the moment its image is there.

Nothing is changed here; what is found is a `RunPlacement`, which `queue` takes or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.besteffort.board import QueueBoard
from outrider.core.besteffort.placement import (
    ImageSource,
    RunPlacement,
    pools_allow,
    segments_on,
    source_on,
)
from outrider.core.besteffort.suspension import Segment, SegmentShare
from outrider.core.images.pools import Life
from outrider.core.model import Image, Workspace
from outrider.core.nodes.earliest_slots import SlotSweep
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.selection import fit, fit_whole
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Shipping


def place_together(
    board: QueueBoard, workspace: Workspace, need: int, now_s: int, *, may_wait: bool
) -> RunPlacement | None:
    """A place for all instances at the same time: at once, or, if it `may_wait`, later."""
    image = workspace.image
    if image is None:
        place = _together_at(board, workspace, need, now_s, None, now_s)
        arrival_s = now_s
    else:
        place = _where_it_is(board, workspace, image, need, now_s)
        arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
        if place is None and not _is_hopeless(board, workspace, image, need, arrival_s, now_s):
            place, arrival_s = _with_transfers(board, workspace, image, need, now_s)
        elif board.book.terms.shipping is Shipping.PER_NODE:
            arrival_s = board.links.end_if_added(image.size_bytes, workspace.instances, now_s)
    if place is not None or not may_wait:
        return place
    return _later(board, workspace, need, arrival_s, now_s)


def _is_hopeless(
    board: QueueBoard, workspace: Workspace, image: Image, need: int, arrival_s: int, now_s: int
) -> bool:
    """Whether what did not fit where the image is will not fit after a transfer either.

    So it is if too few nodes are free for long enough when it could have ended; or if every free
    node can use the image now and nothing begins or ends meanwhile.
    """
    if board.book.terms.shipping is Shipping.RELAY:
        later = board.free_nodes(need, arrival_s) & board.nodes_for(image)
        least = -(-workspace.instances // board.largest_room(need))
        if later.bit_count() < least or not _is_enough(board, workspace, need, arrival_s, later, least):
            return True
    free = board.free_nodes(need, now_s)
    if free & ~board.book.pools.mask_with(image.key) or not board.everything.is_quiet(now_s, arrival_s):
        return False
    return len(_sources(board, image, free, FOREVER, now_s)) == free.bit_count()


def _where_it_is(
    board: QueueBoard, workspace: Workspace, image: Image, need: int, now_s: int
) -> RunPlacement | None:
    """A place on nodes that have the image now, or will have it by a transfer under way."""
    pools = board.book.pools
    holders = pools.mask_with(image.key)
    if holders.bit_count() * board.largest_room(need) < workspace.instances:
        return None
    for ready_s in [now_s, *(at_s for at_s in pools.coming_times(image.key) if at_s > now_s)]:
        place = _together_at(board, workspace, need, ready_s, holders, now_s)
        if place is not None and not place.missing:
            return place
    return None


def _with_transfers(
    board: QueueBoard, workspace: Workspace, image: Image, need: int, now_s: int
) -> tuple[RunPlacement | None, int]:
    """A place that begins when the transfers it needs have ended; and the last such moment tried.

    More transfers end later, and later other nodes may be free: so the number is raised until
    it suffices for the nodes that are free then.
    """
    most = 1 if board.book.terms.shipping is Shipping.RELAY else workspace.instances
    count = 1
    while True:
        arrival_s = board.links.end_if_added(image.size_bytes, count, now_s)
        place = _together_at(board, workspace, need, arrival_s, None, now_s)
        needed = most if place is None else min(most, len(place.missing))
        if needed <= count:
            return place, arrival_s
        count = needed


def _sources(
    board: QueueBoard, image: Image | None, nodes: int, start_s: int, now_s: int
) -> dict[int, ImageSource]:
    """Where, among `nodes`, the image can be used at `start_s` without a new transfer."""
    found: dict[int, ImageSource] = {}
    if image is not None:
        for node in numbers(nodes & board.book.pools.mask_with(image.key)):
            source = source_on(board, image, node, now_s)
            if source is not None and source.ready_s <= start_s:
                found[node] = source
    return found


def _together_at(
    board: QueueBoard, workspace: Workspace, need: int, start_s: int, only: int | None, now_s: int
) -> RunPlacement | None:
    """A place that begins at `start_s`: whole if possible, else in segments around reservations."""
    available = board.free_nodes(need, start_s) & board.nodes_for(workspace.image)
    if only is not None:
        available &= only
    largest = board.largest_room(need)
    if available.bit_count() * largest < workspace.instances:
        return None
    if not _is_enough(board, workspace, need, start_s, available, -(-workspace.instances // largest)):
        return None
    return _best_at(board, workspace, need, start_s, available, only, now_s)


def _best_at(
    board: QueueBoard,
    workspace: Workspace,
    need: int,
    start_s: int,
    available: int,
    only: int | None,
    now_s: int,
) -> RunPlacement | None:
    """A place on nodes that are free at `start_s`; with `only`, on those that have the image."""
    image = workspace.image
    if image is not None:
        # When every free node has the image in some way, which one is taken makes no
        # difference: only those chosen are then looked at.
        if not available & ~board.book.pools.mask_with(image.key):
            place = _fitted(board, workspace, need, start_s, available, {}, now_s)
            if place is None or not place.missing:
                return place
        ready = _sources(board, image, available, start_s, now_s)
        if only is not None:
            available = sum([1 << node for node in ready])
        return _fitted(board, workspace, need, start_s, available, ready, now_s)
    return _fitted(board, workspace, need, start_s, available, {}, now_s)


def _is_enough(
    board: QueueBoard, workspace: Workspace, need: int, start_s: int, available: int, least: int
) -> bool:
    """Whether so many nodes may be free for long enough: to its end, or until a reservation on one of the
    nodes begins or ends, before which it would be suspended.

    That tells most of a long queue apart without looking for nodes. Whoever cannot be suspended is not
    tried often enough for it to pay.
    """
    suspension, end_s = board.rules.suspension, start_s + workspace.duration_s
    if not suspension.is_allowed or suspension.makes_way_for_all or not workspace.is_preemptible:
        return True
    until_s = _together_until(board, need, start_s, available, least)
    if until_s >= end_s:
        return True
    return board.book.timeline.next_boundary(available, start_s, until_s) < FOREVER


def _together_until(board: QueueBoard, need: int, start_s: int, available: int, nodes: int) -> int:
    """Until when so many of the available nodes stay free, at most; `start_s` if they are fewer."""
    available &= board.book.available
    return board.everything.free_masks(need).together_until(start_s, available, nodes)


def _fitted(
    board: QueueBoard,
    workspace: Workspace,
    need: int,
    start_s: int,
    available: int,
    ready: dict[int, ImageSource],
    now_s: int,
) -> RunPlacement | None:
    """A place on some of the `available` nodes, those that are `ready` first: for as long as it lasts,
    else in segments, on the first nodes that would do if that ends earlier than on those free for longest."""
    duration_s, suspension = workspace.duration_s, board.rules.suspension
    if not suspension.is_allowed or not workspace.is_preemptible:
        return _fitted_for(board, workspace, need, start_s, available, ready, now_s, duration_s)
    is_one_a_node = board.largest_room(need) == 1
    until_s = start_s + duration_s
    if is_one_a_node:
        until_s = min(until_s, _together_until(board, need, start_s, available, workspace.instances))
    if until_s == start_s + duration_s:
        whole = _fitted_for(board, workspace, need, start_s, available, ready, now_s, duration_s)
        if whole is not None:
            return whole
    least_s = min(duration_s, suspension.least_run_s)
    found = _fitted_for(board, workspace, need, start_s, available, ready, now_s, least_s)
    longest_s: int | None = until_s - start_s
    if not is_one_a_node:
        longest_s = _longest_window(board, workspace, need, start_s, available, least_s)
    if longest_s is None or longest_s <= least_s:
        return found
    other = _fitted_for(board, workspace, need, start_s, available, ready, now_s, longest_s)
    if found is None or (other is not None and other.end_s <= found.end_s):
        return other
    return found


def _longest_window(
    board: QueueBoard, workspace: Workspace, need: int, start_s: int, available: int, least_s: int
) -> int | None:
    """For how long, at most, some of the nodes have room for all; None if that is not longer than the least.

    It is looked for among the times for which nodes have room for one instance.
    """
    last_s = start_s + workspace.duration_s
    rows = board.everything.rows
    ends = {rows[node].free_until(need, start_s, last_s) for node in numbers(available)}
    lengths = sorted(end_s - start_s for end_s in ends if end_s - start_s > least_s)
    best: int | None = None
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        fits = fit(
            board.everything,
            instances=workspace.instances,
            need=need,
            start_s=start_s,
            end_s=start_s + lengths[middle],
            available=available,
        )
        if isinstance(fits, int):
            high = middle
        else:
            best, low = lengths[middle], middle + 1
    return best


def _fitted_for(
    board: QueueBoard,
    workspace: Workspace,
    need: int,
    start_s: int,
    available: int,
    ready: dict[int, ImageSource],
    now_s: int,
    window_s: int,
) -> RunPlacement | None:
    """A place on nodes that have room for all at least for the window."""
    choose = fit_whole if board.largest_room(need) == 1 else fit
    fits = choose(
        board.everything,
        instances=workspace.instances,
        need=need,
        start_s=start_s,
        end_s=start_s + window_s,
        holders=sum([1 << node for node in ready]),
        available=available,
    )
    if isinstance(fits, int):
        return None
    shares = tuple([SegmentShare(node, count, need * count) for node, count in fits])
    segments = segments_on(board, workspace, shares, start_s)
    if segments is None:
        return None
    if workspace.image is None:
        return RunPlacement(ready_s=start_s, segments=segments)
    sources = ready
    if not ready:
        chosen_nodes = sum([1 << share.node for share in shares])
        sources = _sources(board, workspace.image, chosen_nodes, start_s, now_s)
    place = _sourced(shares, segments, sources, start_s)
    return place if pools_allow(board, workspace.image, place, now_s) else None


def _sourced(
    shares: Sequence[SegmentShare],
    segments: tuple[Segment, ...],
    ready: dict[int, ImageSource],
    ready_s: int,
) -> RunPlacement:
    joined: list[tuple[int, Life]] = []
    revived: list[int] = []
    missing: list[int] = []
    for share in shares:
        source = ready.get(share.node)
        if source is None:
            missing.append(share.node)
        elif source.life is None:
            revived.append(share.node)
        else:
            joined.append((share.node, source.life))
    return RunPlacement(
        ready_s=ready_s,
        segments=segments,
        joined=tuple(joined),
        revived=tuple(revived),
        missing=tuple(missing),
    )


def _later(
    board: QueueBoard, workspace: Workspace, need: int, arrival_s: int, now_s: int
) -> RunPlacement | None:
    """The first place from `arrival_s` on, when every transfer it may need has ended."""
    start_s = _first_start(board, workspace, need, arrival_s)
    if start_s is None:
        return None
    # They have been found free for long enough.
    free = board.free_nodes(need, start_s) & board.nodes_for(workspace.image)
    place = _best_at(board, workspace, need, start_s, free, None, now_s)
    if place is None:
        return None
    used = [life.ready_s for _, life in place.joined] + ([arrival_s] if place.missing else [])
    return replace(place, ready_s=max([now_s, *used]))


def _first_start(board: QueueBoard, workspace: Workspace, need: int, from_s: int) -> int | None:
    """The first instant from which there is room for all for as long as it lasts."""
    available = board.book.available & board.nodes_for(workspace.image)
    instances, duration_s = workspace.instances, workspace.duration_s
    if board.largest_room(need) == 1:
        return board.everything.free_masks(need).first_start(from_s, duration_s, available, instances)
    return SlotSweep(
        board.everything,
        instances=instances,
        need=need,
        duration_s=duration_s,
        start_s=from_s,
        available=available,
    ).advance()
