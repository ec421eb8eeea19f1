"""What holds for all tests: which of them are run only where somebody has the time."""

from __future__ import annotations

import os

import pytest

LONG = "OUTRIDER_TEST_LONG"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(LONG):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason=f"takes long, and a short test is like it: {LONG}=1"))
