"""The simulated time, what happens when, and the log by which two runs are compared."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

BASE_S = 1_800_000_000
"""When every simulation begins, in seconds since 1970."""
MOST_KEPT_LINES = 400
_FILLING = "a" * 60
"""What makes a digest of a number: nobody wants to read it."""


class Violation(AssertionError):
    """The service broke a promise, or itself."""


class Clockwork:
    """A heap of what is to happen, ordered by time, then by kind, then by when it was planned."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._sequence = 0

    def now_s(self) -> int:
        """The true time; the service's own clock may differ from it."""
        return BASE_S + self.now_ms // 1000

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        raise Violation(f"somebody wants to sleep {seconds} s in a world that does not wait")

    def after(self, delay_ms: int, act: Callable[[], None], *, order: int = 5) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now_ms + max(0, delay_ms), order, self._sequence, act))

    def run(self, until_ms: int) -> None:
        """Let everything happen up to then."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, _, act = heappop(self._heap)
            act()
        self.now_ms = max(self.now_ms, until_ms)


class Trace:
    """One line for each thing that happened. Its digest tells one run from another."""

    def __init__(self, clock: Clockwork, *, keeps_all: bool = False) -> None:
        self._clock = clock
        self._hash = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=None if keeps_all else MOST_KEPT_LINES)
        self.count = 0

    def note(self, words: str) -> None:
        line = f"{self._clock.now_ms / 1000:10.3f} {words.replace(_FILLING, '')}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        return self._hash.hexdigest()
