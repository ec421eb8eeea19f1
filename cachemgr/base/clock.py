"""The time, as something that is handed in: the only module that asks the process for it."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    # At run time these are names for annotations: hooks do not wait for `typing` to load.
    Protocol = object


class WallClock(Protocol):
    """The time of day, in seconds since the epoch: for expiries."""

    def now_s(self) -> int: ...


class MonotonicClock(Protocol):
    """Seconds that only run on: for durations."""

    def monotonic_s(self) -> float: ...


class Clock(WallClock, MonotonicClock, Protocol):
    """Both, and a way to wait."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """This machine's own clock."""

    def now_s(self) -> int:
        return int(time.time())

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
