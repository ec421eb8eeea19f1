"""Whose turn it is where users share something one at a time: the user who has had least of it.

What a user has had is counted from when others waited, too: who comes anew starts level with those
who wait already and had least, so that nobody saves up a claim by not asking, and nobody pays for
what was had while nobody else wanted it (start-time fair queueing; Goyal, Vin and Cheng,
1996, with one weight for all).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

NOBODY = -1
"""Stands for the user where it is not known who waits."""
MOST_FORGOTTEN_LATER = 100


class FairShares:
    """By user, what each has had. Users are numbers; ties go to the least."""

    def __init__(self) -> None:
        self._had: dict[int, int] = {}
        self._waiting: Counter[int] = Counter()

    def come(self, user: int) -> None:
        """A user waits for one thing more."""
        if not self._waiting[user]:
            floor = min((self.had(each) for each in self._waiting if self._waiting[each]), default=0)
            self._had[user] = max(self.had(user), floor)
        self._waiting[user] += 1

    def go(self, user: int) -> None:
        """A user waits for one thing less."""
        self._waiting[user] -= 1
        if self._waiting[user] > 0:
            return
        del self._waiting[user]
        if not self._waiting:
            self._had.clear()
        elif len(self._had) > 2 * len(self._waiting) + MOST_FORGOTTEN_LATER:
            floor = min(self.had(each) for each in self._waiting)
            self._had = {each: had for each, had in self._had.items() if each in self._waiting or had > floor}

    def charge(self, users: Collection[int], amount: int) -> None:
        """So much was had by these users together."""
        for user in users:
            self._had[user] = self.had(user) + amount // len(users)

    def had(self, user: int) -> int:
        return self._had.get(user, 0)

    def first(self, users: Collection[int]) -> int:
        """Of these users the one that has had least."""
        return min(users, key=lambda user: (self.had(user), user), default=NOBODY)
