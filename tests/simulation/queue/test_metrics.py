"""Measures of schedules small enough to be worked out by hand."""

from __future__ import annotations

import pytest

from outrider.sim.results.metrics import (
    Summary,
    bounded_slowdown,
    measure,
    percentile,
    slowdown,
    trimmed,
    utilisation,
    waiting_s,
)


def test_a_schedule_of_three_jobs_is_measured_as_by_hand() -> None:
    # Two processors: 2 x 20 s, then 1 x 5 s and 1 x 40 s from 20 on, until 60.
    measures = measure([0, 10, 20], [0, 20, 20], [20, 25, 60], [2, 1, 1], capacity=2)

    assert measures.jobs == 3
    assert measures.waiting_s.mean == pytest.approx(10 / 3)
    assert measures.waiting_s.maximum == 10
    assert measures.turnaround_s.median == 20
    # (10 + 5) / 5 for the second job, and (10 + 5) / 10 with the bound.
    assert measures.slowdown.maximum == 3
    assert measures.bounded_slowdown.mean == pytest.approx((1 + 1.5 + 1) / 3)
    assert measures.tail_jobs == 0
    assert measures.makespan_s == 60
    assert measures.utilisation == pytest.approx((2 * 20 + 5 + 40) / (2 * 60))


def test_a_bounded_slowdown_of_three_belongs_to_the_tail() -> None:
    measures = measure([0, 0, 0], [20, 19, 200], [30, 29, 300], [1, 1, 1], capacity=3)

    assert measures.bounded_slowdown.median == 3
    assert measures.tail_jobs == 2


def test_trimming_counts_neither_the_first_nor_the_last_jobs() -> None:
    submits = list(range(100))
    starts = [500, *range(1, 99), 900]
    ends = [start + 10 for start in starts]

    whole = measure(submits, starts, ends, [1] * 100, capacity=100)
    inner = measure(submits, starts, ends, [1] * 100, capacity=100, trim_percent=1)

    assert (whole.jobs, whole.waiting_s.maximum) == (100, 801)
    assert (inner.jobs, inner.waiting_s.maximum) == (98, 0)
    assert inner.makespan_s == whole.makespan_s == 910


@pytest.mark.parametrize(
    ("wait_s", "run_s", "expected"),
    [(0, 5, 1.0), (5, 5, 1.0), (15, 5, 2.0), (90, 10, 10.0), (100, 50, 3.0), (0, 0, 1.0)],
)
def test_short_runs_count_as_ten_seconds_in_the_bounded_slowdown(
    wait_s: int, run_s: int, expected: float
) -> None:
    assert bounded_slowdown(wait_s, run_s) == expected


def test_a_run_of_no_length_counts_as_a_second_in_the_slowdown() -> None:
    assert slowdown(4, 0) == 5.0
    assert slowdown(4, 2) == 3.0


def test_waiting_is_from_submission_to_start() -> None:
    assert waiting_s([1, 5], [4, 5]) == [3, 0]


def test_utilisation_counts_only_what_lies_within_the_window() -> None:
    # 4 processors, window [10, 20): 2 x 5 s, 1 x 10 s, and one job outside.
    used = utilisation([5, 0, 30], [15, 40, 40], [2, 1, 4], capacity=4, from_s=10, until_s=20)

    assert used == pytest.approx((2 * 5 + 10) / 40)


def test_utilisation_of_no_time_is_zero() -> None:
    assert utilisation([], [], [], capacity=4, from_s=0, until_s=0) == 0.0


def test_percentiles_are_values_at_the_nearest_rank() -> None:
    ordered = [10, 20, 30, 40]

    assert [percentile(ordered, percent) for percent in (1, 25, 26, 50, 99, 100)] == [
        10,
        10,
        20,
        20,
        40,
        40,
    ]


@pytest.mark.parametrize("percent", [0, 101])
def test_a_percentile_outside_of_a_hundred_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        percentile([1], percent)


def test_nothing_cannot_be_summarised() -> None:
    with pytest.raises(ValueError, match="nothing to summarise"):
        Summary.of([])


@pytest.mark.parametrize("percent", [-1, 50])
def test_trimming_everything_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="leaves nothing"):
        trimmed(100, percent)
