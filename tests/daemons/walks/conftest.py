"""The wheel that walks install."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.daemons.wheels import wheel_of


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of these sources."""
    return wheel_of(tmp_path_factory)


@pytest.fixture(scope="session")
def long() -> None:
    """Of tests that take minutes, or need other suites."""
    if not os.environ.get("OUTRIDER_TEST_VERSIONS"):
        pytest.skip("OUTRIDER_TEST_VERSIONS is not set")
