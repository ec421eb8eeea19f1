"""What holds for all tests: signals, which tests take long, and who of several workers runs what."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests.amount import LONG, REPEATS, examples
from tests.forks import ForkedRun
from tests.scheduling import ordered


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="so many workers, forked when all is collected")


def pytest_configure(config: pytest.Config) -> None:
    if count := config.getoption("forks"):
        config.pluginmanager.register(ForkedRun(config, count))
    # A machine that is busy takes longer over an example, which says nothing about the product. Where a test
    # does not say how many there are, there are as many as hypothesis tries by itself.
    settings.register_profile("untimed", deadline=None, max_examples=examples(settings().max_examples))
    settings.load_profile("untimed")
    # What a shell starts in the background ignores these, and so would everything that tests start and
    # interrupt: they would wait for its end in vain.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput") or config.getoption("forks"):
        items[:] = ordered(items)
    if os.environ.get(LONG):
        return
    for item in items:
        if not os.environ.get(REPEATS) and (like := item.get_closest_marker("repeats")):
            reason = f"{like.args[0]} is like it and costs less: {REPEATS}=1"
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=f"takes long, and a short test is like it: {LONG}=1"))
