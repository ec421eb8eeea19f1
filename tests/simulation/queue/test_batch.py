"""The simulation of a log: cleaning, the order of events, and processors by number."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.besteffort.counted import CountedJob, EasyQueue, Policy
from outrider.sim.batch import (
    BatchLog,
    Intervals,
    assign_processors,
    cleaned,
    run_batch,
    run_queue,
)

EASY = Policy.named("aggressive")


class Recorder(EasyQueue):
    """A queue that remembers what it was told, and when."""

    def __init__(self, *, capacity: int) -> None:
        super().__init__(capacity=capacity)
        self.told: list[tuple[int, str, int]] = []

    def submit(self, job: CountedJob, now_s: int) -> None:
        self.told.append((now_s, "submit", job.number))
        super().submit(job, now_s)

    def finished(self, job: CountedJob, now_s: int) -> None:
        self.told.append((now_s, "finished", job.number))
        super().finished(job, now_s)

    def schedule(self, now_s: int) -> list[CountedJob]:
        self.told.append((now_s, "schedule", -1))
        return super().schedule(now_s)


def test_an_instant_is_told_its_completions_then_its_submissions_then_asked_once() -> None:
    log = BatchLog(submit_s=[0, 0, 9, 9], run_s=[9, 9, 1, 1], processors=[1] * 4, requested_s=[20] * 4)
    queue = Recorder(capacity=2)

    run_queue(log, queue)

    assert queue.told == [
        (0, "submit", 0),
        (0, "submit", 1),
        (0, "schedule", -1),
        (9, "finished", 0),
        (9, "finished", 1),
        (9, "submit", 2),
        (9, "submit", 3),
        (9, "schedule", -1),
        (10, "finished", 2),
        (10, "finished", 3),
        (10, "schedule", -1),
    ]


def test_a_job_of_no_length_makes_room_within_its_instant() -> None:
    result = run_batch([5, 5], [0, 7], [2, 2], [10, 10], capacity=2, policy=EASY)

    assert list(result.start_s) == [5, 5]
    assert list(result.end_s) == [5, 12]


def test_an_empty_log_has_an_empty_schedule() -> None:
    result = run_batch([], [], [], [], capacity=2, policy=EASY)

    assert list(result.start_s) == []


def test_cleaning_drops_the_unknown_and_bounds_the_run_by_the_estimate() -> None:
    rows = [
        (0, 10, 0, 20),
        (1, 10, -1, 20),
        (2, -1, 4, 20),
        (3, 30, 4, 20),
        (4, 30, 4, -1),
        (5, 0, 4, -1),
        (6, 0, 4, 20),
    ]

    log = cleaned(rows)

    assert list(log.submit_s) == [3, 4, 5, 6]
    assert list(log.run_s) == [20, 30, 0, 0]
    assert list(log.requested_s) == [20, 30, 1, 20]
    assert list(log.processors) == [4] * 4


def test_cleaning_nothing_gives_an_empty_log() -> None:
    assert len(cleaned([])) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([5, 4], [1, 1], [1, 1], [1, 1]), "job 1 is submitted at 4 s, after one at 5 s"),
        (([-1], [1], [1], [1]), "job 0 is submitted at -1 s"),
        (([0], [2], [1], [1]), "job 0 runs 2 s and asked for 1 s"),
        (([0], [-1], [1], [1]), "job 0 runs -1 s"),
        (([0], [1], [9], [1]), "job 0 asks for 9 processors and there are 2"),
        (([0], [1], [1], []), "different lengths"),
    ],
)
def test_a_log_that_cannot_be_simulated_is_refused(
    columns: tuple[list[int], list[int], list[int], list[int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_batch(*columns, capacity=2, policy=EASY)


def test_processors_are_given_lowest_first_and_in_pieces_if_need_be() -> None:
    # Job 1 leaves 2 and 3 free between jobs 0 and 2; job 3 takes them and the next one.
    starts, ends, widths = [0, 0, 0, 5], [9, 5, 9, 9], [2, 2, 1, 3]

    assert assign_processors(starts, ends, widths) == [
        ((0, 1),),
        ((2, 3),),
        ((4, 4),),
        ((2, 3), (5, 5)),
    ]


def test_returned_neighbours_become_one_interval_again() -> None:
    assert assign_processors([0, 0, 5], [5, 5, 9], [2, 2, 4])[2] == ((0, 3),)


def test_no_processor_has_two_jobs_at_a_time_and_none_is_beyond_the_capacity() -> None:
    random = Random(11)
    for _ in range(50):
        capacity = random.randint(4, 16)
        count = 40
        requests = [random.randint(1, 20) for _ in range(count)]
        runs = [random.randint(0, requested) for requested in requests]
        widths = [random.randint(1, 4) for _ in range(count)]
        submits = sorted(random.randint(0, 60) for _ in range(count))
        result = run_batch(submits, runs, widths, requests, capacity=capacity, policy=EASY)

        taken = assign_processors(result.start_s, result.end_s, widths)

        for width, intervals in zip(widths, taken, strict=True):
            assert len(ids_of(intervals)) == width
            assert max(ids_of(intervals)) < capacity
        for second in range(max(result.end_s)):
            held = [
                processor
                for index, intervals in enumerate(taken)
                if result.start_s[index] <= second < result.end_s[index]
                for processor in ids_of(intervals)
            ]
            assert len(held) == len(set(held))


def ids_of(intervals: Intervals) -> list[int]:
    return [processor for low, high in intervals for processor in range(low, high + 1)]
