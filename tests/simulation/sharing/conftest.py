"""Rows of the excerpts under data/, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Rows = list[list[str]]


@pytest.fixture
def read_rows() -> Callable[[str], Rows]:
    def read(name: str) -> Rows:
        lines = (Path(__file__).parent / "data" / name).read_text().splitlines()
        return [line.split(";") for line in lines if line[0].isdigit()]

    return read
