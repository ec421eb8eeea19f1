"""Who may read now: so many at once, users in turns, and no more bytes a second than a site allows."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from cachemgr.base.clock import MonotonicClock
from outrider.service.turns import Turns

LOOK_S = 0.5
"""So often whoever waits looks whether it is still wanted."""


class Pacing:
    """A few places to read, each for a moment. Any thread may call.

    `rate_bytes_per_s` is for all together; None: no limit.
    """

    def __init__(self, places: int, clock: MonotonicClock, *, rate_bytes_per_s: int | None = None) -> None:
        self._free = places
        self._clock = clock
        self._rate_bytes_per_s = rate_bytes_per_s
        self._due_s = 0.0
        """When what was read so far is no more than the rate allows."""
        self._waiting: Turns[object] = Turns()
        self._called: set[int] = set()
        self._changed = threading.Condition()

    def take(self, user: Hashable, timeout_s: float = LOOK_S) -> bool:
        """A place, in this user's turn; whether it came in time."""
        ticket = object()
        with self._changed:
            self._waiting.put(user, ticket, is_first=user == 0)
            self._call()
            until_s = self._clock.monotonic_s() + timeout_s
            while id(ticket) not in self._called:
                now_s = self._clock.monotonic_s()
                if now_s >= until_s:
                    self._waiting.drop(lambda each: each is ticket)
                    return False
                due_s = self._due_s - now_s
                self._changed.wait(min(until_s - now_s, due_s if due_s > 0 else until_s - now_s))
                self._call()
            self._called.discard(id(ticket))
            return True

    def give(self, user: Hashable, cost_s: float, read_bytes: int) -> None:
        """A place is free again, after so much was read in it."""
        with self._changed:
            self._free += 1
            self._note(read_bytes)
            if user != 0:
                self._waiting.charge(user, cost_s)
            self._call()

    def note(self, read_bytes: int) -> None:
        """What was read after its place was given back."""
        with self._changed:
            self._note(read_bytes)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _note(self, read_bytes: int) -> None:
        if self._rate_bytes_per_s is not None:
            now_s = self._clock.monotonic_s()
            self._due_s = max(self._due_s, now_s) + read_bytes / self._rate_bytes_per_s

    def _call(self) -> None:
        """Give places to those whose turn it is."""
        while self._free > 0 and self._due_s <= self._clock.monotonic_s():
            taken = self._waiting.take()
            if taken is None:
                return
            self._free -= 1
            self._called.add(id(taken[1]))
            self._changed.notify_all()
