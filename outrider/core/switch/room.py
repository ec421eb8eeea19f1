"""What is free on nodes, and which node has room: found by amount, since many nodes have the same left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from outrider.core.switch.model import NOWHERE, Amount, fits, minus, plus

Allowed = Callable[[int], bool]


class Room:
    """Free amounts of nodes. Those of `closed` are never found."""

    def __init__(self, free: Iterable[Amount], closed: frozenset[int] = frozenset()) -> None:
        self.free = list(free)
        self._closed = closed
        self._nodes: dict[Amount, list[int]] = {}
        """By amount, a heap of nodes that have had that much left; some may have changed since."""
        for node, amount in enumerate(self.free):
            if node not in closed:
                self._nodes.setdefault(amount, []).append(node)
        for nodes in self._nodes.values():
            heapify(nodes)

    def take(self, node: int, demand: Amount) -> None:
        self._set(node, minus(self.free[node], demand))

    def give(self, node: int, demand: Amount) -> None:
        self._set(node, plus(self.free[node], demand))

    def has(self, node: int, demand: Amount) -> bool:
        return node not in self._closed and fits(demand, self.free[node])

    def first(self, demand: Amount, allowed: Allowed | None = None) -> int:
        """The node of the lowest number that has room."""
        found = NOWHERE
        for amount in self._amounts(demand):
            node = self._lowest(amount, allowed)
            if node != NOWHERE and (found == NOWHERE or node < found):
                found = node
        return found

    def tightest(self, demand: Amount, allowed: Allowed | None = None) -> int:
        """The node that has the least left afterwards; of equal ones that of the lowest number."""
        for amount in sorted(self._amounts(demand)):
            node = self._lowest(amount, allowed)
            if node != NOWHERE:
                return node
        return NOWHERE

    def _amounts(self, demand: Amount) -> list[Amount]:
        return [amount for amount in self._nodes if fits(demand, amount)]

    def _lowest(self, amount: Amount, allowed: Allowed | None) -> int:
        nodes = self._nodes[amount]
        while nodes and self.free[nodes[0]] != amount:
            heappop(nodes)
        if not nodes:
            del self._nodes[amount]
            return NOWHERE
        if allowed is None or allowed(nodes[0]):
            return nodes[0]
        return min(self._allowed(amount, allowed), default=NOWHERE)

    def _allowed(self, amount: Amount, allowed: Allowed) -> Iterator[int]:
        return (node for node in self._nodes[amount] if self.free[node] == amount and allowed(node))

    def _set(self, node: int, amount: Amount) -> None:
        self.free[node] = amount
        if node not in self._closed:
            heappush(self._nodes.setdefault(amount, []), node)
