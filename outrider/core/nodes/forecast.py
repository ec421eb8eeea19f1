"""Until when nodes are busy, as far as best effort is concerned: a guess, not a promise.

Jobs that run end at their limits at the latest, reservations have their nodes as a whole, and jobs
that were steered to nodes will be there. The batch system decides what really happens; this
tells which of several nodes is likely to be free first.

What is known is kept until something else is known under the same name, so that a look at the batch
system costs what has changed since the one before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.free_order import FreeOrder
from outrider.core.nodes.node_timeline import FOREVER, NodeTimeline

MOST_NEEDS = 32
"""For so many needs the order of the nodes is kept, those that were asked for last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """So much of a node, packed as in the slot table, for so long. None is all of it."""

    node: int
    start_s: int
    end_s: int
    amount: int | None = None


class BusyForecast:
    """What is taken of nodes. Where more is taken than a node has, all of it is taken."""

    def __init__(
        self, layout: ResourceLayout, capacities: Sequence[int], taken: Iterable[Taken] = ()
    ) -> None:
        self._layout = layout
        self._capacities = capacities
        self._known: dict[str, tuple[Taken, ...]] = {}
        self._on: dict[int, dict[str, Taken]] = {}
        """By node and name, what is known."""
        self._expected: dict[int, list[Taken]] = {}
        self._known_rows: dict[int, NodeTimeline] = {}
        """Made when they are asked for, of what is known."""
        self._rows: dict[int, NodeTimeline] = {}
        """The same with what is expected; where nothing is, the very same tables."""
        self._openings: OrderedDict[int, FreeOrder] = OrderedDict()
        self._edges: list[tuple[int, str]] = []
        """When what is known begins and ends, and under which name, in order; the past is dropped."""
        self._changed: set[int] = set()
        for each in taken:
            self.take(each)

    def names(self) -> list[str]:
        """Under which anything is known."""
        return list(self._known)

    def known(self, name: str) -> tuple[Taken, ...]:
        """What is known under a name."""
        return self._known.get(name, ())

    def know(self, name: str, taken: tuple[Taken, ...]) -> None:
        """This, on each node at most once, is what is known under a name now: nothing, to forget it."""
        before = self._known.get(name, ())
        if before == taken:
            return
        for each in before:
            del self._on[each.node][name]
        for each in taken:
            self._on.setdefault(each.node, {})[name] = each
        if taken:
            self._known[name] = taken
        else:
            del self._known[name]
        self._list_edges(name, before, taken)
        nodes = {each.node for each in (*before, *taken)}
        for node in nodes:
            self._known_rows.pop(node, None)
        self._change(nodes)

    def take(self, taken: Taken) -> None:
        """Something more is expected to be taken, until `expect_nothing`."""
        if taken.start_s >= taken.end_s:
            return
        expected = self._expected.setdefault(taken.node, [])
        expected.append(taken)
        row = self._rows.get(taken.node)
        if len(expected) == 1:
            self._rows.pop(taken.node, None)
        elif row is not None:
            self._enter(row, taken)
        for each in self._openings.values():
            each.stale((taken.node,))

    def expect_nothing(self) -> None:
        """What was expected is thought about anew."""
        nodes, self._expected = self._expected, {}
        self._change(nodes)

    def changed(self, since_s: int, now_s: int) -> set[int]:
        """The nodes on which something else is taken than when this was asked last, at `since_s`: others have
        told so, or it has begun or ended since. Nodes on which anything is expected count as changed, too."""
        nodes, self._changed = self._changed, set()
        nodes.update(self._expected)
        first, stop = (bisect_right(self._edges, at_s, key=_instant) for at_s in (since_s, now_s))
        for _, name in self._edges[first:stop]:
            nodes.update(each.node for each in self._known[name])
        del self._edges[:first]
        return nodes

    def free_from(self, node: int, need: int, from_s: int, duration_s: int) -> int:
        """The first instant from `from_s` on from which `need` is free for so long; FOREVER if none."""
        row = self._rows.get(node) or self._row(node)
        if row is None:
            return from_s if self._layout.fits(need, self._capacities[node]) else FOREVER
        return row.first_gap(need, from_s, duration_s)

    def free_until(self, node: int, need: int, at_s: int) -> int:
        """Until when `need` is free from an instant on: that instant itself if it is not."""
        row = self._row(node)
        if row is None:
            return FOREVER if self._layout.fits(need, self._capacities[node]) else at_s
        return row.free_until(need, at_s)

    def openings(self, need: int, now_s: int, eligible: int) -> Iterator[tuple[int, int]]:
        """Nodes of a mask, by an instant before which `need` is not free there for however short."""
        found = self._openings.get(need)
        if found is None:
            found = FreeOrder(len(self._capacities), lambda node, from_s: self._bound(node, need, from_s))
            self._openings[need] = found
            if len(self._openings) > MOST_NEEDS:
                self._openings.popitem(last=False)
        self._openings.move_to_end(need)
        return found.since(now_s, eligible)

    def _bound(self, node: int, need: int, from_s: int) -> int:
        row = self._row(node)
        if row is None:
            return from_s if self._layout.fits(need, self._capacities[node]) else FOREVER
        return row.next_fit(need, from_s)

    def _list_edges(self, name: str, before: tuple[Taken, ...], after: tuple[Taken, ...]) -> None:
        edges = self._edges
        old, new = ({at_s for e in taken for at_s in (e.start_s, e.end_s)} for taken in (before, after))
        for at_s in old - new:
            index = bisect_left(edges, (at_s, name))
            if index < len(edges) and edges[index] == (at_s, name):
                del edges[index]
        for at_s in new - old:
            insort(edges, (at_s, name))

    def _change(self, nodes: Iterable[int]) -> None:
        self._changed.update(nodes)
        for node in nodes:
            self._rows.pop(node, None)
        for each in self._openings.values():
            each.stale(nodes)

    def _row(self, node: int) -> NodeTimeline | None:
        """What is free of a node; None if nothing is taken of it."""
        row = self._rows.get(node)
        if row is not None:
            return row
        expected = self._expected.get(node)
        known = self._known_row(node)
        if not expected:
            if known is not None:
                self._rows[node] = known
            return known
        row = self._rows[node] = NodeTimeline(self._layout, self._capacities[node])
        if known is not None:
            row.times, row.free = known.times.copy(), known.free.copy()
        for taken in expected:
            self._enter(row, taken)
        return row

    def _known_row(self, node: int) -> NodeTimeline | None:
        row, known = self._known_rows.get(node), self._on.get(node)
        if row is None and known:
            row = self._known_rows[node] = NodeTimeline(self._layout, self._capacities[node])
            for taken in known.values():
                self._enter(row, taken)
        return row

    def _enter(self, row: NodeTimeline, taken: Taken) -> None:
        if taken.start_s >= taken.end_s:
            return
        if taken.amount is not None and row.fits(taken.amount, taken.start_s, taken.end_s):
            row.reserve(taken.amount, taken.start_s, taken.end_s)
            return
        for free, from_s, until_s in list(row.steps(taken.start_s, taken.end_s)):
            is_part = taken.amount is not None and self._layout.fits(taken.amount, free)
            amount = taken.amount if is_part and taken.amount is not None else free
            if amount:
                row.reserve(amount, from_s, until_s)


def _instant(edge: tuple[int, str]) -> int:
    return edge[0]
