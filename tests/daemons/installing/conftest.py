"""Outrider as administrators install it: from a wheel, in an environment without these sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.wheel import environment


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment."""
    return environment(tmp_path_factory.mktemp("installed") / "outrider")
