"""A clock that jumps, a sink that remembers, and sources that do what a test says."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from random import Random

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Source

IMAGE = Random(7).randbytes(40_000_000)
SIZE = len(IMAGE)
EPOCH_S = 1_800_000_000


class FakeClock:
    """Time passes when somebody sleeps; what is to happen at some time happens on the way."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._number = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def now_s(self) -> int:
        return EPOCH_S + int(self._now_s)

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        until_s = self._now_s + seconds
        while self._due and self._due[0][0] <= until_s:
            at_s, _, action = heapq.heappop(self._due)
            self._now_s = max(self._now_s, at_s)
            action()
        self._now_s = until_s

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (at_s, self._number, action))


class FakeSink:
    """Holds what was written; a size other than the image's is for images that a test does not compare."""

    def __init__(self, size_bytes: int = SIZE, have_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.data = bytearray(IMAGE[:have_bytes])

    @property
    def offset(self) -> int:
        return len(self.data)

    def write(self, data: bytes | memoryview) -> None:
        self.data += data


class FakeSource:
    """Sends the image at a rate that may depend on the time, and fails as it is told.

    `rate` maps the time to bytes per second (0 is silence); `has` maps it to what a relay has
    itself; `ends_at` breaks the stream at an offset; `refuses` lists what the first calls of
    `open` are answered with.
    """

    def __init__(
        self,
        name: str,
        clock: FakeClock,
        *,
        rate: Callable[[float], float] | float = 25e6,
        is_relay: bool = True,
        has: Callable[[float], int] | int = SIZE,
        ends_at: int | None = None,
        refuses: Iterator[SourceFault | None] | None = None,
        answers: Callable[[float], bool] = lambda now_s: True,
        starts_at_zero: bool = False,
        image: bytes = IMAGE,
    ) -> None:
        self.name = name
        self.is_relay = is_relay
        self.clock = clock
        self.rate = rate if callable(rate) else lambda now_s: rate
        self.has = has if callable(has) else lambda now_s: has
        self.ends_at = ends_at
        self.refuses = refuses or iter(())
        self.answers = answers
        self.starts_at_zero = starts_at_zero
        self.image = image
        self.opened_at: list[int] = []
        self.opened_s: list[float] = []
        self.asked = 0
        self.open_streams = 0
        self.patience_s: list[float] = []

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> FakeStream:
        self.patience_s.append(timeout_s)
        self.opened_at.append(offset)
        self.opened_s.append(self.clock.monotonic_s())
        self.clock.sleep(0.001)
        fault = next(self.refuses, None)
        if fault is not None:
            raise fault
        self.open_streams += 1
        return FakeStream(self, 0 if self.starts_at_zero else offset)

    def status(self, timeout_s: float) -> FetchStatus | None:
        self.asked += 1
        if not self.answers(self.clock.monotonic_s()):
            self.clock.sleep(timeout_s)
            return None
        self.clock.sleep(0.001)
        return FetchStatus(min(len(self.image), self.has(self.clock.monotonic_s())), len(self.image))


class FakeQuestion:
    """What a source would say to a question of now, as soon as its answer would be here."""

    def __init__(self, source: Source, timeout_s: float) -> None:
        assert isinstance(source, FakeSource)
        source.asked += 1
        self._clock = source.clock
        now_s = self._clock.monotonic_s()
        does_answer = source.answers(now_s)
        self._answered_s = now_s + (0.001 if does_answer else timeout_s)
        size = len(source.image)
        self._status = FetchStatus(min(size, source.has(now_s)), size) if does_answer else None

    def is_answered(self) -> bool:
        return self._clock.monotonic_s() >= self._answered_s

    def status(self) -> FetchStatus | None:
        return self._status


class FakeStream:
    """Bytes of a fake source: each read takes as long as its bytes take at the rate."""

    def __init__(self, source: FakeSource, start_bytes: int) -> None:
        self.start_bytes = start_bytes
        self._source = source
        self._at = start_bytes

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        source, clock = self._source, self._source.clock
        until_s = clock.monotonic_s() + timeout_s
        if source.ends_at is not None and self._at >= source.ends_at:
            return 0
        while clock.monotonic_s() < until_s:
            now_s = clock.monotonic_s()
            rate = source.rate(now_s)
            ready = source.has(now_s) - self._at if source.is_relay else len(source.image) - self._at
            ready = min(ready, len(buffer), len(source.image) - self._at, int(rate * (until_s - now_s)) + 1)
            if source.ends_at is not None:
                ready = min(ready, source.ends_at - self._at)
            if rate > 0 and ready > 0:
                clock.sleep(ready / rate)
                buffer[:ready] = source.image[self._at : self._at + ready]
                self._at += ready
                return ready
            clock.sleep(min(0.01, until_s - now_s))
        return None

    def close(self) -> None:
        self._source.open_streams -= 1
