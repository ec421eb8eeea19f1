"""How many requests each user has made in the last minutes."""

from __future__ import annotations

import threading
from collections import Counter, deque

from cachemgr.base.clock import MonotonicClock
from cachemgr.base.shares import Share

MINUTES = 5
MINUTE_S = 60.0
THING, UNIT = f"requests in {MINUTES} minutes", "requests"
MOST_USERS = 1_000
"""So many users are counted in a minute: of those who come later nothing is known."""


class RecentRequests:
    """Counts by whole minutes, of which the oldest is dropped. Any thread may call."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._minutes: deque[tuple[int, Counter[int]]] = deque()
        self._guard = threading.Lock()

    def note(self, uid: int) -> None:
        with self._guard:
            counted = self._of_now()
            if uid in counted or len(counted) < MOST_USERS:
                counted[uid] += 1

    def shares(self) -> list[Share]:
        """There is no limit: what waits at the same time is limited."""
        with self._guard:
            self._of_now()
            found = sum((counted for _, counted in self._minutes), Counter[int]())
        return [Share(THING, UNIT, str(uid), count, 0, 0) for uid, count in found.most_common()]

    def _of_now(self) -> Counter[int]:
        minute = int(self._clock.monotonic_s() // MINUTE_S)
        while self._minutes and self._minutes[0][0] <= minute - MINUTES:
            self._minutes.popleft()
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        return self._minutes[-1][1]
