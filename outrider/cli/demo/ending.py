"""How a demo ends: in order, however it is asked to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_in_order(end: Callable[[], None]) -> Iterator[None]:
    """What asks this process to end is a KeyboardInterrupt inside; `end` is then called, undisturbed."""
    before = {each: signal.getsignal(each) for each in ENDING}
    for each in ENDING[1:]:
        signal.signal(each, _interrupt)
    try:
        yield
    finally:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        try:
            end()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
