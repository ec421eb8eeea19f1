"""The contract's cluster serves this folder, too, and ends with the last of its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.gridengine_harness import end_cluster


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        end_cluster()
