"""How an experiment of hours becomes one of minutes: time and sizes by one factor, rates as they are.

A second of the trace is 1/factor real seconds, and an image of the trace 1/factor of its bytes; so a
link of 100 Mbit/s stays one. Grid Engine's daemons live in the trace's time, too (testbed/hurry.c).
What does not scale: the start of processes and connections, a pool's fsyncs, TCP's reaction times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class TraceClock:
    """A trace's time since `origin_s` of the machine's, both in seconds since the epoch."""

    factor: int
    clock: Clock
    origin_s: int
    _begun_s: float = field(repr=False)

    @classmethod
    def begun(cls, factor: int, clock: Clock) -> TraceClock:
        """Both times were the same when this second began."""
        now_ns, now_s = time_ns(), clock.monotonic_s()
        origin_s, past_ns = divmod(now_ns, NANOSECONDS)
        return cls(factor=factor, clock=clock, origin_s=origin_s, _begun_s=now_s - past_ns / NANOSECONDS)

    def now_s(self) -> int:
        """In the daemons' time, since the epoch."""
        return int(self.origin_s + (self.clock.monotonic_s() - self._begun_s) * self.factor)

    def real_s(self, seconds: float) -> float:
        return seconds / self.factor

    def size_bytes(self, size_bytes: int) -> int:
        return size_bytes // self.factor


class TraceTime:
    """The trace's own time: it begins when the experiment does."""

    def __init__(self, scale: TraceClock) -> None:
        self.scale = scale
        self._begun_s = scale.clock.monotonic_s()
        self.epoch_s = scale.now_s()
        """When that is in the daemons' time."""

    def now_s(self) -> int:
        return int((self.scale.clock.monotonic_s() - self._begun_s) * self.scale.factor)

    def wait_s(self, until_s: int) -> float:
        """Real seconds until an instant of the trace."""
        passed_s = self.scale.clock.monotonic_s() - self._begun_s
        return max(0.0, until_s / self.scale.factor - passed_s)
