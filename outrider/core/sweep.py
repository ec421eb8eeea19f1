"""The first instant from which so many instances have room for so long.

As the window [t, t + duration) slides to the right, a node's room can only grow when
something on it ends at t, and only shrink when something on it begins at t + duration. The
sweep therefore looks at each node once and afterwards only at those with a change at an
edge of the window, instead of fitting anew at every candidate start.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.core.timeline import Timeline, numbers


class SlotSweep:
    """Slides a window over the timeline, which must not change meanwhile."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        instances: int,
        need: int,
        duration_s: int,
        start_s: int,
        available: int,
    ) -> None:
        self._timeline = timeline
        self._instances = instances
        self._need = need
        self._duration_s = duration_s
        self._available = available
        self.start_s = start_s
        self._rooms: dict[int, int] = {}
        self.total = self._count_all()

    def _count_all(self) -> int:
        timeline, instances = self._timeline, self._instances
        start_s, end_s = self.start_s, self.start_s + self._duration_s
        touched = timeline.touched(start_s, end_s) & self._available
        total = 0
        for capacity, nodes in timeline.by_capacity.items():
            room = timeline.layout.most(self._need, capacity, instances)
            if room:
                total += room * (nodes & self._available & ~touched).bit_count()
                for node in numbers(nodes & touched):
                    own = timeline.rows[node].most(self._need, start_s, end_s, room)
                    if own != room:
                        self._rooms[node] = own
                    total += own
        return total

    def advance(self) -> int | None:
        """Move to the first start, from here on, with room for all; None if there is none."""
        if self.total >= self._instances:
            return self.start_s
        for start_s, changed in self._edges():
            self.start_s = start_s
            self._recount(changed)
            if self.total >= self._instances:
                return start_s
        return None

    def move_to(self, start_s: int) -> None:
        """Move the window to a later start, whether there is room or not."""
        for edge_s, changed in self._edges():
            if edge_s > start_s:
                break
            self.start_s = edge_s
            self._recount(changed)
        self.start_s = start_s

    def next_edge(self) -> int | None:
        """The next start at which any node's room may change."""
        return next((start_s for start_s, _ in self._edges()), None)

    def _edges(self) -> Iterator[tuple[int, int]]:
        """Window starts at which a node's room may change, with the nodes, in order."""
        ends = self._timeline.boundaries_after(self.start_s)
        begins = self._timeline.boundaries_after(self.start_s + self._duration_s - 1)
        end, begin = next(ends, None), next(begins, None)
        while end is not None or begin is not None:
            # A window that ends where something begins still has its room; it is the next
            # second that loses it.
            at_begin = None if begin is None else begin[0] - self._duration_s + 1
            at_s = min(at for at in (None if end is None else end[0], at_begin) if at is not None)
            changed = 0
            if end is not None and end[0] == at_s:
                changed |= end[1]
                end = next(ends, None)
            if begin is not None and at_begin == at_s:
                changed |= begin[1]
                begin = next(begins, None)
            yield at_s, changed

    def _recount(self, changed: int) -> None:
        timeline = self._timeline
        end_s = self.start_s + self._duration_s
        for node in numbers(changed & self._available):
            row = timeline.rows[node]
            full = timeline.layout.most(self._need, row.capacity, self._instances)
            room = row.most(self._need, self.start_s, end_s, full)
            self.total += room - self._rooms.get(node, full)
            self._rooms[node] = room
