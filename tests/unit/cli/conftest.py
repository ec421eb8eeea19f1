"""A service that answers what a test tells it, and a zone and terminal that are always the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.canned import Service, serving


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """On a socket with a short path, named by the environment; times are in UTC, lines of 100 columns."""
    for name, value in {"TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with tempfile.TemporaryDirectory(prefix="or-") as folder, serving(Path(folder) / "s") as found:
        monkeypatch.setenv("OUTRIDER_SOCKET", str(found.path))
        yield found
