"""Nodes in the order in which they may be free for one need: where a search for the earliest begins.

What is kept of each node is when the need fits first, since when it does for good, and for how long at most
before that. This only changes when what is taken of a node does, so an order is kept over thousands of
searches, each of which then looks at the few nodes that matter, and not at the site.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge, nsmallest

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import mask_of, numbers

MANY = 8
"""Where more than this part of all nodes, as a divisor, has changed, they are sorted anew."""
Opening = tuple[int, int, int]
"""Of a node, as `NodeTimeline.opening` tells it."""


class _Instants:
    """Nodes in the order of an instant of each; those of which it never comes are left out."""

    __slots__ = ("_bits", "_of", "entries", "node")

    def __init__(self, count: int) -> None:
        self._bits = count.bit_length()
        self.node = (1 << self._bits) - 1
        """What of an entry is the node: the rest is the instant. Pairs take twice as long to be sorted."""
        self._of = [FOREVER] * count
        self.entries: list[int] = []

    def __getitem__(self, node: int) -> int:
        return self._of[node]

    def copy(self) -> _Instants:
        found = _Instants(0)
        found._bits, found.node = self._bits, self.node
        found._of, found.entries = self._of.copy(), self.entries.copy()
        return found

    def pairs(self, eligible: int) -> Iterator[tuple[int, int]]:
        """Instants and nodes of a mask, in order."""
        bits, only = self._bits, self.node
        return ((entry >> bits, entry & only) for entry in self.entries if eligible >> (entry & only) & 1)

    def take_until(self, now_s: int) -> list[int]:
        """Leave out the nodes of which the instant is over: those that were there."""
        entries, only = self.entries, self.node
        count = bisect_left(entries, (now_s + 1) << self._bits)
        found = [entry & only for entry in entries[:count]]
        del entries[:count]
        return found

    def put(self, instants: Iterable[tuple[int, int]], nodes: set[int]) -> None:
        """These are the instants of these nodes now: put in one by one, or all sorted in one go."""
        entries, of, bits = self.entries, self._of, self._bits
        if len(nodes) * MANY > len(of):
            only = self.node
            entries = self.entries = [entry for entry in entries if entry & only not in nodes]
            for at_s, node in instants:
                of[node] = at_s
                if at_s < FOREVER:
                    entries.append(at_s << bits | node)
            # Mostly in order already.
            entries.sort()
            return
        for at_s, node in instants:
            before_s = of[node]
            of[node] = at_s
            if before_s < FOREVER:
                entry = before_s << bits | node
                index = bisect_left(entries, entry)
                if index < len(entries) and entries[index] == entry:
                    if at_s == before_s:
                        continue
                    del entries[index]
            if at_s < FOREVER:
                insort(entries, at_s << bits | node)


class FreeOrder:
    """All nodes by when they may be free. `look` tells that from an instant on: it holds until a node is
    `stale`."""

    def __init__(self, count: int, look: Callable[[int, int], Opening]) -> None:
        self._look = look
        self._count = count
        self._first = _Instants(count)
        """When the need fits first; without nodes where that is over."""
        self._good = _Instants(count)
        """Since when it fits for good."""
        self.before: dict[int, int] = {}
        """Of nodes where it fits before that as well, for how long at most."""
        self._open = 0
        """A mask of the nodes on which it may fit now."""
        self._stale = set(range(count))
        self._stale_at_mark: set[int] | None = None
        """What was stale when it was to be kept in mind how it is; None if it is not."""
        self._at_mark: tuple[_Instants, _Instants, dict[int, int], int] | None = None
        """How it was then, if it has changed since."""
        self._is_used = False
        """Whether anybody has asked since."""

    def mark(self, now_s: int) -> None:
        """Keep in mind how it is now, for `back`."""
        if self._is_used and self._stale:
            self._refresh(now_s)
        self._stale_at_mark, self._at_mark, self._is_used = self._stale.copy(), None, False

    def back(self, changed: set[int]) -> None:
        """Of these nodes something else is taken than at the mark, of all others the same as then: be as it
        was then, if fewer nodes are to be looked at for that than otherwise."""
        stale = self._stale_at_mark
        if stale is not None and len(stale) + len(changed) < len(self._stale):
            if self._at_mark is not None:
                self._first, self._good, self.before, self._open = self._at_mark
            self._stale = stale | changed
        self._stale_at_mark = self._at_mark = None

    def stale(self, nodes: Iterable[int]) -> None:
        """Something else is taken of these nodes now."""
        self._stale.update(nodes)

    @property
    def unknown(self) -> int:
        """How many nodes are looked at before anything is told next."""
        return len(self._stale)

    def pass_to(self, now_s: int) -> None:
        """Time goes on, and what has changed counts: asked before anything else is, at each instant."""
        if self._stale:
            self._refresh(now_s)
        opened = self._first.take_until(now_s)
        if opened:
            self._open |= mask_of(opened, self._count)

    def since(self, now_s: int, eligible: int) -> Iterator[tuple[int, int]]:
        """Instants before which it does not fit, and nodes of a mask: those on which it may fit now, by
        number, then the others in order."""
        lapsed: list[tuple[int, int]] = []
        good = self._good
        for node in numbers(self._open & eligible):
            first_s = now_s if good[node] <= now_s else self._look(node, now_s)[0]
            if first_s <= now_s:
                yield now_s, node
                continue
            # What was free once is taken by now.
            self._stale.add(node)
            if first_s < FOREVER:
                lapsed.append((first_s, node))
        later = self._first.pairs(eligible)
        yield from merge(later, sorted(lapsed)) if lapsed else later

    def first_of(self, nodes: Sequence[int], count: int, now_s: int) -> list[int]:
        """The first so many of some nodes, in the order in which `since` tells them."""
        if len(nodes) <= count:
            return list(nodes)
        first, good, is_open = self._first, self._good, self._open
        instants: list[tuple[int, int]] = []
        for node in nodes:
            first_s = first[node]
            if is_open >> node & 1:
                first_s = now_s if good[node] <= now_s else self._look(node, now_s)[0]
            instants.append((first_s, node))
        return [node for _, node in nsmallest(count, instants)]

    def first_from(self, node: int) -> int:
        """Before that it does not fit on a node."""
        return self._first[node]

    def good_from(self, node: int) -> int:
        """Since when it fits on a node for good; FOREVER if it never does."""
        return self._good[node]

    def good_in_order(self, eligible: int) -> Iterator[tuple[int, int]]:
        """The same of all nodes of a mask."""
        return self._good.pairs(eligible)

    def _refresh(self, now_s: int) -> None:
        """Look at the nodes of which something else is taken."""
        self._is_used = True
        if self._stale_at_mark is not None and self._at_mark is None:
            self._at_mark = self._first.copy(), self._good.copy(), self.before.copy(), self._open
        stale, self._stale = self._stale, set()
        found = [(self._look(node, now_s), node) for node in stale]
        before = self.before
        for (_, _, longest_s), node in found:
            if longest_s:
                before[node] = longest_s
            else:
                before.pop(node, None)
        self._open &= ~mask_of(stale, self._count)
        self._first.put(((first_s, node) for (first_s, _, _), node in found), stale)
        self._good.put(((good_s, node) for (_, good_s, _), node in found), stale)
