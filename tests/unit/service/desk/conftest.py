"""A sandbox for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import RATE, Sandbox


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Sandbox]:
    """A site where no job should wait for more than two minutes."""
    made = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=60, longest_wait_s=120))
    yield made
    made.close()
