"""How much of it is tried: all in the long form of the tests, a third in CI, a sixth in the short form."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

LONG = "OUTRIDER_TEST_LONG"
REPEATS = "OUTRIDER_TEST_REPEATS"
"""As CI does it: what has a cheaper like is tried, too, and twice as much of what is repeated."""


def examples(count: int) -> int:
    """Of so many; all forms begin with the same ones."""
    return count if os.environ.get(LONG) else -(-count // (3 if os.environ.get(REPEATS) else 6))


def few(count: int) -> int:
    """Of so many that take a second of a processor each: all in the long form, else an eighth."""
    return count if os.environ.get(LONG) else -(-count // 8)


def histories(count: int) -> int:
    """Of so many that are cheap: all in the long form, two hundred in CI, one hundred in the short form."""
    return count if os.environ.get(LONG) else min(count, 200 if os.environ.get(REPEATS) else 100)


def first(values: Iterable[object], count: int = 1) -> list[object]:
    """Parameters of a test of which the short form has the first ones alone."""
    found = list(values)
    return [*found[:count], *(pytest.param(each, marks=pytest.mark.long) for each in found[count:])]
