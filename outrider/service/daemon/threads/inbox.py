"""What waits for the desk: requests, of which there are only so many, and results, which go first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from cachemgr.base.shares import Share, Shares
from outrider.service.front import Busy
from outrider.service.turns import Turns

Item = TypeVar("Item")
MOST_IN_A_ROW = 4
"""So many results are taken before a request that waits."""
KEPT = 64
"""Places that are for administrators and the service itself."""


class Inbox(Generic[Item]):
    """Two queues under one lock. Any thread may put; one takes.

    Users take turns, and whoever has had least of the desk's time lately is next; so who asks for much
    waits for it, and others wait for one such request at most.

    A result is never refused: there are no more of them than calls, whose number is limited. And
    since what is known of nodes decides what can be promised, results are looked at first; but while
    results lead to calls that lead to results, a request does not wait for more than a few.
    """

    def __init__(self, most_requests: int) -> None:
        self._most_requests = most_requests
        self._shares = Shares(
            "requests that wait for the desk",
            most=most_requests,
            most_of_one=most_requests,
            kept=min(KEPT, most_requests // 4),
        )
        self._requests: Turns[Item] = Turns()
        self._results: deque[Item] = deque()
        self._in_a_row = 0
        """Results that were taken while requests waited."""
        self._is_closed = False
        self._changed = threading.Condition()

    def put_request(self, item: Item, who: Hashable = None, *, is_privileged: bool = False) -> Item | None:
        """What has to give way, since its user has more waiting than others. Raises Busy if too many
        wait, or if nothing is taken any more."""
        with self._changed:
            if self._is_closed:
                raise Busy("the service is stopping: ask again when it is back", retry_after_s=5)
            displaced = None
            if not self._shares.take(who, is_privileged=is_privileged):
                displaced = self._requests.drop_of_longest(self._shares.held_by(who) + 1)
                if displaced is None:
                    raise Busy(f"{self._most_requests} requests wait already: ask again in a moment")
                self._shares.give(displaced[0])
                self._shares.take(who, is_privileged=is_privileged)
            self._requests.put(who, item)
            self._changed.notify()
            return None if displaced is None else displaced[1]

    def put_result(self, item: Item) -> None:
        with self._changed:
            if not self._is_closed:
                self._results.append(item)
                self._changed.notify()

    def take(self, timeout_s: float) -> Item | None:
        """The next one; None if none came in time, or if it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._results or len(self._requests) or self._is_closed, timeout_s)
            if self._is_closed:
                return None
            is_their_turn = self._in_a_row >= MOST_IN_A_ROW or not self._results
            if len(self._requests) and is_their_turn:
                self._in_a_row = 0
                return self._next()
            if not self._results:
                return None
            self._in_a_row += bool(len(self._requests))
            return self._results.popleft()

    def charge(self, who: Hashable, seconds: float) -> None:
        """So much of the desk's time a request has cost."""
        with self._changed:
            self._requests.charge(who, seconds)

    def shares(self) -> list[Share]:
        return self._shares.shares()

    def _next(self) -> Item | None:
        taken = self._requests.take()
        if taken is None:
            return None
        self._shares.give(taken[0])
        return taken[1]

    def close(self) -> list[Item]:
        """Take nothing on any more; what was still waiting."""
        with self._changed:
            waiting = self._requests.clear()
            for who, _ in waiting:
                self._shares.give(who)
            left = [*self._results, *(item for _, item in waiting)]
            self._results.clear()
            self._is_closed = True
            self._changed.notify_all()
            return left

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __len__(self) -> int:
        return len(self._requests)
