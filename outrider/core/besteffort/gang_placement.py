"""Where and when best effort that must run together can run: the nodes, the moment its image is there.

Nothing is changed here; what is found is a `RunPlacement`, which `queue` takes or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.besteffort.board import QueueBoard
from outrider.core.besteffort.placement import (
    ImageSource,
    RunPlacement,
    pools_allow,
    segments_on,
    source_on,
)
from outrider.core.besteffort.suspension import Segment, SegmentShare, whole_share
from outrider.core.images.pools import Life
from outrider.core.model import Image, Workspace
from outrider.core.nodes.earliest_slots import SlotSweep
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.selection import Fit, first_whole, fit
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Shipping

NOTHING: dict[int, ImageSource] = {}


class GangSearch:
    """For one workspace and one instant. It holds until something is placed or taken back."""

    __slots__ = (
        "_board",
        "_count",
        "_image",
        "_is_one_a_node",
        "_is_relay",
        "_is_splittable",
        "_least",
        "_masks",
        "_need",
        "_now_s",
        "_usable",
        "_workspace",
        "is_whatever_its_length",
    )

    def __init__(self, board: QueueBoard, workspace: Workspace, need: int, now_s: int) -> None:
        self._board, self._workspace, self._need, self._now_s = board, workspace, need, now_s
        self._image, self._count = workspace.image, workspace.instances
        largest = board.largest_room(need)
        self._is_one_a_node = largest == 1
        self._least = -(-self._count // largest)
        self._masks = board.everything.free_masks(need)
        self._usable = board.book.available & board.nodes_for(workspace.image)
        self._is_splittable = workspace.is_preemptible and board.rules.suspension.is_allowed
        self._is_relay = board.book.terms.shipping is Shipping.RELAY
        least_s = board.rules.suspension.least_run_s
        self.is_whatever_its_length = (
            self._is_one_a_node and self._is_splittable and workspace.duration_s >= least_s
        )
        """Whether what was found, if it is nothing, is so for each on as many nodes that can be suspended and
        differs in how long it lasts alone, unless that is so short that enough nodes are free throughout."""

    def place(self, *, may_wait: bool) -> RunPlacement | None:
        """A place for all instances at the same time: at once, or, if it `may_wait`, later."""
        board, image, now_s = self._board, self._image, self._now_s
        if image is None:
            place = self._together_at(now_s, None)
            arrival_s = now_s
        else:
            place = self._where_it_is(image)
            arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
            if place is None and not self._is_hopeless(image, arrival_s):
                place, arrival_s = self._with_transfers(image)
            elif not self._is_relay:
                arrival_s = board.links.end_if_added(image.size_bytes, self._count, now_s)
        if place is not None or not may_wait:
            return place
        return self._later(arrival_s)

    def _free(self, at_s: int) -> int:
        return self._masks.at(at_s) & self._usable

    def _is_hopeless(self, image: Image, arrival_s: int) -> bool:
        """Whether what did not fit where the image is will not fit after a transfer either.

        So it is if too few nodes are free for long enough when it could have ended; or if every free
        node can use the image now and nothing begins or ends meanwhile.
        """
        board, now_s = self._board, self._now_s
        if self._is_relay:
            later = self._free(arrival_s)
            if later.bit_count() < self._least or not self._is_enough(arrival_s, later):
                return True
        free = self._masks.at(now_s) & board.book.available
        if free & ~board.book.pools.mask_with(image.key) or not board.everything.is_quiet(now_s, arrival_s):
            return False
        return len(self._sources(free, FOREVER)) == free.bit_count()

    def _where_it_is(self, image: Image) -> RunPlacement | None:
        """A place on nodes that have the image now, or will have it by a transfer under way."""
        pools, now_s = self._board.book.pools, self._now_s
        holders = pools.mask_with(image.key)
        if holders.bit_count() < self._least:
            return None
        for ready_s in [now_s, *(at_s for at_s in pools.coming_times(image.key) if at_s > now_s)]:
            place = self._together_at(ready_s, holders)
            if place is not None and not place.missing:
                return place
        return None

    def _with_transfers(self, image: Image) -> tuple[RunPlacement | None, int]:
        """A place that begins when the transfers it needs have ended; and the last such moment tried.

        More transfers end later, and later other nodes may be free: so the number is raised until
        it suffices for the nodes that are free then.
        """
        most = 1 if self._is_relay else self._count
        count = 1
        while True:
            arrival_s = self._board.links.end_if_added(image.size_bytes, count, self._now_s)
            place = self._together_at(arrival_s, None)
            needed = most if place is None else min(most, len(place.missing))
            if needed <= count:
                return place, arrival_s
            count = needed

    def _sources(self, nodes: int, start_s: int) -> dict[int, ImageSource]:
        """Where, among `nodes`, the image can be used at `start_s` without a new transfer."""
        found: dict[int, ImageSource] = {}
        board, image, now_s = self._board, self._image, self._now_s
        if image is None or not board.book.terms.is_reusing:
            return found
        key, pools = image.key, board.book.pools
        lingering = ImageSource(now_s)
        for node in numbers(nodes & pools.mask_with(key)):
            pool = pools.pools[node]
            if key in pool.lingering and key not in pool.lives:
                found[node] = lingering
                continue
            source = source_on(board, image, node, now_s)
            if source is not None and source.ready_s <= start_s:
                found[node] = source
        return found

    def _together_at(self, start_s: int, only: int | None) -> RunPlacement | None:
        """A place that begins at `start_s`: whole if possible, else in segments around reservations."""
        available = self._free(start_s)
        if only is not None:
            available &= only
        if available.bit_count() < self._least or not self._is_enough(start_s, available):
            return None
        return self._best_at(start_s, available, only)

    def _best_at(self, start_s: int, available: int, only: int | None) -> RunPlacement | None:
        """A place on nodes that are free at `start_s`; with `only`, on those that have the image."""
        image = self._image
        if image is None:
            return self._fitted(start_s, available, NOTHING)
        # When every free node has the image in some way, which one is taken makes no
        # difference: only those chosen are then looked at.
        if not available & ~self._board.book.pools.mask_with(image.key):
            place = self._fitted(start_s, available, NOTHING)
            if place is None or not place.missing:
                return place
        ready = self._sources(available, start_s)
        if only is not None:
            available = sum([1 << node for node in ready])
        return self._fitted(start_s, available, ready)

    def _is_enough(self, start_s: int, available: int) -> bool:
        """Whether enough nodes may be free for long enough: to its end, or until a reservation on one of the
        nodes begins or ends, before which it would be suspended.

        That tells most of a long queue apart without looking for nodes. Whoever cannot be suspended is not
        tried often enough for it to pay.
        """
        if not self._is_splittable or self._board.rules.suspension.makes_way_for_all:
            return True
        until_s = self._masks.together_until(start_s, available, self._least)
        if until_s >= start_s + self._workspace.duration_s:
            return True
        return self._board.book.timeline.next_boundary(available, start_s, until_s) < FOREVER

    def _fitted(self, start_s: int, available: int, ready: dict[int, ImageSource]) -> RunPlacement | None:
        """A place on some of the `available` nodes, those that are `ready` first: for as long as it lasts,
        else in segments, on the first nodes that would do if that ends earlier than on those free for
        longest."""
        duration_s, suspension = self._workspace.duration_s, self._board.rules.suspension
        if not self._is_splittable:
            return self._fitted_for(start_s, available, ready, duration_s)
        until_s = start_s + duration_s
        if self._is_one_a_node:
            until_s = min(until_s, self._masks.together_until(start_s, available, self._count))
        if until_s == start_s + duration_s:
            whole = self._fitted_for(start_s, available, ready, duration_s)
            if whole is not None:
                return whole
        least_s = min(duration_s, suspension.least_run_s)
        found = self._fitted_for(start_s, available, ready, least_s)
        longest_s: int | None = until_s - start_s
        if not self._is_one_a_node:
            longest_s = self._longest_window(start_s, available, least_s)
        if longest_s is None or longest_s <= least_s:
            return found
        other = self._fitted_for(start_s, available, ready, longest_s)
        if found is None or (other is not None and other.end_s <= found.end_s):
            return other
        return found

    def _longest_window(self, start_s: int, available: int, least_s: int) -> int | None:
        """For how long, at most, some of the nodes have room for all; None if that is not longer than the
        least. It is looked for among the times for which nodes have room for one instance."""
        last_s = start_s + self._workspace.duration_s
        rows = self._board.everything.rows
        ends = {rows[node].free_until(self._need, start_s, last_s) for node in numbers(available)}
        lengths = sorted(end_s - start_s for end_s in ends if end_s - start_s > least_s)
        best: int | None = None
        low, high = 0, len(lengths)
        while low < high:
            middle = (low + high) // 2
            if isinstance(self._fits(start_s, available, 0, lengths[middle]), int):
                high = middle
            else:
                best, low = lengths[middle], middle + 1
        return best

    def _fits(self, start_s: int, available: int, holders: int, window_s: int) -> list[Fit] | int:
        return fit(
            self._board.everything,
            instances=self._count,
            need=self._need,
            start_s=start_s,
            end_s=start_s + window_s,
            holders=holders,
            available=available,
        )

    def _fitted_for(
        self, start_s: int, available: int, ready: dict[int, ImageSource], window_s: int
    ) -> RunPlacement | None:
        """A place on nodes that have room for all at least for the window."""
        shares = self._chosen(start_s, available, ready, window_s)
        if shares is None:
            return None
        self.is_whatever_its_length = False
        segments: tuple[Segment, ...] | None
        duration_s = self._workspace.duration_s
        if self._is_one_a_node and window_s == duration_s:
            segments = (Segment(start_s, start_s + duration_s, shares),)
        else:
            segments = segments_on(self._board, self._workspace, shares, start_s)
        return None if segments is None else self._allowed(start_s, shares, segments, ready)

    def _chosen(
        self, start_s: int, available: int, ready: dict[int, ImageSource], window_s: int
    ) -> tuple[SegmentShare, ...] | None:
        """The first nodes with room for the window. None if there are too few, or if they are not free for
        long enough and nothing that it makes way for begins or ends there when the first is taken."""
        need, everything = self._need, self._board.everything
        holders = sum([1 << node for node in ready])
        if not self._is_one_a_node:
            fits = self._fits(start_s, available, holders, window_s)
            if isinstance(fits, int):
                return None
            return tuple([SegmentShare(node, count, need * count) for node, count in fits])
        nodes = first_whole(
            everything,
            self._masks,
            instances=self._count,
            start_s=start_s,
            end_s=start_s + window_s,
            holders=holders,
            available=available,
        )
        if nodes is None or not self._may_stop(start_s, nodes, window_s):
            return None
        return tuple([whole_share(node, need) for node in nodes])

    def _may_stop(self, start_s: int, nodes: Sequence[int], window_s: int) -> bool:
        """Whether it may run on these nodes as long as they are free."""
        board = self._board
        if window_s == self._workspace.duration_s or board.rules.suspension.makes_way_for_all:
            return True
        loss_s = next(self._masks.losses(start_s, sum([1 << node for node in nodes])), FOREVER)
        if loss_s >= start_s + self._workspace.duration_s:
            return True
        rows = board.book.timeline.rows
        return any(rows[node].changes_at(loss_s) for node in nodes)

    def _allowed(
        self,
        start_s: int,
        shares: tuple[SegmentShare, ...],
        segments: tuple[Segment, ...],
        ready: dict[int, ImageSource],
    ) -> RunPlacement | None:
        """Segments with where their image comes from, if pools have room for it."""
        image = self._image
        if image is None:
            return RunPlacement(ready_s=start_s, segments=segments)
        sources = ready or self._sources(sum([1 << share.node for share in shares]), start_s)
        place = _sourced(shares, segments, sources, start_s)
        return place if pools_allow(self._board, image, place, self._now_s) else None

    def _later(self, arrival_s: int) -> RunPlacement | None:
        """The first place from `arrival_s` on, when every transfer it may need has ended."""
        start_s = self._first_start(arrival_s)
        if start_s is None:
            return None
        # They have been found free for long enough.
        place = self._best_at(start_s, self._free(start_s), None)
        if place is None:
            return None
        used = [life.ready_s for _, life in place.joined] + ([arrival_s] if place.missing else [])
        return RunPlacement(
            ready_s=max([self._now_s, *used]),
            segments=place.segments,
            joined=place.joined,
            revived=place.revived,
            missing=place.missing,
        )

    def _first_start(self, from_s: int) -> int | None:
        """The first instant from which there is room for all for as long as it lasts."""
        duration_s = self._workspace.duration_s
        if self._is_one_a_node:
            return self._masks.first_start(from_s, duration_s, self._usable, self._count)
        return SlotSweep(
            self._board.everything,
            instances=self._count,
            need=self._need,
            duration_s=duration_s,
            start_s=from_s,
            available=self._usable,
        ).advance()


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
