"""How tests wait for what others do: whoever looks rests for nine times as long as a look takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cachemgr.base.clock import SystemClock

RESTS, MOST_REST_S = 9, 0.5
Found = TypeVar("Found")


def awaited(look: Callable[[], Found], within_s: float, least_rest_s: float = 0.02) -> Found:
    """What is found once there is something; when the time is over, nothing. What is waited for has the
    processor meanwhile."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + within_s
    while True:
        looked_s = clock.monotonic_s()
        found = look()
        now_s = clock.monotonic_s()
        if found or now_s > until_s:
            return found
        clock.sleep(max(least_rest_s, min(RESTS * (now_s - looked_s), MOST_REST_S)))
