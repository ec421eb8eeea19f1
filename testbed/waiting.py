"""How whoever waits for what others do looks at it: more and more rarely, and never most of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cachemgr.base.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock

RESTS = 9
"""For so many times as long as a look takes, whoever looks rests: what is waited for has the processors."""
PART = 20
"""For one of so many parts of the time waited so far, too: what takes minutes is not looked at ten times a
second, and a wait becomes longer by half of such a part."""
MOST_REST_S = 1.0
"""Unless a look takes longer than that."""
Found = TypeVar("Found")


def awaited(
    look: Callable[[], Found], within_s: float, least_rest_s: float = 0.02, *, clock: Clock | None = None
) -> Found:
    """What is found once there is something; when the time is over, nothing."""
    clock = clock or SystemClock()
    began_s = clock.monotonic_s()
    looked_s = began_s
    while True:
        found = look()
        now_s = clock.monotonic_s()
        if found or now_s > began_s + within_s:
            return found
        took_s, waited_s = now_s - looked_s, now_s - began_s
        rest_s = min(max(RESTS * took_s, waited_s / PART), MOST_REST_S)
        clock.sleep(max(least_rest_s, took_s, rest_s))
        looked_s = clock.monotonic_s()
