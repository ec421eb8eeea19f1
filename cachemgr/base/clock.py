"""The time, as something that is handed in: the only module that asks the process for it."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Clock(Protocol):
        """Wall time for expiries, monotonic time for durations, and a way to wait."""

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
