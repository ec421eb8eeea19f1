"""The slot table as anyone would write it who had no need for speed: a number per node and second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.core.model import Node, Resources

Amounts = tuple[int, ...]


def intervals(start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """Every interval within [start_s, end_s) that is not empty."""
    return ((first, last) for first in range(start_s, end_s) for last in range(first + 1, end_s + 1))


class NaiveSlots:
    """What each node has free in each second of a short horizon."""

    def __init__(self, nodes: Sequence[Node], names: Sequence[str], horizon_s: int) -> None:
        self.names = tuple(names)
        self.horizon_s = horizon_s
        self.capacity = [self.amounts(node.capacity) for node in nodes]
        self.free = [[list(capacity) for _ in range(horizon_s)] for capacity in self.capacity]

    def amounts(self, resources: Resources) -> Amounts:
        return tuple(resources[name] for name in self.names)

    def at(self, node: int, at_s: int) -> Amounts:
        """Behind the horizon everything is free."""
        return tuple(self.free[node][at_s]) if at_s < self.horizon_s else self.capacity[node]

    def fits_at(self, node: int, need: Amounts, at_s: int) -> bool:
        return all(want <= have for want, have in zip(need, self.at(node, at_s), strict=True))

    def fits(self, node: int, need: Amounts, start_s: int, end_s: int) -> bool:
        return all(self.fits_at(node, need, at_s) for at_s in range(start_s, end_s))

    def free_until(self, node: int, need: Amounts, start_s: int, end_s: int) -> int:
        return next((at_s for at_s in range(start_s, end_s) if not self.fits_at(node, need, at_s)), end_s)

    def next_fit(self, node: int, need: Amounts, start_s: int) -> int | None:
        instants = range(start_s, max(start_s, self.horizon_s) + 1)
        return next((at_s for at_s in instants if self.fits_at(node, need, at_s)), None)

    def most(self, node: int, need: Amounts, start_s: int, end_s: int, limit: int) -> int:
        count = 0
        while count < limit and self.fits(node, tuple(want * (count + 1) for want in need), start_s, end_s):
            count += 1
        return count

    def next_change(self, node: int, after_s: int) -> int | None:
        instants = range(after_s + 1, self.horizon_s + 1)
        return next((at_s for at_s in instants if self.at(node, at_s) != self.at(node, at_s - 1)), None)

    def is_untouched(self, node: int, start_s: int, end_s: int) -> bool:
        return all(self.at(node, at_s) == self.capacity[node] for at_s in range(start_s, end_s))

    def can_release(self, node: int, need: Amounts, start_s: int, end_s: int) -> bool:
        return all(
            have + want <= most
            for at_s in range(start_s, end_s)
            for have, want, most in zip(self.at(node, at_s), need, self.capacity[node], strict=True)
        )

    def add(self, node: int, need: Amounts, start_s: int, end_s: int, sign: int) -> None:
        for at_s in range(start_s, end_s):
            for index, amount in enumerate(need):
                self.free[node][at_s][index] += sign * amount
