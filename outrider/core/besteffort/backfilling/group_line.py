"""Those that wait and differ in nothing but how long they last, by their places in a queue.

Whether any of them lasts no longer than nodes are free is known without a look at each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

Place = TypeVar("Place", bound=Any)
"""In a queue: no two are the same."""


class GroupLine(Generic[Place]):
    """Those of one group, in order."""

    __slots__ = ("_lengths", "_shortest_s", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._lengths: list[int] = []
        self._shortest_s: int | None = None

    def add(self, place: Place, length_s: int) -> None:
        index = bisect_left(self.places, place)
        self.places.insert(index, place)
        self._lengths.insert(index, length_s)
        if self._shortest_s is not None and length_s < self._shortest_s:
            self._shortest_s = length_s

    def remove(self, place: Place) -> None:
        index = bisect_left(self.places, place)
        if self._lengths[index] == self._shortest_s:
            self._shortest_s = None
        del self.places[index], self._lengths[index]

    @property
    def shortest_s(self) -> int:
        """How long the shortest of them lasts."""
        if self._shortest_s is None:
            self._shortest_s = min(self._lengths)
        return self._shortest_s

    def first_after(self, place: Place, longest_s: int, before: Place) -> Place:
        """The first behind a place in the queue that lasts no longer; `before`, unless it is before that."""
        if longest_s < self.shortest_s:
            return before
        places, lengths = self.places, self._lengths
        for index in range(bisect_right(places, place), len(places)):
            if places[index] >= before:
                return before
            if lengths[index] <= longest_s:
                return places[index]
        return before

    def fitting(self, first: Place, longest_s: Callable[[], int]) -> Iterator[Place]:
        """Those from a place in the queue on that last no longer than is asked for at each of them, which
        only becomes less. Who is given may leave meanwhile; nobody joins."""
        most_s, shortest_s = longest_s(), self.shortest_s
        if most_s < shortest_s:
            return
        start = bisect_left(self.places, first)
        for place, length_s in zip(self.places[start:], self._lengths[start:], strict=True):
            if length_s > most_s:
                continue
            most_s = longest_s()
            if most_s < shortest_s:
                return
            if length_s <= most_s:
                yield place
