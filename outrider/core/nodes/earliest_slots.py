"""The first instant from which so many instances have room for so long.

As the window [t, t + duration) slides to the right, a node's room can only grow when
something on it ends at t, and only shrink when something on it begins at t + duration. The
sweep therefore looks at each node once and afterwards only at those with a change at an
edge of the window, instead of fitting anew at every candidate start. Where much of a site is
wanted most starts are ruled out by what is taken of all nodes together (see `total_use`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TypeVar

from outrider.core.nodes.free_runs import FreeRuns
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline, mask_of, numbers

Result = TypeVar("Result")

EDGES_COUNTED = 64
"""After so many starts in vain it is asked when there can be room at all."""
EDGES_A_STEP = 512
"""So many starts, of which each costs a look at a few nodes, are one step of a search."""
STARTS_LISTED_S = 86_400
"""For so long at a time the starts of all nodes are listed."""
VAST_PART = 4
"""What wants such a part (1 / VAST_PART) of all room or more is not tried at one start after the other."""
MOST_LISTED = 8
"""Where a node has room for more instances than that they are not listed one by one."""
FEW_LISTED = 2
"""Where it has room for no more than that, listing costs less than counting the nodes at one start."""


def finished(steps: Generator[object, None, Result]) -> Result:
    """What a search finds that takes all of its steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: Result = ended.value
            return found


class SlotSweep:
    """Slides a window over the timeline, which must not change meanwhile."""

    def __init__(
        self,
        timeline: SiteTimeline,
        *,
        instances: int,
        need: int,
        duration_s: int,
        start_s: int,
        available: int,
        most_per_node: int | None = None,
    ) -> None:
        self._timeline = timeline
        self._instances = instances
        self._need = need
        self._duration_s = duration_s
        self._available = available
        self.start_s = start_s
        layout = timeline.layout
        most = instances if most_per_node is None else most_per_node
        self._full = {capacity: layout.most(need, capacity, most) for capacity in timeline.by_capacity}
        # Of the nodes that have less room than when they are empty; and masks of these, and of
        # those with no room at all.
        self._rooms: dict[int, int] = {}
        self._less = self._none = 0
        self._total: int | None = None
        self._runs: FreeRuns | None = None
        """Of the nodes with room for an instance, where the start was found by a list."""

    @property
    def total(self) -> int:
        """How many instances there is room for in the window."""
        if self._total is None:
            self._total = self._count_all()
        return self._total

    def roomy(self) -> int:
        """A mask that leaves out the nodes without room for a single instance in the window."""
        if self._total is not None:
            return self._available & ~self._none
        if self._runs is not None:
            free = self._runs.throughout(self.start_s, self.start_s + self._duration_s)
            return self._available & mask_of(free, len(self._timeline.rows))
        timeline, need = self._timeline, self._need
        rows, end_s = timeline.rows, self.start_s + self._duration_s
        touched = timeline.touched(self.start_s, end_s) & self._available
        taken = (node for node in numbers(touched) if not rows[node].fits(need, self.start_s, end_s))
        return self._available & ~mask_of(taken, len(rows))

    def _move(self, start_s: int) -> None:
        """The window begins there; nothing is known of its room."""
        self.start_s, self._total, self._runs = start_s, None, None
        self._rooms = {}

    def _count_all(self) -> int:
        timeline, rooms = self._timeline, self._rooms
        start_s, end_s = self.start_s, self.start_s + self._duration_s
        touched = timeline.touched(start_s, end_s) & self._available
        total = 0
        for capacity, nodes in timeline.by_capacity.items():
            full = self._full[capacity]
            if full:
                total += full * (nodes & self._available).bit_count()
                for node in numbers(nodes & touched):
                    room = self._room(node, full)
                    if room != full:
                        rooms[node] = room
                        total -= full - room
        count = len(timeline.rows)
        self._less = mask_of(rooms, count)
        self._none = mask_of((node for node, room in rooms.items() if not room), count)
        return total

    def _set(self, node: int, room: int, full: int) -> None:
        bit = 1 << node
        self._rooms[node] = room
        self._less = self._less | bit if room < full else self._less & ~bit
        self._none = self._none & ~bit if room else self._none | bit

    def _room(self, node: int, full: int) -> int:
        """How many instances a node has room for throughout the window."""
        end_s = self.start_s + self._duration_s
        return self._timeline.rows[node].room(self._need, full, self.start_s, end_s)

    def advance(self) -> int | None:
        """Move to the first start, from here on, with room for all; None if there is none."""
        return finished(self.steps())

    def steps(self) -> Generator[int, None, int | None]:
        """The same a step at a time: before what is yielded there is no start."""
        is_listed = max(self._full.values()) <= MOST_LISTED
        from_s = self.start_s
        if not (is_listed and self._is_vast):
            if max(self._full.values()) <= FEW_LISTED:
                last_s = from_s + STARTS_LISTED_S
                start_s = self._first_listed(from_s, last_s)
                if start_s is not None:
                    return start_s
                from_s = last_s + 1
            elif self._is_enough or self._pass_edges(EDGES_COUNTED):
                return self.start_s if self._is_enough else None
            else:
                from_s = self.start_s
            yield from_s
        for first_s, last_s in self._timeline.chances(
            self._need, self._instances, self._duration_s, self._available, from_s
        ):
            if is_listed:
                start_s = yield from self._first_start(first_s, last_s)
                if start_s is not None:
                    return start_s
                continue
            self._move(first_s)
            while not self._is_enough:
                if self._pass_edges(EDGES_A_STEP):
                    return self.start_s if self._is_enough else None
                yield self.start_s
            return self.start_s
        return None

    @property
    def _is_vast(self) -> bool:
        """Whether so much of the site is wanted that there is room at few of the starts."""
        most = 0
        for capacity, nodes in self._timeline.by_capacity.items():
            most += self._full[capacity] * (nodes & self._available).bit_count()
        return self._instances * VAST_PART >= most

    @property
    def _is_enough(self) -> bool:
        return self.total >= self._instances

    def _pass_edges(self, most: int) -> bool:
        """Move from start to start until there is room for all, or so many were in vain. Whether it is
        over: there is room, or no start is left."""
        passed = 0
        for start_s, ended, begun in islice(edges(self._timeline, self.start_s, self._duration_s), most):
            passed += 1
            self.start_s = start_s
            self._recount(ended, begun)
            if self._is_enough:
                return True
        return passed < most

    def _first_start(self, from_s: int, to_s: int) -> Generator[int, None, int | None]:
        """The first of these starts with room for all, where a node has room for a few instances."""
        while from_s <= to_s:
            last_s = min(to_s, from_s + STARTS_LISTED_S)
            if self._timeline.is_quiet(from_s, FOREVER):
                last_s = to_s
            found_s = self._first_listed(from_s, last_s)
            if found_s is not None:
                return found_s
            from_s = last_s + 1
            yield from_s
        return None

    def _first_listed(self, from_s: int, to_s: int) -> int | None:
        """Move to the first of these starts, by a list of when each node is free for one instance, for two,
        and so on: nodes are not counted anew at each start."""
        timeline, duration_s = self._timeline, self._duration_s
        usable = None if self._available == timeline.everyone else self._available
        listed = [
            timeline.free_runs(self._need * count, from_s, to_s, to_s + duration_s)
            for count in range(1, max(self._full.values()) + 1)
        ]
        changes = {from_s: 0}
        for runs in listed:
            runs.add_starts(changes, duration_s, usable)
        total = 0
        for at_s in sorted(changes):
            total += changes[at_s]
            if total >= self._instances:
                self._move(at_s)
                self._runs = listed[0]
                return at_s
        return None

    def _recount(self, ended: int, begun: int) -> None:
        """Count the nodes anew on which something ended or began at an edge of the window."""
        rows, rooms, end_s = self._timeline.rows, self._rooms, self.start_s + self._duration_s
        total = self.total
        # What ends can only give room, what begins only take it.
        growing, shrinking = ended & self._less, begun & ~self._none
        for node in numbers((growing | shrinking) & self._available):
            row = rows[node]
            full = self._full[row.capacity]
            room = rooms.get(node, full)
            if (shrinking >> node & 1 and not row.fits(self._need * room, self.start_s, end_s)) or (
                growing >> node & 1 and row.fits(self._need * (room + 1), self.start_s, end_s)
            ):
                # Of a whole node there is one or none: what changed is known.
                self._set(node, 1 - room if full == 1 else self._room(node, full), full)
                total += rooms[node] - room
        self._total = total


def next_edge(timeline: SiteTimeline, nodes: int, start_s: int, duration_s: int) -> int | None:
    """The next start of a window at which the room on any of `nodes` may change.

    It is looked for in what is taken now: instants at which something that was withdrawn would
    have begun or ended are passed over, so that the answer does not depend on the past.
    """
    rows = timeline.rows
    for at_s, ended, begun in edges(timeline, start_s, duration_s):
        if any(rows[node].grows_at(at_s) for node in numbers(ended & nodes)):
            return at_s
        last_s = at_s + duration_s - 1
        if any(rows[node].shrinks_at(last_s) for node in numbers(begun & nodes)):
            return at_s
    return None


def edges(timeline: SiteTimeline, start_s: int, duration_s: int) -> Iterator[tuple[int, int, int]]:
    """Later starts of a window at which a node's room may change, in order.

    With each a mask of the nodes on which something ends there, and of those on which
    something begins within the window's last second.
    """
    ends = timeline.boundaries_after(start_s)
    begins = timeline.boundaries_after(start_s + duration_s - 1)
    end, begin = next(ends, None), next(begins, None)
    while end is not None or begin is not None:
        # A window that ends where something begins still has its room; it is the next second
        # that loses it.
        at_begin = None if begin is None else begin[0] - duration_s + 1
        at_s = min(at for at in (None if end is None else end[0], at_begin) if at is not None)
        ended = begun = 0
        if end is not None and end[0] == at_s:
            ended = end[2]
            end = next(ends, None)
        if begin is not None and at_begin == at_s:
            begun = begin[1]
            begin = next(begins, None)
        yield at_s, ended, begun
