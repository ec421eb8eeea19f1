"""How much of it is tried: all in the long form of the tests, a third in the short one."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

LONG = "OUTRIDER_TEST_LONG"
REPEATS = "OUTRIDER_TEST_REPEATS"
"""What has a cheaper like is tried, too."""


def examples(count: int) -> int:
    """Of so many; both forms begin with the same ones."""
    return count if os.environ.get(LONG) else -(-count // 3)


def few(count: int) -> int:
    """Of so many that take a second of a processor each: all in the long form, an eighth in the short one."""
    return count if os.environ.get(LONG) else -(-count // 8)


def histories(count: int) -> int:
    """Of so many that are cheap: all in the long form, two hundred in the short one."""
    return count if os.environ.get(LONG) else min(count, 200)


def first(values: Iterable[object], count: int = 1) -> list[object]:
    """Parameters of a test of which the short form has the first ones alone."""
    found = list(values)
    return [*found[:count], *(pytest.param(each, marks=pytest.mark.long) for each in found[count:])]
