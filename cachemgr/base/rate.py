"""Limits on bytes per second that can be changed while a stream waits in them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock

# A waiting stream looks up this often, so that a change of the rate takes effect soon.
SLICE_S = 0.05
# What an idle limit saves up. More would let a stream exceed the rate after each pause.
BURST_S = 0.05
# Less than a clock can tell, and than a sum of fractions is off by.
LEAST_WAIT_S = 1e-6
LEAST_STEP_BYTES = 4096


def never() -> bool:
    return False


class RateLimit:
    """A token bucket for any number of streams, served in the order in which they ask.

    Each `take` is given a place in the sequence of all bytes, and waits until the bucket has
    produced as much. Thus nobody starves, and a new rate applies to what is still waited for.
    """

    def __init__(self, rate_bytes_per_s: int | None, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rate_bytes_per_s = _checked(rate_bytes_per_s)
        self._is_paused = False
        self._produced_bytes = 0.0
        self._promised_bytes = 0
        self._at_s = clock.monotonic_s()

    @property
    def rate_bytes_per_s(self) -> int | None:
        return self._rate_bytes_per_s

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def set(self, rate_bytes_per_s: int | None) -> None:
        """Another rate from now on; None is no limit."""
        with self._lock:
            self._produce()
            self._rate_bytes_per_s = _checked(rate_bytes_per_s)

    def pause(self) -> None:
        """Let nothing more through."""
        with self._lock:
            self._produce()
            self._is_paused = True

    def resume(self) -> None:
        with self._lock:
            self._produce()
            self._is_paused = False

    def step_bytes(self, most: int) -> int:
        """How much to move at a time, so that no single step holds a stream up for long."""
        rate = self._rate_bytes_per_s
        return most if rate is None else max(LEAST_STEP_BYTES, min(most, int(rate * SLICE_S)))

    def take(self, size_bytes: int, is_stopped: Callable[[], bool] = never) -> None:
        """Block until this many more bytes may move, or until `is_stopped` says so."""
        if self._rate_bytes_per_s is None and not self._is_paused:
            return
        with self._lock:
            self._produce()
            self._promised_bytes += size_bytes
            place = self._promised_bytes
        while not is_stopped():
            with self._lock:
                self._produce()
                wait_s = self._wait_s(place)
            if wait_s < LEAST_WAIT_S:
                return
            self._clock.sleep(min(wait_s, SLICE_S))

    def _wait_s(self, place: int) -> float:
        if self._is_paused:
            return SLICE_S
        if self._rate_bytes_per_s is None:
            return 0.0
        return (place - self._produced_bytes) / self._rate_bytes_per_s

    def _produce(self) -> None:
        now_s = self._clock.monotonic_s()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if self._is_paused:
            return
        rate = self._rate_bytes_per_s
        if rate is None:
            self._produced_bytes = float(self._promised_bytes)
            return
        most = self._promised_bytes + rate * BURST_S
        self._produced_bytes = min(most, self._produced_bytes + rate * elapsed_s)


def _checked(rate_bytes_per_s: int | None) -> int | None:
    if rate_bytes_per_s is not None and rate_bytes_per_s <= 0:
        raise ValueError(
            f"a rate of {rate_bytes_per_s} bytes per second moves nothing: pause the limit instead"
        )
    return rate_bytes_per_s
