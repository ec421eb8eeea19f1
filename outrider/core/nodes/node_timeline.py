"""The slot table of one node: a step function of what it can still give, kept as two parallel lists.

Amounts are packed (see `capacity`); intervals are half-open.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from outrider.core.nodes.capacity import ResourceLayout

FOREVER = 1 << 62
"""Later than any instant: the open end of the last step."""

TakenSpan = tuple[int, int, int]
"""From when until when, and how much."""


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

    def opening(self, need: int, start_s: int) -> tuple[int, int, int]:
        """The first instant from `start_s` on at which `need` fits, the one since when it does for good, and
        for how long at most it does before that; FOREVER if it never does, or not for good."""
        times, free, guard = self.times, self.free, self._guard
        index, last = bisect_right(times, start_s) - 1, len(times)
        first_s, longest_s, begun_s, at_s = FOREVER, 0, FOREVER, start_s
        while True:
            if ((free[index] | guard) - need) & guard == guard:
                if begun_s == FOREVER:
                    begun_s = at_s
                    if first_s == FOREVER:
                        first_s = at_s
            elif begun_s < FOREVER:
                if at_s - begun_s > longest_s:
                    longest_s = at_s - begun_s
                begun_s = FOREVER
            index += 1
            if index == last:
                return first_s, begun_s, longest_s
            at_s = times[index]

    def runs(self, need: int, from_s: int, to_s: int, until_s: int) -> list[tuple[int, int]]:
        """From when until when `need` fits, from `from_s` on, as often as that begins by `to_s`; what goes on
        beyond `until_s` ends there."""
        times, free, guard = self.times, self.free, self._guard
        found: list[tuple[int, int]] = []
        index, last = bisect_right(times, from_s) - 1, len(times) - 1
        begun_s, at_s = -1, from_s
        while True:
            if ((free[index] | guard) - need) & guard == guard:
                if begun_s < 0:
                    if at_s > to_s:
                        return found
                    begun_s = at_s
            elif begun_s >= 0:
                found.append((begun_s, at_s))
                begun_s = -1
            if begun_s < 0 and at_s > to_s:
                return found
            if index == last or times[index + 1] >= until_s:
                break
            index += 1
            at_s = times[index]
        if begun_s >= 0:
            found.append((begun_s, until_s))
        return found

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

    def room(self, need: int, full: int, start_s: int, end_s: int) -> int:
        """The same of the `full` times, 1 or more, that it fits when nothing is taken: where all of them do,
        it costs a look at each step."""
        times, free, guard = self.times, self.free, self._guard
        index, last = bisect_right(times, start_s) - 1, len(times)
        count, wanted = full, need * full
        while True:
            if ((free[index] | guard) - wanted) & guard != guard:
                count = self._layout.most(need, free[index], count - 1)
                if not count:
                    return 0
                wanted = need * count
            index += 1
            if index == last or times[index] >= end_s:
                return count

    def room_ends(self, need: int, start_s: int, end_s: int, limit: int) -> list[int]:
        """Until when, from `start_s` on, there is room for one instance, two, and so on up to `limit`, the
        last first; at most `end_s`. None is listed for which there is no room at once."""
        times, free, guard, most = self.times, self.free, self._guard, self._layout.most
        index, last = bisect_right(times, start_s) - 1, len(times) - 1
        room = most(need, free[index], limit)
        found: list[int] = []
        while room:
            index += 1
            if index > last or times[index] >= end_s:
                return found + [end_s] * room
            if ((free[index] | guard) - need * room) & guard != guard:
                left = most(need, free[index], room)
                found += [times[index]] * (room - left)
                room = left
        return found

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
        times, free, guard = self.times, self.free, self._guard
        first = bisect_left(times, start_s)
        stop = bisect_left(times, end_s, first)
        is_cut = first < len(times) and times[first] == start_s
        for index in range(first if is_cut else first - 1, stop):
            if ((free[index] | guard) - need) & guard != guard:
                raise ValueError(f"{self._layout.unpack(need)} is not free throughout [{start_s}, {end_s})")
        self._add(-need, start_s, end_s, first, stop)

    def release(self, need: int, start_s: int, end_s: int) -> None:
        if start_s >= end_s:
            raise ValueError(f"the interval [{start_s}, {end_s}) is empty")
        times, free, guard = self.times, self.free, self._guard
        first = bisect_left(times, start_s)
        stop = bisect_left(times, end_s, first)
        is_cut = first < len(times) and times[first] == start_s
        most = (self.capacity | guard) - need
        for index in range(first if is_cut else first - 1, stop):
            if (most - free[index]) & guard != guard:
                raise ValueError(f"{self._layout.unpack(need)} was never reserved in [{start_s}, {end_s})")
        self._add(need, start_s, end_s, first, stop)

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

    def steps_of(self, spans: Sequence[TakenSpan]) -> tuple[list[int], list[int]]:
        """The steps of a row of which so much is taken in some spans, in the order of their starts."""
        times, free = [0], [self.capacity]
        guard, capacity = self._layout.guard, self.capacity
        for start_s, end_s, need in spans:
            if not need:
                continue
            left = capacity - need
            if start_s < times[-1] or left < 0 or left & guard:
                # They overlap, or do not fit.
                return self._steps_of_changes(spans)
            if start_s > times[-1]:
                times.append(start_s)
                free.append(left)
            elif len(free) > 1 and free[-2] == left:
                del times[-1], free[-1]
            else:
                free[-1] = left
            times.append(end_s)
            free.append(capacity)
        return times, free

    def _steps_of_changes(self, spans: Iterable[TakenSpan]) -> tuple[list[int], list[int]]:
        changes: dict[int, int] = {}
        for start_s, end_s, need in spans:
            changes[start_s] = changes.get(start_s, 0) + need
            changes[end_s] = changes.get(end_s, 0) - need
        times, free = [0], [self.capacity]
        guard, left = self._layout.guard, self.capacity
        for at_s in sorted(changes):
            if changes[at_s]:
                left -= changes[at_s]
                # No field has borrowed from the next one.
                if left < 0 or left & guard:
                    raise ValueError(f"more is reserved at {at_s} than the node has")
                times.append(at_s)
                free.append(left)
        return times, free

    def _add(self, amount: int, start_s: int, end_s: int, first: int, stop: int) -> None:
        times, free = self.times, self.free
        # The end first, so that the start's place stays true.
        if stop == len(times) or times[stop] != end_s:
            times.insert(stop, end_s)
            free.insert(stop, free[stop - 1])
        if times[first] != start_s:
            times.insert(first, start_s)
            free.insert(first, free[first - 1])
            stop += 1
        for index in range(first, stop):
            free[index] += amount
        # Neighbours that became equal are one step: the later boundary first, so that the
        # earlier index stays true.
        if free[stop] == free[stop - 1]:
            del free[stop], times[stop]
        if first and free[first] == free[first - 1]:
            del free[first], times[first]
