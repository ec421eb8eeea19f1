"""In which order those are served who wait for one thing: who has had least of it lately comes first.

How much may wait, and of whom, is counted elsewhere (`cachemgr.base.shares`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")
MOST_REMEMBERED = 1_000
"""So many users who do not wait are remembered with what they have had."""


class Turns(Generic[Item]):
    """A queue for each user, in front of one thing. Its owner sees to it that one thread calls at a time.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996): what a user has had is a number that grows
    by what each turn has cost, and whoever has the smallest is next. Who comes back after a while has
    no credit: they begin where those stand who are being served. So a user who asks for little waits
    for one turn of somebody else, however many users ask for much. Equal numbers take turns.

    What is put in as `is_first` is nobody's in particular: it is for the service itself and for root,
    and has every second turn.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}
        """In the order of their turns, as far as their numbers are equal."""
        self._first: deque[tuple[Hashable, Item]] = deque()
        self._had: dict[Hashable, float] = {}
        self._now = 0.0
        """The number of whoever was served last."""
        self._was_first = False
        self._count = 0

    def put(self, user: Hashable, item: Item, *, is_first: bool = False) -> None:
        self._count += 1
        if is_first:
            self._first.append((user, item))
            return
        if user not in self._waiting:
            self._had[user] = max(self._had.get(user, 0.0), self._now)
            self._waiting[user] = deque()
        self._waiting[user].append(item)

    def take(
        self, may: Callable[[Hashable, Item], bool] = lambda user, item: True
    ) -> tuple[Hashable, Item] | None:
        """The next one that may be served now, which waits no longer; None if there is none."""
        found = self._find(may)
        if found is None:
            return None
        user, at, is_first = found
        self._count -= 1
        self._was_first = is_first
        if is_first:
            taken = self._first[at]
            del self._first[at]
            return taken
        waiting = self._waiting.pop(user)
        item = waiting[at]
        del waiting[at]
        if waiting:
            # At the end of those with equal numbers.
            self._waiting[user] = waiting
        self._now = max(self._now, self._had[user])
        return user, item

    def charge(self, user: Hashable, cost: float) -> None:
        """What a turn of this user's has cost: seconds, mostly."""
        self._had[user] = max(self._had.get(user, 0.0), self._now) + cost
        if len(self._had) > MOST_REMEMBERED + len(self._waiting):
            self._forget()

    def drop(self, is_it: Callable[[Item], bool]) -> tuple[Hashable, Item] | None:
        """Take something out that nobody wants any more; None if it does not wait."""
        for number, (user, item) in enumerate(self._first):
            if is_it(item):
                del self._first[number]
                self._count -= 1
                return user, item
        for user, waiting in self._waiting.items():
            for number, item in enumerate(waiting):
                if is_it(item):
                    del waiting[number]
                    self._tidy(user)
                    return user, item
        return None

    def drop_of_longest(self, more_than: int) -> tuple[Hashable, Item] | None:
        """Take out what came last of whoever has most waiting, if that is more than a number.

        Longest queue drop (Suter and others, 1998): where nothing else fits, the user with most gives way.
        """
        longest = max(self._waiting, key=lambda user: len(self._waiting[user]), default=None)
        if longest is None or len(self._waiting[longest]) <= more_than:
            return None
        item = self._waiting[longest].pop()
        self._tidy(longest)
        return longest, item

    def clear(self) -> list[tuple[Hashable, Item]]:
        """Everything that waited; nothing waits any more."""
        left = [*self._first]
        left += [(user, item) for user, waiting in self._waiting.items() for item in waiting]
        self._first.clear()
        self._waiting.clear()
        self._count = 0
        return left

    def __len__(self) -> int:
        return self._count

    def _find(self, may: Callable[[Hashable, Item], bool]) -> tuple[Hashable, int, bool] | None:
        """Whose turn it is, the place in their queue, and whether it is one of those that go first."""
        if self._first and not self._was_first and (found := self._find_first(may)) is not None:
            return found
        # Sorting is stable, so that equal numbers stay in the order of their turns.
        for user in sorted(self._waiting, key=self._had.__getitem__):
            for at, item in enumerate(self._waiting[user]):
                if may(user, item):
                    return user, at, False
        return self._find_first(may)

    def _find_first(self, may: Callable[[Hashable, Item], bool]) -> tuple[Hashable, int, bool] | None:
        for at, (user, item) in enumerate(self._first):
            if may(user, item):
                return user, at, True
        return None

    def _tidy(self, user: Hashable) -> None:
        self._count -= 1
        if not self._waiting[user]:
            del self._waiting[user]

    def _forget(self) -> None:
        """Those who have had no more than who is served now begin there anyway."""
        kept = {user: had for user, had in self._had.items() if had > self._now or user in self._waiting}
        while len(kept) > MOST_REMEMBERED + len(self._waiting):
            oldest = next(user for user in kept if user not in self._waiting)
            del kept[oldest]
        self._had = kept
