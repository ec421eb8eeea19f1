"""How fast a stream is: over the last moments, at its longest pause, and for people to read."""

from __future__ import annotations

from collections import deque

WINDOW_S = 1.0
SAMPLE_S = 0.05
# A minute that was spent waiting is enough to give up whoever sent next to nothing in it.
MINUTE_S = 60.0
# A verdict on less than this would be one on the start of the connection.
LEAST_WINDOW_S = 0.4


class Pace:
    """One stream's speed, in time spent waiting for it: our own disk and limits are not its fault."""

    def __init__(self) -> None:
        self.delivered_bytes = 0
        self.waited_s = 0.0
        self.quiet_s = 0.0
        self.longest_gap_s = 0.0
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._minute: tuple[float, int] = (0.0, 0)
        self.last_minute_bytes: int | None = None

    def note(self, size_bytes: int, waited_s: float) -> None:
        """After each read: what came, and how long it was waited for."""
        self.waited_s += waited_s
        self.quiet_s += waited_s
        if size_bytes and not self.delivered_bytes:
            # The first byte has come a long way; the rate is about those after it.
            self.delivered_bytes, self.quiet_s = size_bytes, 0.0
            self.forget()
            self._minute = (self.waited_s, 0)
            return
        if size_bytes:
            # What happened long ago says less and less about how long a pause is usual.
            self.longest_gap_s = max(self.quiet_s, self.longest_gap_s * 0.999)
            self.quiet_s = 0.0
            self.delivered_bytes += size_bytes
        begin_s, begin_bytes = self._minute
        if self.waited_s - begin_s >= MINUTE_S:
            self.last_minute_bytes = self.delivered_bytes - begin_bytes
            self._minute = (self.waited_s, self.delivered_bytes)
        if self.waited_s - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((self.waited_s, self.delivered_bytes))
            while len(self._samples) > 2 and self._samples[1][0] <= self.waited_s - WINDOW_S:
                self._samples.popleft()

    def stood_still(self, size_bytes: int, waited_s: float) -> None:
        """As `note`, after a read that lasted longer than it may: the last moments say nothing."""
        self.note(size_bytes, waited_s)
        self.forget()

    def rate_bytes_per_s(self) -> float | None:
        """Over the last moments; None as long as they were too few."""
        if not self.delivered_bytes:
            return None
        begin_s, begin_bytes = self._samples[0]
        span_s = self.waited_s - begin_s
        if span_s < LEAST_WINDOW_S:
            return None
        return (self.delivered_bytes - begin_bytes) / span_s

    def forget(self) -> None:
        """Begin the last moments anew."""
        self._samples = deque([(self.waited_s, self.delivered_bytes)])


class Odometer:
    """The speed of the whole transfer over the last seconds, pauses and all."""

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, offset: int) -> None:
        self._samples.append((now_s, offset))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - self._window_s:
            self._samples.popleft()

    def rate_bytes_per_s(self) -> int:
        if len(self._samples) < 2:
            return 0
        (begin_s, begin_bytes), (end_s, end_bytes) = self._samples[0], self._samples[-1]
        return int((end_bytes - begin_bytes) / (end_s - begin_s)) if end_s > begin_s else 0
