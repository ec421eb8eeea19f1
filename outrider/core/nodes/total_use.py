"""How much of all nodes together is taken at each instant: a bound that tells most of a long future apart.

Where half of a site is wanted, nearly every instant can be ruled out by one sum, without a look at
single nodes. Nodes of one capacity are one kind; of each kind what begins and ends is kept by instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outrider.core.nodes.capacity import FIELD_BITS, LARGEST_AMOUNT, ResourceLayout

TotalsMark = tuple[dict[int, dict[int, int]], dict[int, int]]
"""By kind of node what changes when, and what was taken before."""

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
            self.enter(capacity, {start_s: amount, end_s: -amount})

    def enter(self, capacity: int, changes: Mapping[int, int]) -> None:
        """What is taken of the nodes of a kind changes so, at these instants."""
        known = self._changes[capacity]
        for instant_s, amount in changes.items():
            left = known.pop(instant_s, 0) + amount
            if left:
                known[instant_s] = left

    def mark(self) -> TotalsMark:
        """All of it, for `back_to`."""
        return {capacity: dict(changes) for capacity, changes in self._changes.items()}, dict(self._before)

    def back_to(self, mark: TotalsMark) -> None:
        self._changes, self._before = mark

    def forget_before(self, at_s: int) -> None:
        """Drop the past."""
        for capacity, changes in self._changes.items():
            for instant_s in [each for each in changes if each < at_s]:
                self._before[capacity] += changes.pop(instant_s)

    def _shifts(self) -> range:
        return range(0, FIELD_BITS * len(self._layout.names), FIELD_BITS)

    def openings(
        self, need: int, instances: int, available: int, from_s: int
    ) -> Iterator[tuple[int, int | None]]:
        """Stretches of time from `from_s` on, in order, outside of which there is no room for so many
        instances on nodes of a mask: from when until when, or None for ever."""
        if not self._is_known or not need:
            yield from_s, None
            return
        kinds = [
            _Kind(self._layout, need, capacity, nodes, nodes & available, instances)
            for capacity, nodes in self._by_capacity.items()
            if self._layout.most(need, capacity, 1)
        ]
        later: set[int] = set()
        for kind in kinds:
            changes = self._changes[kind.capacity]
            kind.taken = self._before[kind.capacity]
            kind.taken += sum(amount for instant_s, amount in changes.items() if instant_s <= from_s)
            later.update(instant_s for instant_s in changes if instant_s > from_s)
        rooms = [kind.room() for kind in kinds]
        room = sum(rooms)
        open_s = from_s if room >= instances else None
        for instant_s in sorted(later):
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
            yield open_s, None


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
