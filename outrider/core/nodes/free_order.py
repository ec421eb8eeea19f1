"""Nodes in the order in which they may be free for one need: where a search for the earliest begins.

What is kept of each node is a bound: before it the need fits at no instant. Bounds only change when
what is taken of a node does, so an order is kept over thousands of searches, each of which then looks
at the few nodes that matter, and not at the site.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import merge

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import mask_of, numbers

MANY = 8
"""Where more than this part of all nodes, as a divisor, has changed, they are sorted anew."""


class FreeOrder:
    """All nodes by their bounds. `bound` tells one from an instant on: it holds until a node is `stale`."""

    def __init__(self, count: int, bound: Callable[[int, int], int]) -> None:
        self._bound = bound
        self._bounds = [FOREVER] * count
        self._later: list[tuple[int, int]] = []
        """Bounds that are still to come, and their nodes, in order."""
        self._open = 0
        """A mask of the nodes whose bounds are over."""
        self._stale = set(range(count))

    def stale(self, nodes: Iterable[int]) -> None:
        """Something else is taken of these nodes now."""
        self._stale.update(nodes)

    def since(self, now_s: int, eligible: int) -> Iterator[tuple[int, int]]:
        """Bounds and nodes of a mask: those on which it may fit now, by number, then the others in order.

        Time goes on from one call to the next.
        """
        self._refresh(now_s)
        self._pass(now_s)
        lapsed: list[tuple[int, int]] = []
        for node in numbers(self._open & eligible):
            bound_s = self._bound(node, now_s)
            if bound_s <= now_s:
                yield now_s, node
                continue
            # What was free once is taken by now.
            self._stale.add(node)
            if bound_s < FOREVER:
                lapsed.append((bound_s, node))
        later = (each for each in self._later if eligible >> each[1] & 1)
        yield from merge(later, sorted(lapsed)) if lapsed else later

    def _refresh(self, now_s: int) -> None:
        """Look at the nodes of which something else is taken: one by one, or at many in one go."""
        stale, self._stale = self._stale, set()
        if len(stale) * MANY > len(self._bounds):
            for node in stale:
                self._bounds[node] = self._bound(node, now_s)
            pairs = ((bound_s, node) for node, bound_s in enumerate(self._bounds) if bound_s < FOREVER)
            self._later, self._open = sorted(pairs), 0
            return
        for node in stale:
            before_s, bound_s = self._bounds[node], self._bound(node, now_s)
            self._bounds[node] = bound_s
            if self._open >> node & 1:
                self._open ^= 1 << node
            elif before_s < FOREVER:
                del self._later[bisect_left(self._later, (before_s, node))]
            if bound_s < FOREVER:
                insort(self._later, (bound_s, node))

    def _pass(self, now_s: int) -> None:
        """Open the nodes whose bounds are over."""
        count = bisect_left(self._later, (now_s + 1, -1))
        if count:
            nodes = (node for _, node in self._later[:count])
            self._open |= mask_of(nodes, len(self._bounds))
            del self._later[:count]
