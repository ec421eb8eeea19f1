"""A database for one program alone, while no head serves with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.store.errors import Locked
from outrider.store.postgresql.connection import shown
from outrider.store.postgresql.leadership import Leadership


@contextmanager
def alone(place: str, now_s: int) -> Iterator[int]:
    """The epoch of this program. Raises Locked if a head leads or stands by."""
    leadership = Leadership(place, head="outrider store", address="", monotonic_s=time.perf_counter)
    try:
        others = leadership.count_sessions()
        if others or not leadership.try_take(now_s):
            raise Locked(
                f"store {shown(place)}: {others or 1} heads use it: stop outriderd on each of them first"
            )
        yield leadership.epoch
    finally:
        leadership.give_up()
