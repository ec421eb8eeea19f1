"""Whose fault it is: only the node directly behind the narrow place goes round it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cachemgr.fetch.judge import Judgement, Search, SourceVerdict, ahead_bytes, is_slow

MARGIN = 10


def search(offset: int, direct: int | None, above: Sequence[int | None]) -> tuple[Judgement, int]:
    """The judgement, and how many were asked for it, the direct one included."""
    found = Search(offset, MARGIN)
    for asked, have in enumerate([direct, *above], 1):
        judgement = found.hear(have)
        if judgement is not None:
            return judgement, asked
    return Judgement(SourceVerdict.STAY), 1 + len(above)


@pytest.mark.parametrize(
    ("offset", "direct", "above", "verdict", "target"),
    [
        pytest.param(100, None, [500], SourceVerdict.GO, 0, id="upstream is gone"),
        pytest.param(100, 200, [500], SourceVerdict.GO, 0, id="upstream has more than it sends"),
        pytest.param(100, 105, [500, 900], SourceVerdict.GO, 0, id="upstream is slow itself"),
        pytest.param(100, 105, [110, 500], SourceVerdict.WAIT, 1, id="the one before upstream is slow"),
        pytest.param(100, 105, [110, 112, 900], SourceVerdict.WAIT, 2, id="trouble further up"),
        pytest.param(100, 105, [None, 900], SourceVerdict.WAIT, 1, id="the one before upstream is gone"),
        pytest.param(100, 105, [110, 115], SourceVerdict.STAY, 0, id="everybody waits"),
        pytest.param(100, 105, [], SourceVerdict.STAY, 0, id="nobody else"),
        pytest.param(100, 110, [120, 130, 140], SourceVerdict.STAY, 0, id="each just ahead of the next"),
    ],
)
def test_narrow_place_is_found(
    offset: int, direct: int | None, above: list[int | None], verdict: SourceVerdict, target: int
) -> None:
    found, _ = search(offset, direct, above)

    assert (found.verdict, found.target) == (verdict, target)


def test_nobody_beyond_the_narrow_place_is_asked() -> None:
    _, asked = search(100, 105, [110, 500, 900])

    assert asked == 3


def test_half_of_what_is_expected_is_slow_and_an_unknown_rate_is_not() -> None:
    assert is_slow(49, 100)
    assert not is_slow(50, 100)
    assert not is_slow(None, 100)
    assert not is_slow(1, None)


def test_ahead_is_a_moment_at_the_expected_rate_and_never_a_few_packets() -> None:
    assert ahead_bytes(100e6) == 30_000_000
    assert ahead_bytes(1000) == 524_288
    assert ahead_bytes(None) == 524_288
