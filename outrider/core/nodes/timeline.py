"""The slot table: what every node can still give, over half-open intervals of time.

`SiteTimeline` is the `NodeTimeline`s of all nodes, with an index by time bucket that tells at once which
nodes are untouched in an interval, so that a decision does not look at 10,000 nodes one by one. Amounts are
packed (see `capacity`); nodes are numbered in the order given and keep that number.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from outrider.core.model import Node
from outrider.core.nodes import late_rows
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.free_masks import FreeMasks
from outrider.core.nodes.free_runs import FreeRuns, RoomsFrom
from outrider.core.nodes.node_timeline import FOREVER, NodeTimeline, TakenSpan
from outrider.core.nodes.total_use import TotalsMark, TotalUse

BUCKET_S = 3600
"""The index's grain. Shorter buckets answer finer but cost more to keep for long leases."""


MOST_NEEDS = 64
"""For so many needs it is kept which nodes are free when."""
MOST_RUNS = 16
"""For so many needs runs are kept, until something changes."""
MOST_PENDING = 1024
"""So many changes wait at most for somebody who asks what is free."""


Lease = tuple[Sequence[tuple[int, int]], int, int]
"""Amounts on nodes, from when to when."""

IndexMark = tuple[dict[int, int], dict[int, int], dict[int, int], list[int], TotalsMark | None]
"""What the index of a site's slot tables said at some instant."""


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
        self._is_tidy = is_tidy
        self.past_s = 0
        """Of what was before nobody is told."""
        self._whole = 0 if is_tidy or len(self.by_capacity) > 1 else self.rows[0].capacity
        """All of a node, where all are alike and are often taken as a whole; else 0."""
        self.late = late_rows.LateRows(self.rows) if self._whole else None
        if self.late is not None:
            self.rows = self.late
        # Of a table that is asked for early starts.
        self._totals = TotalUse(self.layout, self.by_capacity) if is_tidy else None
        self._masks: dict[int, FreeMasks] = {}
        self._pending: list[tuple[Sequence[int], int, int]] = []
        """What has changed since these were made. How much of it is in them each knows."""
        self._runs: dict[int, FreeRuns] = {}
        """Runs of free nodes by need, until anything changes."""
        self._rooms: dict[tuple[int, int], RoomsFrom] | None = None
        """What was found of nodes for a need from an instant on, while that is remembered."""
        self._touched: dict[int, int] = {}
        # Instants at which something was to begin or to end, with the nodes. What is released
        # stays listed: looking at a node in vain is cheaper than knowing whether another lease
        # shares the instant.
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._instants: list[int] = []
        self.freed = 0
        """A mask of the nodes of which anything was released since somebody last looked and emptied this."""

    def boundaries_after(self, at_s: int) -> Iterator[tuple[int, int, int]]:
        """Later instants, in order, each with masks of the nodes on which something begins, or ends."""
        for index in range(bisect_right(self._instants, at_s), len(self._instants)):
            instant_s = self._instants[index]
            yield instant_s, self._begins.get(instant_s, 0), self._ends.get(instant_s, 0)

    def next_boundary(self, nodes: int, after_s: int, until_s: int = FOREVER) -> int:
        """The first later instant at which anything begins or ends on one of these nodes; FOREVER if there
        is none up to `until_s`."""
        begins, ends = self._begins, self._ends
        for index in range(bisect_right(self._instants, after_s), len(self._instants)):
            instant_s = self._instants[index]
            if instant_s > until_s:
                break
            if (begins.get(instant_s, 0) | ends.get(instant_s, 0)) & nodes:
                return instant_s
        return FOREVER

    def changes_on(self, nodes: int, at_s: int) -> bool:
        """Whether what is taken of any of these nodes changes at this very instant."""
        listed = (self._begins.get(at_s, 0) | self._ends.get(at_s, 0)) & nodes
        return bool(listed) and any(self.rows[node].changes_at(at_s) for node in numbers(listed))

    def chances(
        self, need: int, instances: int, duration_s: int, available: int, from_s: int
    ) -> Iterator[tuple[int, int]]:
        """The first and the last of the starts from `from_s` on for which all nodes together have room for
        so many instances for so long, as often as there are any: at no other start there is room."""
        if self._totals is None:
            yield from_s, FOREVER
            return
        for open_s, close_s in self._totals.openings(need, instances, available, from_s):
            last_s = FOREVER if close_s is None else close_s - duration_s
            if open_s <= last_s:
                yield open_s, last_s

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
        masks = self.free_masks(need)
        return masks.masks[bisect_right(masks.times, at_s) - 1]

    def free_masks(self, need: int) -> FreeMasks:
        """Which nodes are free for a need, and when. It holds until something is reserved or released."""
        masks, pending = self._masks.get(need), self._pending
        if masks is None:
            if len(self._masks) == MOST_NEEDS:
                del self._masks[next(iter(self._masks))]
            masks = self._masks[need] = FreeMasks(self.rows, need, self.layout.guard)
            masks.entered = len(pending)
        elif masks.entered < len(pending):
            for index in range(masks.entered, len(pending)):
                masks.refresh(self.rows, *pending[index])
            masks.entered = len(pending)
        return masks

    def free_runs(self, need: int, from_s: int, to_s: int, until_s: int) -> FreeRuns:
        """For how long nodes are free for a need that are so by `to_s`, up to `until_s`. It holds until
        something is reserved or released."""
        known = self._runs.get(need)
        if known is None or (known.from_s, known.to_s) != (from_s, to_s) or known.until_s < until_s:
            large = 0
            for capacity, nodes in self.by_capacity.items():
                if self.layout.fits(need, capacity):
                    large |= nodes
            touched = self.touched(from_s, until_s)
            known = FreeRuns(
                self.rows,
                numbers(large & touched),
                need,
                from_s=from_s,
                to_s=to_s,
                until_s=until_s,
                untouched=numbers(large & ~touched),
            )
            if len(self._runs) == MOST_RUNS:
                self._runs.clear()
            self._runs[need] = known
        return known

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Meanwhile it is remembered what is found of nodes, until something changes: for whoever asks about
        one start several times."""
        before, self._rooms = self._rooms, {}
        try:
            yield
        finally:
            self._rooms = before

    def rooms_from(self, need: int, start_s: int, end_s: int) -> RoomsFrom | None:
        """What is remembered for a need from an instant on, to be asked up to another one; None if nothing
        is, or if a node has room for many."""
        if self._rooms is None or any(self.layout.most(need, each, 3) > 2 for each in self.by_capacity):
            return None
        known = self._rooms.get((need, start_s))
        if known is None or known.until_s < end_s:
            known = self._rooms[need, start_s] = RoomsFrom(self.rows, need, start_s, end_s)
        return known

    def room_by_runs(self, need: int, at_most: int, start_s: int, end_s: int, available: int) -> int | None:
        """For how many instances there is room throughout an interval, at most so many on a node, if that
        has been listed."""
        usable = None if available == self.everyone else available
        room = count = 0
        while count < at_most and any(
            self.layout.fits(need * (count + 1), each) for each in self.by_capacity
        ):
            count += 1
            runs = self._runs.get(need * count)
            if runs is None or not runs.covers(start_s, end_s):
                return None
            room += runs.count(start_s, end_s, usable)
        return room

    def _has_changed(self, nodes: Sequence[int], start_s: int, end_s: int) -> None:
        """What is free of these nodes in an interval is to be looked at again, once somebody asks."""
        self._forget_rooms()
        if self._masks:
            self._pending.append((nodes, start_s, end_s))
            if len(self._pending) > MOST_PENDING:
                self._forget_masks()

    def _forget_masks(self) -> None:
        self._masks.clear()
        self._pending.clear()
        self._forget_rooms()

    def _forget_rooms(self) -> None:
        if self._runs:
            self._runs.clear()
        if self._rooms:
            self._rooms.clear()

    def reserve(self, number: int, need: int, start_s: int, end_s: int) -> None:
        self.reserve_all(((number, need),), start_s, end_s)

    def release(self, number: int, need: int, start_s: int, end_s: int) -> None:
        self.release_all(((number, need),), start_s, end_s)

    def reserve_all(self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int) -> None:
        """Take an amount from each of several nodes for the same time."""
        amounts = list(amounts)
        whole = self._as_a_whole(amounts, start_s, end_s)
        if whole:
            self._change_whole(whole, start_s, end_s, is_free=False)
            self._enter_instants(start_s, end_s)
            self._list(whole, start_s, end_s)
            return
        mask = 0
        taken: dict[int, int] = {}
        nodes: list[int] = []
        for number, need in amounts:
            row = self.rows[number]
            row.reserve(need, start_s, end_s)
            if need:
                mask |= 1 << number
                nodes.append(number)
                if self._totals is not None:
                    taken[row.capacity] = taken.get(row.capacity, 0) + need
        self._has_changed(nodes, start_s, end_s)
        self._count(taken, start_s, end_s)
        self._enter_instants(start_s, end_s)
        self._list(mask, start_s, end_s)

    def _as_a_whole(self, amounts: Sequence[tuple[int, int]], start_s: int, end_s: int) -> int:
        """A mask of the nodes if all that is taken or given back is whole nodes; else 0."""
        whole, mask = self._whole, 0
        if whole and start_s < end_s:
            for number, need in amounts:
                if need != whole:
                    return 0
                mask |= 1 << number
        return mask

    def _change_whole(self, nodes: int, start_s: int, end_s: int, *, is_free: bool) -> None:
        """Whole nodes are taken, or free again: masks say so at once, tables when somebody asks for one."""
        assert self.late is not None
        masks, capacity = self.free_masks(self._whole), self._whole
        if nodes & (masks.any_time(start_s, end_s) if is_free else ~masks.throughout(start_s, end_s)):
            what = "was never reserved" if is_free else "is not free throughout"
            raise ValueError(f"one of the nodes {list(numbers(nodes))} {what} in [{start_s}, {end_s})")
        for each in self._masks.values():
            each.change(nodes, capacity, start_s, end_s, is_free=is_free)
        (self.late.give_back if is_free else self.late.take)(nodes, start_s, end_s)
        self._forget_rooms()

    def pass_until(self, now_s: int) -> None:
        """Nobody asks for what was before any more."""
        self.past_s = now_s
        if self.late is not None:
            self.late.past_s = now_s

    def whole_masks(self, shares: Sequence[tuple[int, int, int]]) -> FreeMasks | None:
        """For instances on nodes, which are told as (node, instances, amount) and of which all need the same:
        when nodes are free, if each takes a whole one."""
        _, instances, amount = shares[0]
        return self.free_masks(amount) if instances == 1 and amount == self._whole else None

    def _enter_instants(self, start_s: int, end_s: int) -> None:
        for instant_s in (start_s, end_s):
            if instant_s not in self._begins and instant_s not in self._ends:
                insort(self._instants, instant_s)

    def _list(self, mask: int, start_s: int, end_s: int) -> None:
        """Enter in the index that something is taken on the nodes of a mask."""
        touched, begins, ends = self._touched, self._begins, self._ends
        for bucket in range(start_s // BUCKET_S, (end_s - 1) // BUCKET_S + 1):
            touched[bucket] = touched.get(bucket, 0) | mask
        begins[start_s] = begins.get(start_s, 0) | mask
        ends[end_s] = ends.get(end_s, 0) | mask

    def _count(self, taken: dict[int, int], start_s: int, end_s: int) -> None:
        if self._totals is not None and start_s < end_s:
            self._totals.take(taken, start_s, end_s)

    def release_all(self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int) -> None:
        """Give back an amount on each of several nodes for the same time."""
        amounts = list(amounts)
        whole = self._as_a_whole(amounts, start_s, end_s)
        if whole:
            self._change_whole(whole, start_s, end_s, is_free=True)
            self.freed |= whole
            return
        self._has_changed([number for number, _ in amounts], start_s, end_s)
        first, last = start_s // BUCKET_S, (end_s - 1) // BUCKET_S
        given: dict[int, int] = {}
        freed = 0
        for number, need in amounts:
            row = self.rows[number]
            row.release(need, start_s, end_s)
            freed |= 1 << number
            if self._totals is not None:
                given[row.capacity] = given.get(row.capacity, 0) - need
            if self._is_tidy:
                bit = 1 << number
                for bucket in range(first, last + 1):
                    mask = self._touched.get(bucket, 0)
                    if mask & bit and row.is_untouched(bucket * BUCKET_S, (bucket + 1) * BUCKET_S):
                        self._touched[bucket] = mask ^ bit
        self.freed |= freed
        self._count(given, start_s, end_s)

    def list_end(self, nodes: Iterable[int], at_s: int) -> None:
        """What is left of something on these nodes, of which the rest was given back, ends at an instant."""
        self._enter_instants(at_s, at_s)
        self._ends[at_s] = self._ends.get(at_s, 0) | mask_of(nodes, len(self.rows))

    def mark_index(self) -> IndexMark:
        """The index as it is, for `back_to_index`."""
        totals = None if self._totals is None else self._totals.mark()
        return dict(self._touched), dict(self._begins), dict(self._ends), list(self._instants), totals

    def back_to_index(self, mark: IndexMark) -> None:
        """The index is what it was; the rows are the caller's to put back."""
        self._forget_masks()
        self._touched, self._begins, self._ends, self._instants, totals = mark
        if self._totals is not None and totals is not None:
            self._totals.back_to(totals)

    def touched_buckets(self, start_s: int, end_s: int) -> dict[int, int]:
        """What the index says of [start_s, end_s), for `put_back`."""
        touched = self._touched
        buckets = range(start_s // BUCKET_S, (end_s - 1) // BUCKET_S + 1)
        return {bucket: touched[bucket] for bucket in buckets if bucket in touched}

    def put_back(
        self, amounts: Iterable[tuple[int, int]], start_s: int, end_s: int, touched: dict[int, int]
    ) -> None:
        """Take again what `release_all` has just given back; the index says `touched` again."""
        amounts = list(amounts)
        self._has_changed([number for number, _ in amounts], start_s, end_s)
        taken: dict[int, int] = {}
        for number, need in amounts:
            row = self.rows[number]
            row.reserve(need, start_s, end_s)
            taken[row.capacity] = taken.get(row.capacity, 0) + need
        self._touched.update(touched)
        self._count(taken, start_s, end_s)

    def fill(self, leases: Iterable[Lease], now_s: int) -> None:
        """Reserve many at once in a table in which nothing is reserved; what was over long ago is left out.

        The same as `reserve_all` for one after the other, at a tenth of the cost. A ValueError if
        they do not all fit: then nothing is reserved.
        """
        from_s = now_s // BUCKET_S * BUCKET_S
        left = [
            (amounts, max(start_s, from_s), end_s) for amounts, start_s, end_s in leases if end_s > from_s
        ]
        left.sort(key=lambda lease: lease[1])
        taken: defaultdict[int, list[TakenSpan]] = defaultdict(list)
        for amounts, start_s, end_s in left:
            span = start_s, end_s, 0
            for number, need in amounts:
                if need != span[2]:
                    span = start_s, end_s, need
                taken[number].append(span)
        steps = {number: self.rows[number].steps_of(spans) for number, spans in taken.items()}
        for number, (times, free) in steps.items():
            self.rows[number].times, self.rows[number].free = times, free
        for amounts, start_s, end_s in left:
            self._list(mask_of((node for node, need in amounts if need), len(self.rows)), start_s, end_s)
            if self._totals is not None:
                given: dict[int, int] = {}
                for number, need in amounts:
                    capacity = self.rows[number].capacity
                    given[capacity] = given.get(capacity, 0) + need
                self._count(given, start_s, end_s)
        self._instants = sorted(self._begins.keys() | self._ends.keys())
        self._forget_masks()

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
        for masks in self._masks.values():
            masks.forget_before(at_s)
        for bucket in [bucket for bucket in self._touched if (bucket + 1) * BUCKET_S <= at_s]:
            del self._touched[bucket]
        gone = bisect_right(self._instants, at_s - 1)
        for instant_s in self._instants[:gone]:
            self._begins.pop(instant_s, None)
            self._ends.pop(instant_s, None)
        if self._totals is not None:
            self._totals.forget_before(at_s)
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
