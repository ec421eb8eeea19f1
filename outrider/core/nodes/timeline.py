"""The slot table: what every node can still give, over half-open intervals of time.

`NodeTimeline` is one node: a step function kept as two parallel lists. `SiteTimeline` is all
of them, with an index by time bucket that tells at once which nodes are untouched in an
interval, so that a decision does not look at 10,000 nodes one by one. Amounts are packed
(see `capacity`); nodes are numbered in the order given and keep that number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from outrider.core.model import Node
from outrider.core.nodes.capacity import ResourceLayout

FOREVER = 1 << 62
"""Later than any instant: the open end of the last step."""

BUCKET_S = 3600
"""The index's grain. Shorter buckets answer finer but cost more to keep for long leases."""


Lease = tuple[Sequence[tuple[int, int]], int, int]
"""Amounts on nodes, from when to when."""

IndexMark = tuple[dict[int, int], dict[int, int], dict[int, int], list[int]]
"""What the index of a site's slot tables said at some instant."""


class NodeTimeline:
    """What one node can give at each instant: `free[i]` throughout `[times[i], times[i+1])`."""

    __slots__ = ("_guard", "_layout", "capacity", "free", "times")

    def __init__(self, layout: ResourceLayout, capacity: int) -> None:
        self._layout = layout
        self._guard = layout.guard
        self.capacity = capacity
        self.times = [0]
        self.free = [capacity]

    def copy(self) -> NodeTimeline:
        """The same, to be changed apart."""
        row = NodeTimeline(self._layout, self.capacity)
        row.times, row.free = list(self.times), list(self.free)
        return row

    def free_at(self, at_s: int) -> int:
        return self.free[bisect_right(self.times, at_s) - 1]

    def fits(self, need: int, start_s: int, end_s: int) -> bool:
        """Whether `need` is free throughout [start_s, end_s)."""
        times, free, guard = self.times, self.free, self._guard
        index = bisect_right(times, start_s)
        if ((free[index - 1] | guard) - need) & guard != guard:
            return False
        last = len(times)
        while index < last and times[index] < end_s:
            if ((free[index] | guard) - need) & guard != guard:
                return False
            index += 1
        return True

    def free_until(self, need: int, start_s: int, end_s: int = FOREVER) -> int:
        """The first instant from `start_s` on at which `need` does not fit; at most `end_s`."""
        times, free, guard = self.times, self.free, self._guard
        index = bisect_right(times, start_s) - 1
        if ((free[index] | guard) - need) & guard != guard:
            return start_s
        last = len(times) - 1
        while index < last:
            index += 1
            if times[index] >= end_s:
                return end_s
            if ((free[index] | guard) - need) & guard != guard:
                return times[index]
        return end_s

    def next_fit(self, need: int, start_s: int) -> int:
        """The first instant from `start_s` on at which `need` fits; FOREVER if it never does."""
        times, free, guard = self.times, self.free, self._guard
        index = bisect_right(times, start_s) - 1
        if ((free[index] | guard) - need) & guard == guard:
            return start_s
        for later in range(index + 1, len(times)):
            if ((free[later] | guard) - need) & guard == guard:
                return times[later]
        return FOREVER

    def first_gap(self, need: int, from_s: int, duration_s: int) -> int:
        """The first instant from `from_s` on from which `need` fits for so long; FOREVER if there is none."""
        times, free, guard = self.times, self.free, self._guard
        index, last, start_s = bisect_right(times, from_s) - 1, len(times), from_s
        while True:
            while ((free[index] | guard) - need) & guard != guard:
                index += 1
                if index == last:
                    return FOREVER
                start_s = times[index]
            end_s, index = start_s + duration_s, index + 1
            while index < last and times[index] < end_s:
                if ((free[index] | guard) - need) & guard != guard:
                    break
                index += 1
            else:
                return start_s

    def most(self, need: int, start_s: int, end_s: int, limit: int) -> int:
        """How many times `need` fits throughout [start_s, end_s), at most `limit`."""
        times, free, guard = self.times, self.free, self._guard
        index = bisect_right(times, start_s) - 1
        if ((free[index] | guard) - need) & guard != guard:
            return 0
        stop = bisect_left(times, end_s)
        if self._layout.is_single and need:
            return min(limit, min(free[index:stop]) // need)
        count = limit
        while index < stop and count:
            count = self._layout.most(need, free[index], count)
            index += 1
        return count

    def changes_at(self, at_s: int) -> bool:
        """Whether what is free changes at this very instant."""
        index = bisect_left(self.times, at_s)
        return index < len(self.times) and self.times[index] == at_s

    def grows_at(self, at_s: int) -> bool:
        """Whether there is more of any resource from this very instant on."""
        before, after = self._around(at_s)
        return not self._layout.fits(after, before)

    def shrinks_at(self, at_s: int) -> bool:
        """Whether there is less of any resource from this very instant on."""
        before, after = self._around(at_s)
        return not self._layout.fits(before, after)

    def _around(self, at_s: int) -> tuple[int, int]:
        """What is free just before an instant, and from it on."""
        index = bisect_left(self.times, at_s)
        if index == len(self.times) or self.times[index] != at_s:
            return self.free[index - 1], self.free[index - 1]
        return self.free[max(0, index - 1)], self.free[index]

    def next_change(self, after_s: int) -> int:
        """The first instant after `after_s` at which what is free changes; FOREVER if none."""
        index = bisect_right(self.times, after_s)
        return self.times[index] if index < len(self.times) else FOREVER

    def steps(self, start_s: int, end_s: int) -> Iterator[tuple[int, int, int]]:
        """What is free in an interval, step by step: the amount, from when to when."""
        while start_s < end_s:
            until_s = min(end_s, self.next_change(start_s))
            yield self.free_at(start_s), start_s, until_s
            start_s = until_s

    def reserve(self, need: int, start_s: int, end_s: int) -> None:
        if start_s >= end_s:
            raise ValueError(f"the interval [{start_s}, {end_s}) is empty")
        if not self.fits(need, start_s, end_s):
            raise ValueError(f"{self._layout.unpack(need)} is not free throughout [{start_s}, {end_s})")
        self._add(-need, start_s, end_s)

    def release(self, need: int, start_s: int, end_s: int) -> None:
        if start_s >= end_s:
            raise ValueError(f"the interval [{start_s}, {end_s}) is empty")
        index, stop = bisect_right(self.times, start_s) - 1, bisect_left(self.times, end_s)
        for free in self.free[index:stop]:
            if not self._layout.fits(free + need, self.capacity):
                raise ValueError(f"{self._layout.unpack(need)} was never reserved in [{start_s}, {end_s})")
        self._add(need, start_s, end_s)

    def is_untouched(self, start_s: int, end_s: int) -> bool:
        """Whether everything the node has is free throughout [start_s, end_s)."""
        index, stop = bisect_right(self.times, start_s) - 1, bisect_left(self.times, end_s)
        capacity = self.capacity
        return all(free == capacity for free in self.free[index:stop])

    def forget_before(self, at_s: int) -> None:
        """Drop the steps that ended before `at_s`; what is asked of the past then is undefined."""
        index = bisect_right(self.times, at_s) - 1
        if index > 0:
            del self.times[:index], self.free[:index]
            self.times[0] = 0

    def steps_of(self, changes: dict[int, int]) -> tuple[list[int], list[int]]:
        """The steps of a row on which so much more, or less, is taken from each of some instants on."""
        times, free = [0], [self.capacity]
        taken = 0
        for at_s in sorted(changes):
            if changes[at_s]:
                taken += changes[at_s]
                if not self._layout.fits(taken, self.capacity):
                    raise ValueError(f"more is reserved at {at_s} than the node has")
                times.append(at_s)
                free.append(self.capacity - taken)
        return times, free

    def _add(self, amount: int, start_s: int, end_s: int) -> None:
        times, free = self.times, self.free
        first = bisect_left(times, start_s)
        if first == len(times) or times[first] != start_s:
            times.insert(first, start_s)
            free.insert(first, free[first - 1])
        stop = bisect_left(times, end_s, first)
        if stop == len(times) or times[stop] != end_s:
            times.insert(stop, end_s)
            free.insert(stop, free[stop - 1])
        for index in range(first, stop):
            free[index] += amount
        # Neighbours that became equal are one step: the later boundary first, so that the
        # earlier index stays true.
        if free[stop] == free[stop - 1]:
            del free[stop], times[stop]
        if first and free[first] == free[first - 1]:
            del free[first], times[first]


class SiteTimeline:
    """The slot tables of all nodes of a site."""

    def __init__(self, nodes: Sequence[Node], *, is_tidy: bool = True) -> None:
        """`is_tidy`: whether what is released is taken out of the index, too. That pays where
        a decision looks at thousands of nodes, and costs where leases come and go quickly."""
        if not nodes:
            raise ValueError("a site needs at least one node")
        self.nodes = tuple(nodes)
        self.layout = ResourceLayout.of_nodes(nodes)
        self.number_of = {node.name: number for number, node in enumerate(nodes)}
        if len(self.number_of) != len(nodes):
            raise ValueError("two nodes have the same name")
        self.rows = [NodeTimeline(self.layout, self.layout.pack(node.capacity)) for node in nodes]
        self.everyone = (1 << len(nodes)) - 1
        self.by_capacity: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            self.by_capacity[row.capacity] = self.by_capacity.get(row.capacity, 0) | 1 << number
        self.changes = 0
        """How often anything was reserved or released: what was derived before is void."""
        self._is_tidy = is_tidy
        self._touched: dict[int, int] = {}
        # Instants at which something was to begin or to end, with the nodes. What is released
        # stays listed: looking at a node in vain is cheaper than knowing whether another lease
        # shares the instant.
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._instants: list[int] = []

    def boundaries_after(self, at_s: int) -> Iterator[tuple[int, int, int]]:
        """Later instants, in order, each with masks of the nodes on which something begins, or ends."""
        for index in range(bisect_right(self._instants, at_s), len(self._instants)):
            instant_s = self._instants[index]
            yield instant_s, self._begins.get(instant_s, 0), self._ends.get(instant_s, 0)

    def touched(self, start_s: int, end_s: int) -> int:
        """A mask of nodes that holds each one of which anything is taken in [start_s, end_s).

        It may hold more (its grain is a bucket), never less.
        """
        mask = 0
        touched = self._touched
        first, last = start_s // BUCKET_S, (end_s - 1) // BUCKET_S
        if last - first > len(touched):
            for bucket, nodes in touched.items():
                if first <= bucket <= last:
                    mask |= nodes
            return mask
        for bucket in range(first, last + 1):
            mask |= touched.get(bucket, 0)
        return mask

    def is_quiet(self, after_s: int, until_s: int) -> bool:
        """Whether nothing is planned to change after `after_s` and up to `until_s`."""
        index = bisect_right(self._instants, after_s)
        return index == len(self._instants) or self._instants[index] > until_s

    def free_nodes(self, need: int, at_s: int) -> int:
        """A mask of the nodes with room for `need` at an instant."""
        mask = 0
        guard = self.layout.guard
        for number, row in enumerate(self.rows):
            if ((row.free[bisect_right(row.times, at_s) - 1] | guard) - need) & guard == guard:
                mask |= 1 << number
        return mask

    def reserve(self, number: int, need: int, start_s: int, end_s: int) -> None:
        self.reserve_all(((number, need),), start_s, end_s)

    def release(self, number: int, need: int, start_s: int, end_s: int) -> None:
        self.release_all(((number, need),), start_s, end_s)

    def reserve_all(self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int) -> None:
        """Take an amount from each of several nodes for the same time."""
        mask = 0
        for number, need in amounts:
            self.rows[number].reserve(need, start_s, end_s)
            if need:
                mask |= 1 << number
        self.changes += 1
        for instant_s in (start_s, end_s):
            if instant_s not in self._begins and instant_s not in self._ends:
                insort(self._instants, instant_s)
        self._list(mask, start_s, end_s)

    def _list(self, mask: int, start_s: int, end_s: int) -> None:
        """Enter in the index that something is taken on the nodes of a mask."""
        touched, begins, ends = self._touched, self._begins, self._ends
        for bucket in range(start_s // BUCKET_S, (end_s - 1) // BUCKET_S + 1):
            touched[bucket] = touched.get(bucket, 0) | mask
        begins[start_s] = begins.get(start_s, 0) | mask
        ends[end_s] = ends.get(end_s, 0) | mask

    def release_all(self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int) -> None:
        """Give back an amount on each of several nodes for the same time."""
        self.changes += 1
        first, last = start_s // BUCKET_S, (end_s - 1) // BUCKET_S
        for number, need in amounts:
            row = self.rows[number]
            row.release(need, start_s, end_s)
            if self._is_tidy:
                bit = 1 << number
                for bucket in range(first, last + 1):
                    mask = self._touched.get(bucket, 0)
                    if mask & bit and row.is_untouched(bucket * BUCKET_S, (bucket + 1) * BUCKET_S):
                        self._touched[bucket] = mask ^ bit

    def mark_index(self) -> IndexMark:
        """The index as it is, for `back_to_index`."""
        return dict(self._touched), dict(self._begins), dict(self._ends), list(self._instants)

    def back_to_index(self, mark: IndexMark) -> None:
        """The index is what it was; the rows are the caller's to put back."""
        self.changes += 1
        self._touched, self._begins, self._ends, self._instants = mark

    def touched_buckets(self, start_s: int, end_s: int) -> dict[int, int]:
        """What the index says of [start_s, end_s), for `put_back`."""
        touched = self._touched
        buckets = range(start_s // BUCKET_S, (end_s - 1) // BUCKET_S + 1)
        return {bucket: touched[bucket] for bucket in buckets if bucket in touched}

    def put_back(
        self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int, touched: dict[int, int]
    ) -> None:
        """Take again what `release_all` has just given back; the index says `touched` again."""
        self.changes += 1
        for number, need in amounts:
            self.rows[number].reserve(need, start_s, end_s)
        self._touched.update(touched)

    def fill(self, leases: Iterable[Lease], now_s: int) -> None:
        """Reserve many at once in a table in which nothing is reserved; what was over long ago is left out.

        The same as `reserve_all` for one after the other, at a tenth of the cost. A ValueError if
        they do not all fit: then nothing is reserved.
        """
        from_s = now_s // BUCKET_S * BUCKET_S
        taken: dict[int, dict[int, int]] = {}
        listed: list[tuple[int, int, int]] = []
        count = len(self.rows)
        for amounts, start_s, end_s in leases:
            if end_s <= from_s:
                continue
            start_s = max(start_s, from_s)
            for number, need in amounts:
                changes = taken.get(number)
                if changes is None:
                    changes = taken[number] = {}
                changes[start_s] = changes.get(start_s, 0) + need
                changes[end_s] = changes.get(end_s, 0) - need
            listed.append((mask_of((number for number, need in amounts if need), count), start_s, end_s))
        steps = {number: self.rows[number].steps_of(changes) for number, changes in taken.items()}
        for number, (times, free) in steps.items():
            self.rows[number].times, self.rows[number].free = times, free
        for mask, start_s, end_s in listed:
            self._list(mask, start_s, end_s)
        self._instants = sorted(self._begins.keys() | self._ends.keys())
        self.changes += 1

    def used_lately(self, now_s: int) -> int:
        """A mask of the nodes on which anything was taken earlier in the index's present bucket."""
        from_s = now_s // BUCKET_S * BUCKET_S
        if from_s == now_s:
            return 0
        nodes = numbers(self._touched.get(now_s // BUCKET_S, 0))
        return mask_of(
            (node for node in nodes if not self.rows[node].is_untouched(from_s, now_s)), len(self.rows)
        )

    def use_lately(self, mask: int, now_s: int) -> None:
        """Note what `used_lately` said, in a table that was filled anew."""
        from_s = now_s // BUCKET_S * BUCKET_S
        if from_s < now_s:
            for node in numbers(mask):
                if self.rows[node].is_untouched(from_s, now_s):
                    self.reserve(node, self.rows[node].capacity, from_s, now_s)

    def forget_before(self, at_s: int) -> None:
        """Drop the past, as far as the index has no bucket that reaches into the present.

        Of the present bucket all is kept, so that what the index says of it does not depend on
        when the past was dropped.
        """
        at_s = at_s // BUCKET_S * BUCKET_S
        for row in self.rows:
            row.forget_before(at_s)
        for bucket in [bucket for bucket in self._touched if (bucket + 1) * BUCKET_S <= at_s]:
            del self._touched[bucket]
        gone = bisect_right(self._instants, at_s - 1)
        for instant_s in self._instants[:gone]:
            self._begins.pop(instant_s, None)
            self._ends.pop(instant_s, None)
        del self._instants[:gone]


def numbers(mask: int) -> Iterable[int]:
    """The node numbers in a mask, in increasing order."""
    # A site of a few nodes asks for the same few masks again and again; of ten thousand a
    # decision usually looks at the first few.
    return _few(mask) if mask < _FEW else _many(mask)


_FEW = 1 << 64


@lru_cache(maxsize=4096)
def _few(mask: int) -> tuple[int, ...]:
    return tuple(_many(mask))


def _many(mask: int) -> Iterator[int]:
    # Searching the text of the mask is linear in its length; shifting it is quadratic.
    text = bin(mask)[:1:-1]
    index = text.find("1")
    while index >= 0:
        yield index
        index = text.find("1", index + 1)


def mask_of(nodes: Iterable[int], count: int) -> int:
    """The mask of some of `count` nodes. Setting bits one by one in a long integer copies it each time."""
    octets = bytearray(count // 8 + 1)
    for node in nodes:
        octets[node >> 3] |= 1 << (node & 7)
    return int.from_bytes(octets, "little")
