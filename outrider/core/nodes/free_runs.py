"""From when until when each node is free for a need: listed once for all who look for a start from then on.

The options of a request are such: they need as much of a node, and differ in how many nodes and for how long.
Runs of many nodes are alike, since what ends them took many, so they are kept by their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from outrider.core.nodes.node_timeline import NodeTimeline


class FreeRuns:
    """Those that begin by `to_s`, followed until `until_s`. It holds as long as nothing changes."""

    __slots__ = ("_nodes_of", "from_s", "to_s", "until_s")

    def __init__(
        self,
        rows: Sequence[NodeTimeline],
        nodes: Iterable[int],
        need: int,
        *,
        from_s: int,
        to_s: int,
        until_s: int,
        untouched: Iterable[int] = (),
    ) -> None:
        """`untouched`: more nodes, of which nothing is taken before `until_s`."""
        self.from_s, self.to_s, self.until_s = from_s, to_s, until_s
        found: dict[tuple[int, int], list[int]] = {(from_s, until_s): list(untouched)}
        for node in nodes:
            for run in rows[node].runs(need, from_s, to_s, until_s):
                known = found.get(run)
                if known is None:
                    found[run] = [node]
                else:
                    known.append(node)
        self._nodes_of = found

    def add_starts(self, changes: dict[int, int], duration_s: int, available: int | None) -> None:
        """At how many more nodes, or fewer, one can start for so long from each instant up to `to_s` on.
        `available`: a mask of the nodes that count, if not all do."""
        for (begin_s, end_s), nodes in self._nodes_of.items():
            if end_s - begin_s >= duration_s:
                count = _count(nodes, available)
                after_s = min(self.to_s, end_s - duration_s) + 1
                changes[begin_s] = changes.get(begin_s, 0) + count
                changes[after_s] = changes.get(after_s, 0) - count

    def covers(self, start_s: int, end_s: int) -> bool:
        """Whether it is known who is free throughout an interval."""
        return self.from_s <= start_s <= self.to_s and end_s <= self.until_s

    def throughout(self, start_s: int, end_s: int) -> Iterator[int]:
        """The nodes that are free in all of an interval that is covered."""
        for (begin_s, until_s), nodes in self._nodes_of.items():
            if begin_s <= start_s and end_s <= until_s:
                yield from nodes

    def count(self, start_s: int, end_s: int, available: int | None) -> int:
        """How many these are."""
        return sum(
            _count(nodes, available)
            for (begin_s, until_s), nodes in self._nodes_of.items()
            if begin_s <= start_s and end_s <= until_s
        )


class RoomsFrom:
    """For how many instances, none to two, nodes have room from one instant on. Nodes are looked at once."""

    __slots__ = ("_ends", "_need", "_rows", "_start_s", "until_s")

    def __init__(self, rows: Sequence[NodeTimeline], need: int, start_s: int, until_s: int) -> None:
        self._rows, self._need, self._start_s = rows, need, start_s
        self.until_s = until_s
        self._ends: dict[int, tuple[int, int]] = {}
        """Until when there is room for one, and for two."""

    def room(self, node: int, end_s: int) -> int:
        """For how many until an instant that is no later than `until_s`."""
        ends = self._ends.get(node)
        if ends is None:
            row, need, start_s = self._rows[node], self._need, self._start_s
            one_s = two_s = row.free_until(need, start_s, self.until_s)
            if one_s > start_s:
                two_s = row.free_until(2 * need, start_s, one_s)
            ends = self._ends[node] = one_s, two_s
        return 0 if ends[0] < end_s else 1 if ends[1] < end_s else 2


def _count(nodes: Sequence[int], available: int | None) -> int:
    return len(nodes) if available is None else sum(available >> node & 1 for node in nodes)
