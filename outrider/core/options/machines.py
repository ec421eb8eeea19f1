"""The nodes of a site over time, and where the instances of an option go.

Built of the slot tables of `core.nodes`. Instances go to the nodes whose free resources are nearest to what
one needs (the Euclidean distance of the paper, each resource as a part of the largest node's): a node that
gets one is nearer for the next, so going through the nodes once, in that order, gives the same.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from enum import Enum

from outrider.core.model import Node
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.node_timeline import NodeTimeline

Places = tuple[tuple[int, int], ...]
"""Nodes, by number, and how many instances each has."""


class Mapping(Enum):
    """Which of the nodes with room get an option's instances."""

    NEAREST = "nearest"
    """Whose free resources, as parts of the largest node's, are nearest to an instance's."""
    NEAREST_AMOUNT = "nearest-amount"
    """The same in plain amounts, where the resource with the largest numbers decides."""
    FIRST = "first"
    """In the order of the nodes."""


class Machines:
    """What is free on each node, at each instant."""

    def __init__(self, nodes: Sequence[Node], *, mapping: Mapping, is_bundled: bool) -> None:
        """`is_bundled`: all instances of an option are on one node."""
        self.layout = ResourceLayout.of_nodes(nodes)
        self.rows = [NodeTimeline(self.layout, self.layout.pack(node.capacity)) for node in nodes]
        # What all nodes together have free: where that is too little nobody has to look at each.
        self._total = NodeTimeline(self.layout, sum(row.capacity for row in self.rows))
        self.is_bundled = is_bundled
        self._mapping = mapping
        names = self.layout.names
        largest = [max(node.capacity[name] for node in nodes) for name in names]
        self._units = [most if mapping is Mapping.NEAREST else 1 for most in largest]
        self._large: dict[int, list[int]] = {}
        self._most: dict[int, int] = {}
        self._distances: dict[tuple[int, int], float] = {}
        self._ends: list[int] = []
        # What had no place earlier, until anything is given back: nothing larger or longer has one either.
        self._floors: dict[int, list[tuple[int, int, int]]] = {}

    def copy(self) -> Machines:
        """The same, to be changed apart."""
        other = object.__new__(Machines)
        other.layout, other.is_bundled, other._mapping = self.layout, self.is_bundled, self._mapping
        other._units, other._distances = self._units, self._distances
        other.rows = [row.copy() for row in self.rows]
        other._total = self._total.copy()
        other._large, other._most = self._large, self._most
        other._ends, other._floors = list(self._ends), {}
        return other

    def could_ever(self, need: int, count: int) -> bool:
        """Whether empty nodes have room for so many."""
        known = self._most.get(need)
        if known is None:
            most = self.layout.most
            known = self._most[need] = sum(most(need, row.capacity, 1 << 40) for row in self.rows)
        return known >= count

    def place(self, need: int, count: int, start_s: int, end_s: int) -> Places | None:
        """Nodes for so many instances throughout [start_s, end_s), if there are any."""
        guard, found, room = self.layout.guard, [], 0
        for number, row in enumerate(self.rows):
            times, free = row.times, row.free
            at_start = free[0] if len(times) == 1 else free[bisect_right(times, start_s) - 1]
            if ((at_start | guard) - need) & guard != guard:
                continue
            fits = row.most(need, start_s, end_s, count)
            if fits:
                found.append((self._distance(at_start, need), number, fits))
                room += fits
        if room < count:
            return None
        if self._mapping is not Mapping.FIRST:
            found.sort()
        places = []
        for _, number, fits in found:
            taken = min(fits, count)
            places.append((number, taken))
            count -= taken
            if not count:
                break
        return tuple(places)

    def earliest(
        self, need: int, count: int, duration_s: int, from_s: int, last_s: int
    ) -> tuple[int, Places] | None:
        """The first start from `from_s` to `last_s` at which there are nodes for so long, and the nodes."""
        floors = self._floors.setdefault(need, [])
        for fewer, shorter_s, start_s in floors:
            if fewer <= count and shorter_s <= duration_s and start_s > from_s:
                from_s = start_s
        if from_s > last_s:
            return None
        start_s = self._first_start(need, count, duration_s, from_s, last_s)
        floors.append((count, duration_s, start_s))
        if start_s > last_s:
            return None
        places = self.place(need, count, start_s, start_s + duration_s)
        assert places is not None
        return start_s, places

    def _first_start(self, need: int, count: int, duration_s: int, from_s: int, last_s: int) -> int:
        if count == 1:
            return min(row.first_gap(need, from_s, duration_s) for row in self._large_enough(need))
        ends, total, whole = self._ends, self._total, need * count
        start_s = total.first_gap(whole, from_s, duration_s)
        # From when on each node has room for one: until then nobody has to look at it.
        opens = [(row, row.first_gap(need, start_s, duration_s)) for row in self._large_enough(need)]
        while start_s <= last_s:
            room, end_s = 0, start_s + duration_s
            for number, (row, open_s) in enumerate(opens):
                if open_s > start_s:
                    continue
                fits = row.most(need, start_s, end_s, count)
                if not fits:
                    opens[number] = row, row.first_gap(need, start_s, duration_s)
                    continue
                room += fits
                if room >= count:
                    return start_s
            index = bisect_right(ends, start_s)
            if index == len(ends):
                break
            start_s = total.first_gap(whole, ends[index], duration_s)
        return last_s + 1

    def _large_enough(self, need: int) -> list[NodeTimeline]:
        """The nodes that have room for one when they are empty."""
        known = self._large.get(need)
        if known is None:
            fits = self.layout.fits
            known = [number for number, row in enumerate(self.rows) if fits(need, row.capacity)]
            self._large[need] = known
        return [self.rows[number] for number in known]

    def take(self, need: int, places: Places, start_s: int, end_s: int) -> None:
        for number, count in places:
            self.rows[number].reserve(need * count, start_s, end_s)
        self._total.reserve(need * sum(count for _, count in places), start_s, end_s)
        insort(self._ends, end_s)

    def give_back(self, need: int, places: Places, start_s: int, end_s: int) -> None:
        for number, count in places:
            self.rows[number].release(need * count, start_s, end_s)
        self._total.release(need * sum(count for _, count in places), start_s, end_s)
        self._ends.remove(end_s)
        self._floors.clear()

    def pass_until(self, now_s: int) -> None:
        """Nobody asks about earlier instants any more."""
        gone = bisect_right(self._ends, now_s)
        if gone:
            del self._ends[:gone]
            self._total.forget_before(now_s)
            for row in self.rows:
                if len(row.times) > 1 and row.times[1] <= now_s:
                    row.forget_before(now_s)

    def forget_failures(self) -> None:
        self._floors.clear()

    def _distance(self, free: int, need: int) -> float:
        if self._mapping is Mapping.FIRST:
            return 0.0
        known = self._distances.get((free, need))
        if known is None:
            rest = self.layout.unpack(free - need)
            parts = zip(self.layout.names, self._units, strict=True)
            known = sum((rest[name] / unit) ** 2 for name, unit in parts)
            self._distances[free, need] = known
        return known
