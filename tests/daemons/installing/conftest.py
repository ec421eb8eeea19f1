"""Outrider as administrators install it: from a wheel, in an environment without these sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemons.wheels import installed_of


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment."""
    return installed_of(tmp_path_factory)
