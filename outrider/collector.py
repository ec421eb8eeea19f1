"""Python's collector of garbage, paused while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """To look for garbage again and again among hundreds of thousands of values that all stay takes
    longer than making them, and so does looking once, in the end: what has been made is not looked at."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()
