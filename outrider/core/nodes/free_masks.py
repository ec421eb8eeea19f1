"""Which nodes of a site are free for a need at each instant: steps in time, each with a mask of nodes.

Whoever looks for a gang's start asks for the same need at many instants. From the tables of single nodes each
answer costs a look at every node; here it costs a look at one step, or at those until the gang's end. The
steps are derived from the tables, and what changes there is entered here by `refresh`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from outrider.core.nodes.node_timeline import FOREVER, NodeTimeline


class FreeStairs:
    """Until when so many of some nodes stay free together, from one instant on.

    It holds until the masks change. Steps are passed as far as somebody asks.
    """

    __slots__ = ("_counts", "_index", "_left", "_masks", "_times", "_untils", "at_s", "count", "free")

    def __init__(self, times: list[int], masks: list[int], at_s: int, nodes: int) -> None:
        self._times, self._masks = times, masks
        self._index = bisect_right(times, at_s) - 1
        self._left = self.free = masks[self._index] & nodes
        self.at_s = at_s
        self.count = self.free.bit_count()
        """How many are free at the first instant."""
        self._counts = [-self.count]
        self._untils: list[int] = []

    def until_s(self, nodes: int) -> int:
        """Until when so many stay free together; the first instant if they are fewer."""
        counts, untils = self._counts, self._untils
        while counts[-1] <= -nodes:
            self._index += 1
            if self._index == len(self._times):
                self._index -= 1
                return FOREVER
            self._left &= self._masks[self._index]
            count = -self._left.bit_count()
            if count != counts[-1]:
                counts.append(count)
                untils.append(self._times[self._index])
        index = bisect_right(counts, -nodes)
        return untils[index - 1] if index else self.at_s


class FreeMasks:
    """The steps for one need."""

    __slots__ = ("_guard", "_need", "entered", "masks", "times")

    def __init__(self, rows: Sequence[NodeTimeline], need: int, guard: int) -> None:
        self._need = need
        self._guard = guard
        self.entered = 0
        """How many of the changes that wait for it are in it."""
        self.times = [0]
        self.masks = [0]
        self.refresh(rows, range(len(rows)), 0, FOREVER)

    def at(self, at_s: int) -> int:
        """The nodes that are free at an instant."""
        return self.masks[bisect_right(self.times, at_s) - 1]

    def together_until(self, at_s: int, nodes: int, count: int) -> int:
        """Until when so many of some nodes stay free together; that instant itself if they are fewer."""
        times, masks = self.times, self.masks
        index = bisect_right(times, at_s) - 1
        left = masks[index] & nodes
        if left.bit_count() < count:
            return at_s
        for later in range(index + 1, len(times)):
            left &= masks[later]
            if left.bit_count() < count:
                return times[later]
        return FOREVER

    def stairs(self, at_s: int, nodes: int) -> FreeStairs:
        """The same for any count of them."""
        return FreeStairs(self.times, self.masks, at_s, nodes)

    def throughout(self, start_s: int, end_s: int) -> int:
        """The nodes that are free in all of [start_s, end_s)."""
        times, masks = self.times, self.masks
        index = bisect_right(times, start_s)
        free, last = masks[index - 1], len(times)
        while index < last and times[index] < end_s:
            free &= masks[index]
            index += 1
        return free

    def all_until(self, nodes: int, start_s: int, end_s: int) -> int:
        """The first instant from `start_s` on at which not all of some nodes are free; at most `end_s`."""
        times, masks = self.times, self.masks
        index = bisect_right(times, start_s) - 1
        if nodes & ~masks[index]:
            return start_s
        for later in range(index + 1, len(times)):
            if times[later] >= end_s:
                break
            if nodes & ~masks[later]:
                return times[later]
        return end_s

    def next_all(self, nodes: int, start_s: int, before_s: int) -> int:
        """The first instant from `start_s` on at which all of them are; FOREVER if never. If that is not
        earlier than `before_s`, any instant from then on."""
        times, masks = self.times, self.masks
        index = bisect_right(times, start_s)
        if masks[index - 1] & nodes == nodes:
            return start_s
        for at_s, mask in zip(islice(times, index, None), islice(masks, index, None), strict=True):
            if mask & nodes == nodes or at_s >= before_s:
                return at_s
        return FOREVER

    def losses(self, from_s: int, nodes: int) -> Iterator[int]:
        """Later instants at which any of some nodes that were free until then is so no more, in order."""
        times, masks = self.times, self.masks
        index = bisect_right(times, from_s) - 1
        left = masks[index] & nodes
        for later in range(index + 1, len(times)):
            if left & ~masks[later]:
                yield times[later]
                left &= masks[later]
                if not left:
                    return

    def any_time(self, start_s: int, end_s: int) -> int:
        """The nodes that are free at any instant of [start_s, end_s)."""
        times, masks = self.times, self.masks
        index = bisect_right(times, start_s)
        free, last = masks[index - 1], len(times)
        while index < last and times[index] < end_s:
            free |= masks[index]
            index += 1
        return free

    def first_start(self, from_s: int, duration_s: int, nodes: int, count: int) -> int | None:
        """The first instant from which so many of some nodes are free together for so long."""
        times, masks = self.times, self.masks
        last = len(times)
        start_s = from_s
        for index in range(bisect_right(times, from_s) - 1, last):
            start_s = max(from_s, times[index])
            left = masks[index] & nodes
            end_s, later = start_s + duration_s, index + 1
            while left.bit_count() >= count:
                if later == last or times[later] >= end_s:
                    return start_s
                left &= masks[later]
                later += 1
        return None

    def has_many(self, from_s: int, to_s: int, nodes: int, count: int) -> bool:
        """Whether at any instant of [from_s, to_s) so many of some nodes are free."""
        times, masks = self.times, self.masks
        first, stop = bisect_right(times, from_s) - 1, bisect_left(times, to_s)
        return any((masks[index] & nodes).bit_count() >= count for index in range(first, stop))

    def refresh(self, rows: Sequence[NodeTimeline], nodes: Iterable[int], start_s: int, end_s: int) -> None:
        """Look again what is free of these nodes in [start_s, end_s)."""
        free = taken = 0
        mixed: list[int] = []
        for node in nodes:
            is_free = self._is_free_throughout(rows[node], start_s, end_s)
            if is_free is None:
                mixed.append(node)
            elif is_free:
                free |= 1 << node
            else:
                taken |= 1 << node
        if free or taken:
            self._set(free, taken, start_s, end_s)
        for node in mixed:
            row = rows[node]
            for amount, from_s, until_s in row.steps(start_s, end_s):
                is_free = ((amount | self._guard) - self._need) & self._guard == self._guard
                self._set(is_free << node, (not is_free) << node, from_s, until_s)

    def change(self, nodes: int, capacity: int, start_s: int, end_s: int, *, is_free: bool) -> None:
        """These nodes, of one capacity, are free as a whole in [start_s, end_s), or taken."""
        need, guard = self._need, self._guard
        if need and ((capacity | guard) - need) & guard == guard:
            self._set(nodes if is_free else 0, 0 if is_free else nodes, start_s, end_s)

    def forget_before(self, at_s: int) -> None:
        """Drop the past."""
        index = bisect_right(self.times, at_s) - 1
        if index > 0:
            del self.times[:index], self.masks[:index]
            self.times[0] = 0

    def _is_free_throughout(self, row: NodeTimeline, start_s: int, end_s: int) -> bool | None:
        """Whether the need is free throughout; None if it is at some instants only."""
        times, free, need, guard = row.times, row.free, self._need, self._guard
        index = bisect_right(times, start_s)
        is_free = ((free[index - 1] | guard) - need) & guard == guard
        last = len(times)
        while index < last and times[index] < end_s:
            if (((free[index] | guard) - need) & guard == guard) is not is_free:
                return None
            index += 1
        return is_free

    def _set(self, free: int, taken: int, start_s: int, end_s: int) -> None:
        times, masks = self.times, self.masks
        first = self._cut(start_s)
        stop = len(times) if end_s == FOREVER else self._cut(end_s)
        for index in range(first, stop):
            masks[index] = (masks[index] | free) & ~taken
        # Neighbours that became equal are one step: the later one first, so that the others stay in place.
        for index in range(min(stop, len(times) - 1), max(first - 1, 0), -1):
            if masks[index] == masks[index - 1]:
                del times[index], masks[index]

    def _cut(self, at_s: int) -> int:
        """Make a step begin at an instant; its index."""
        index = bisect_left(self.times, at_s)
        if index == len(self.times) or self.times[index] != at_s:
            self.times.insert(index, at_s)
            self.masks.insert(index, self.masks[index - 1])
        return index
