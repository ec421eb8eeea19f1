"""Files without faults, and when and where they are read."""

from __future__ import annotations

from calendar import timegm
from zoneinfo import ZoneInfo

import pytest

from outrider.metadata.validation import Circumstances
from tests.unit.metadata.examples import POLICIES, WORKSPACE

NOW_S = timegm((2026, 11, 21, 17, 0, 0))


@pytest.fixture
def circumstances() -> Circumstances:
    """Berlin at 18:00 on Saturday, 21 November 2026."""
    return Circumstances(now_s=NOW_S, zone=ZoneInfo("Europe/Berlin"))


@pytest.fixture
def workspace_text() -> str:
    return WORKSPACE


@pytest.fixture
def policies_text() -> str:
    return POLICIES
