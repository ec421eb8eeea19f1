"""A stream's pace is about the moments in which it was waited for, after its first byte."""

from __future__ import annotations

import pytest

from cachemgr.fetch.pace import Odometer, Pace


def test_wait_for_the_first_byte_does_not_make_a_stream_slow() -> None:
    pace = Pace()
    pace.note(0, 10.0)
    for _ in range(51):
        pace.note(10_000, 0.01)

    assert pace.rate_bytes_per_s() == pytest.approx(1e6, rel=0.01)


def test_rate_of_a_few_moments_is_not_known_yet() -> None:
    pace = Pace()
    pace.note(1000, 5.0)
    pace.note(1000, 0.3)

    assert pace.rate_bytes_per_s() is None


def test_rate_is_that_of_the_last_second() -> None:
    pace = Pace()
    for _ in range(300):
        pace.note(100_000, 0.01)
    for _ in range(110):
        pace.note(1_000, 0.01)

    assert pace.rate_bytes_per_s() == pytest.approx(1e5, rel=0.1)


def test_longest_pause_is_remembered_and_slowly_forgotten() -> None:
    pace = Pace()
    pace.note(1, 0.0)
    pace.note(0, 0.5)
    pace.note(1, 0.25)

    assert pace.longest_gap_s == 0.75
    for _ in range(5000):
        pace.note(1, 0.001)
    assert pace.longest_gap_s < 0.01


def test_odometer_counts_pauses_too() -> None:
    odometer = Odometer()
    for now_s, offset in ((0.0, 0), (1.0, 100), (4.0, 100)):
        odometer.note(now_s, offset)

    assert odometer.rate_bytes_per_s() == 25
