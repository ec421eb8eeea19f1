"""How many processors are free, and from when on: a step function of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class FreeProfile:
    """Free processors as steps: `_free[i]` from `_times_s[i]` on, the last one forever.

    A step may fall below zero. That happens when a running job outlives its estimate
    while somebody else was promised its processors; nothing fits there.
    """

    __slots__ = ("_free", "_times_s")

    def __init__(self, capacity: int) -> None:
        self._times_s = [0]
        self._free = [capacity]

    def forget_before(self, now_s: int) -> None:
        """Drops the past, so that the profile starts at `now_s`."""
        index = bisect_right(self._times_s, now_s) - 1
        if index >= 0:
            del self._times_s[:index], self._free[:index]
            self._times_s[0] = now_s

    def add(self, start_s: int, end_s: int, processors: int) -> None:
        """Adds to the free processors throughout [start_s, end_s); takes if negative.

        What lies before the profile's first step is past, and is left out.
        """
        start_s = max(start_s, self._times_s[0])
        if start_s >= end_s:
            return
        first, last = self._cut(start_s), self._cut(end_s)
        for index in range(first, last):
            self._free[index] += processors
        self._join(last)
        self._join(first)

    def fits(self, start_s: int, duration_s: int, processors: int) -> bool:
        """Whether so many processors are free throughout."""
        index = max(bisect_right(self._times_s, start_s) - 1, 0)
        end = bisect_left(self._times_s, start_s + duration_s)
        return all(free >= processors for free in self._free[index:end])

    def earliest_s(self, not_before_s: int, duration_s: int, processors: int) -> int:
        """The first instant from which so many processors stay free for so long.

        There is one, as long as the request is within the capacity: every taking ends.
        """
        times_s = self._times_s
        candidate_s = not_before_s
        index = max(bisect_right(times_s, not_before_s) - 1, 0)
        while index < len(times_s) and times_s[index] < candidate_s + duration_s:
            if self._free[index] < processors:
                if index + 1 == len(times_s):
                    raise ValueError(f"{processors} processors are never free together")
                candidate_s = times_s[index + 1]
            index += 1
        return candidate_s

    def lowest(self) -> int:
        """The fewest processors that are free at any time."""
        return min(self._free)

    def _cut(self, at_s: int) -> int:
        """Makes a step begin at `at_s` and returns its index."""
        index = bisect_left(self._times_s, at_s)
        if index == len(self._times_s) or self._times_s[index] != at_s:
            self._times_s.insert(index, at_s)
            self._free.insert(index, self._free[index - 1])
        return index

    def _join(self, index: int) -> None:
        """Drops the step at `index` if it does not differ from the one before it."""
        if 0 < index < len(self._free) and self._free[index] == self._free[index - 1]:
            del self._times_s[index], self._free[index]
