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
from typing import NamedTuple

from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.free_order import FreeOrder, Opening
from outrider.core.nodes.node_timeline import FOREVER, NodeTimeline

FEW = 20
"""As one part of so many they are put into a list one by one, and else it is sorted again."""
MOST_NEEDS = 32
"""For so many needs the order of the nodes is kept, those that were asked for last."""


class Taken(NamedTuple):
    """So much of each of some nodes, packed as in the slot table, for so long. None is all of it."""

    nodes: tuple[int, ...]
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
        """Made when they are asked for, of what is known, and kept as long as nothing in them overlaps."""
        self._overlapping: set[int] = set()
        """Nodes of which something is known for which there is no room beside the rest, or that takes all of
        them: nothing of that can be taken out of their tables."""
        self._rows: dict[int, NodeTimeline] = {}
        """The same with what is expected; where nothing is, the very same tables."""
        self._openings: OrderedDict[int, FreeOrder] = OrderedDict()
        self._edges: list[tuple[int, str]] = []
        """When what is known begins and ends, and under which name, in order; the past is dropped."""
        self._new_edges: list[tuple[int, str]] = []
        """More of them, which are put in order when that is needed."""
        self._changed: set[int] = set()
        self.changes = 0
        """How often anything has become known or expected, or is so no more."""
        self._at_mark: dict[str, tuple[Taken, ...]] | None = None
        """Under each name under which something else has become known since the mark, what was known then;
        None if no mark holds."""
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
        if self._at_mark is not None:
            self._at_mark.setdefault(name, before)
        on, rows = self._on, self._known_rows
        for each in before:
            for node in each.nodes:
                del on[node][name]
                if node in rows:
                    self._leave_row(node, each)
        for each in taken:
            for node in each.nodes:
                known = on.get(node)
                if known is None:
                    on[node] = {name: each}
                else:
                    known[name] = each
                if node in rows:
                    self._join_row(node, each)
        if taken:
            self._known[name] = taken
        else:
            del self._known[name]
        self._list_edges(name, before, taken)
        self._change(set[int]().union(*(each.nodes for each in (*before, *taken))))

    def take(self, taken: Taken) -> None:
        """Something more is expected to be taken, until `expect_nothing`."""
        if taken.start_s >= taken.end_s:
            return
        self.changes += 1
        self._at_mark = None
        for node in taken.nodes:
            expected = self._expected.setdefault(node, [])
            expected.append(taken)
            row = self._rows.get(node)
            if len(expected) == 1:
                self._rows.pop(node, None)
            elif row is not None:
                self._enter(row, taken)
        for each in self._openings.values():
            each.stale(taken.nodes)

    def expect_nothing(self) -> None:
        """What was expected is thought about anew."""
        nodes, self._expected = self._expected, {}
        if nodes:
            self._at_mark = None
            self._change(nodes)

    def changed(self, since_s: int, now_s: int) -> set[int]:
        """The nodes on which something else is taken than when this was asked last, at `since_s`: others have
        told so, or it has begun or ended since. Nodes on which anything is expected count as changed, too."""
        nodes, self._changed = self._changed, set()
        nodes.update(self._expected)
        self._order_edges()
        first, stop = (bisect_right(self._edges, at_s, key=_instant) for at_s in (since_s, now_s))
        for _, name in self._edges[first:stop]:
            nodes.update(*(each.nodes for each in self._known[name]))
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
        return self.order(need, now_s).since(now_s, eligible)

    def order(self, need: int, now_s: int) -> FreeOrder:
        """All nodes by when `need` is free there. It holds until anything changes."""
        found = self._openings.get(need)
        if found is None:
            found = FreeOrder(len(self._capacities), lambda node, from_s: self._opening(node, need, from_s))
            self._openings[need] = found
            if len(self._openings) > MOST_NEEDS:
                self._openings.popitem(last=False)
        self._openings.move_to_end(need)
        found.pass_to(now_s)
        return found

    def mark(self, now_s: int) -> None:
        """Keep in mind in which orders nodes are, for `back_to_mark`."""
        self._at_mark = {}
        for each in self._openings.values():
            each.mark(now_s)

    def back_to_mark(self) -> None:
        """Most of what has become known since the mark is forgotten again: orders are what they were, but for
        nodes of which something else is known. What is free of a node depends on what is known of it, and
        on nothing else; so this saves looks at nodes, and changes no answer."""
        known, self._at_mark = self._at_mark, None
        if known is None:
            return
        changed: set[int] = set()
        for name, before in known.items():
            after = self._known.get(name, ())
            if after != before:
                changed.update(*(each.nodes for each in (*before, *after)))
        for order in self._openings.values():
            order.back(changed)

    def unknown(self, need: int) -> int:
        """How many nodes are looked at before `openings` tells the first."""
        found = self._openings.get(need)
        return len(self._capacities) if found is None else found.unknown

    def _opening(self, node: int, need: int, from_s: int) -> Opening:
        row = self._rows.get(node) or self._row(node)
        if row is None:
            at_s = from_s if self._layout.fits(need, self._capacities[node]) else FOREVER
            return at_s, at_s, 0
        return row.opening(need, from_s)

    def _list_edges(self, name: str, before: tuple[Taken, ...], after: tuple[Taken, ...]) -> None:
        old, new = (
            {each.start_s for each in taken} | {each.end_s for each in taken} for taken in (before, after)
        )
        for at_s in old - new:
            self._order_edges()
            index = bisect_left(self._edges, (at_s, name))
            if index < len(self._edges) and self._edges[index] == (at_s, name):
                del self._edges[index]
        self._new_edges += [(at_s, name) for at_s in new - old]

    def _order_edges(self) -> None:
        if len(self._new_edges) * FEW < len(self._edges):
            for edge in self._new_edges:
                insort(self._edges, edge)
        else:
            self._edges = sorted(self._edges + self._new_edges)
        self._new_edges = []

    def _change(self, nodes: Iterable[int]) -> None:
        self.changes += 1
        self._changed.update(nodes)
        for node in nodes if self._rows else ():
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
            self._overlapping.discard(node)
            for taken in known.values():
                if not self._enter(row, taken):
                    self._overlapping.add(node)
        return row

    def _leave_row(self, node: int, taken: Taken) -> None:
        """This is not known of a node any more."""
        if node in self._overlapping or not self._on[node]:
            del self._known_rows[node]
        elif taken.amount and taken.start_s < taken.end_s:
            self._known_rows[node].release(taken.amount, taken.start_s, taken.end_s)

    def _join_row(self, node: int, taken: Taken) -> None:
        """This is known of a node beside the rest, and after all of it."""
        if not self._enter(self._known_rows[node], taken):
            self._overlapping.add(node)

    def _enter(self, row: NodeTimeline, taken: Taken) -> bool:
        """Take it, or what there is of it; whether there was all of it."""
        if taken.start_s >= taken.end_s:
            return True
        if taken.amount is not None and row.fits(taken.amount, taken.start_s, taken.end_s):
            row.reserve(taken.amount, taken.start_s, taken.end_s)
            return True
        for free, from_s, until_s in list(row.steps(taken.start_s, taken.end_s)):
            is_part = taken.amount is not None and self._layout.fits(taken.amount, free)
            amount = taken.amount if is_part and taken.amount is not None else free
            if amount:
                row.reserve(amount, from_s, until_s)
        return False


def _instant(edge: tuple[int, str]) -> int:
    return edge[0]
