"""What is to be looked at when: a heap of instants, of which old ones may turn out to be stale."""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush


class Topic(Enum):
    """What an entry is about; its subject says which."""

    NODE = "node"
    BEGIN = "begin"
    """A reservation's time has come."""
    END = "end"
    WATCH = "watch"
    """A reservation's nodes are to be asked whether they are there."""
    OPEN = "open"
    """A reservation may have got the event that it waits for."""
    JOB = "job"
    """Something is to be tried again for a job."""
    ROOM = "room"
    """A request has waited long enough for nodes to keep room for it."""
    LOOK = "look"
    COMPARE = "compare"
    """Reconcile all that is known."""
    STORE = "store"
    """See whether the store can be written again, and forget what is old."""


class Agenda:
    """Entries in the order of their time, and among equals in the order in which they were made."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Topic, str]] = []
        self._sequence = 0

    def add(self, at_s: int, topic: Topic, subject: str = "") -> None:
        self._sequence += 1
        heappush(self._heap, (at_s, self._sequence, topic, subject))

    def next_s(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: int) -> tuple[int, Topic, str] | None:
        """The next entry that is due, which is then no longer on the agenda."""
        if not self._heap or self._heap[0][0] > now_s:
            return None
        at_s, _, topic, subject = heappop(self._heap)
        return at_s, topic, subject
