"""What waits for the desk: requests, of which there are only so many, and results, which go first."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from outrider.service.web.front import Busy

Item = TypeVar("Item")
MOST_IN_A_ROW = 4
"""So many results are taken before a request that waits."""


class Inbox(Generic[Item]):
    """Two queues under one lock. Any thread may put; one takes.

    Users take turns: who asks for much at once waits for it, and others do not.

    A result is never refused: there are no more of them than calls, whose number is limited. And
    since what is known of nodes decides what can be promised, results are looked at first; but while
    results lead to calls that lead to results, a request does not wait for more than a few.
    """

    def __init__(self, most_requests: int) -> None:
        self._most_requests = most_requests
        self._requests: OrderedDict[Hashable, deque[Item]] = OrderedDict()
        self._count = 0
        self._results: deque[Item] = deque()
        self._in_a_row = 0
        """Results that were taken while requests waited."""
        self._is_closed = False
        self._changed = threading.Condition()

    def put_request(self, item: Item, who: Hashable = None) -> None:
        """Raises Busy if too many wait, or if nothing is taken any more."""
        with self._changed:
            if self._is_closed:
                raise Busy("the service is stopping: ask again when it is back", retry_after_s=5)
            if self._count >= self._most_requests:
                raise Busy(f"{self._most_requests} requests wait already: ask again in a moment")
            self._requests.setdefault(who, deque()).append(item)
            self._count += 1
            self._changed.notify()

    def put_result(self, item: Item) -> None:
        with self._changed:
            if not self._is_closed:
                self._results.append(item)
                self._changed.notify()

    def take(self, timeout_s: float) -> Item | None:
        """The next one; None if none came in time, or if it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._results or self._requests or self._is_closed, timeout_s)
            if self._is_closed:
                return None
            is_their_turn = self._in_a_row >= MOST_IN_A_ROW or not self._results
            if self._requests and is_their_turn:
                self._in_a_row = 0
                return self._next()
            if not self._results:
                return None
            self._in_a_row += bool(self._requests)
            return self._results.popleft()

    def _next(self) -> Item:
        who, waiting = next(iter(self._requests.items()))
        item = waiting.popleft()
        self._count -= 1
        if waiting:
            self._requests.move_to_end(who)
        else:
            del self._requests[who]
        return item

    def close(self) -> list[Item]:
        """Take nothing on any more; what was still waiting."""
        with self._changed:
            left = [*self._results, *(each for waiting in self._requests.values() for each in waiting)]
            self._results.clear()
            self._requests.clear()
            self._count = 0
            self._is_closed = True
            self._changed.notify_all()
            return left

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __len__(self) -> int:
        return self._count
