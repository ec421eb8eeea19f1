"""What holds for all tests: signals, which tests take long, and who of several workers runs what."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.scheduling import LongestFirst, ordered

LONG = "OUTRIDER_TEST_LONG"


def pytest_configure() -> None:
    # A shell starts what it puts into the background with interrupts ignored, and so would be everything that
    # tests start and interrupt: they would wait for its end in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = ordered(items)
    if os.environ.get(LONG):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=f"takes long, and a short test is like it: {LONG}=1"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongestFirst(config, log)
