"""The time, handed in: the only module of the client that asks the process for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, seconds that only run on, and a way to wait."""

    def now_s(self) -> int: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """This machine's own clock."""

    def now_s(self) -> int:
        return int(time.time())

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
