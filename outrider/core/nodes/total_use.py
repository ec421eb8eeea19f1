"""How much of all nodes together is taken at each instant: a bound that tells most of a long future apart.

Where half of a site is wanted, nearly every instant can be ruled out by one sum, without a look at
single nodes. Nodes of one capacity are one kind; of each kind what begins and ends is kept by instant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from outrider.core.nodes.capacity import FIELD_BITS, LARGEST_AMOUNT, ResourceLayout

FOREVER = 1 << 62
"""Later than any instant: the open end of the last step."""

_FIELD = (1 << (FIELD_BITS - 1)) - 1


class TotalUse:
    """By kind of node, by how much what is taken of all of them changes at an instant."""

    def __init__(self, layout: ResourceLayout, by_capacity: Mapping[int, int]) -> None:
        """`by_capacity` has a mask of the nodes of each capacity."""
        self._layout = layout
        self._by_capacity = by_capacity
        self._changes: dict[int, dict[int, int]] = {capacity: {} for capacity in by_capacity}
        self._before = dict.fromkeys(by_capacity, 0)
        """What was taken when the past ended that is not kept any more."""
        # A sum that leaves its field says nothing.
        self._is_known = all(
            (capacity >> shift & _FIELD) * nodes.bit_count() <= LARGEST_AMOUNT
            for capacity, nodes in by_capacity.items()
            for shift in self._shifts()
        )

    def take(self, amounts: Mapping[int, int], start_s: int, end_s: int) -> None:
        """So much more is taken of the nodes of each kind; less, if it is negative."""
        for capacity, amount in amounts.items():
            changes = self._changes[capacity]
            changes[start_s] = changes.get(start_s, 0) + amount
            changes[end_s] = changes.get(end_s, 0) - amount

    def enter(self, capacity: int, changes: Mapping[int, int]) -> None:
        """What is taken of a node of this kind changes so, at these instants."""
        known = self._changes[capacity]
        for instant_s, amount in changes.items():
            known[instant_s] = known.get(instant_s, 0) + amount

    def forget(self, instants: Sequence[int]) -> None:
        """Drop these, which are the first."""
        for capacity, changes in self._changes.items():
            self._before[capacity] += sum(changes.pop(instant_s, 0) for instant_s in instants)

    def _shifts(self) -> range:
        return range(0, FIELD_BITS * len(self._layout.names), FIELD_BITS)

    def openings(
        self, instants: Sequence[int], need: int, instances: int, available: int, from_s: int
    ) -> Iterator[tuple[int, int]]:
        """Stretches of time from `from_s` on, in order, outside of which there is no room for so many
        instances on nodes of a mask: from when until when."""
        if not self._is_known or not need:
            yield from_s, FOREVER
            return
        kinds = [
            _Kind(self._layout, need, capacity, nodes, nodes & available, instances)
            for capacity, nodes in self._by_capacity.items()
            if self._layout.most(need, capacity, 1)
        ]
        first = bisect_right(instants, from_s)
        rooms: list[int] = []
        for kind in kinds:
            changes, taken = self._changes[kind.capacity], self._before[kind.capacity]
            kind.taken = taken + sum(changes.get(instant_s, 0) for instant_s in instants[:first])
            rooms.append(kind.room())
        room = sum(rooms)
        open_s = from_s if room >= instances else None
        for index in range(first, len(instants)):
            instant_s = instants[index]
            for number, kind in enumerate(kinds):
                change = self._changes[kind.capacity].get(instant_s)
                if change:
                    kind.taken += change
                    now = kind.room()
                    room += now - rooms[number]
                    rooms[number] = now
            if open_s is None:
                if room >= instances:
                    open_s = instant_s
            elif room < instances:
                yield open_s, instant_s
                open_s = None
        if open_s is not None:
            yield open_s, FOREVER


class _Kind:
    """Nodes of one capacity, and an upper bound of the instances that they have room for together."""

    def __init__(
        self, layout: ResourceLayout, need: int, capacity: int, nodes: int, usable: int, instances: int
    ) -> None:
        self.capacity = capacity
        self.taken = 0
        shares = [
            (need >> shift & _FIELD, capacity >> shift & _FIELD, shift)
            for shift in range(0, FIELD_BITS * len(layout.names), FIELD_BITS)
            if need >> shift & _FIELD
        ]
        # Of the resource of which it needs the greatest part there is least room.
        self._need, one, self._shift = max(shares, key=lambda share: share[0] / share[1])
        self._total = one * nodes.bit_count()
        self._most = layout.most(need, capacity, instances) * usable.bit_count()

    def room(self) -> int:
        free = self._total - (self.taken >> self._shift & _FIELD)
        return min(self._most, free // self._need)
