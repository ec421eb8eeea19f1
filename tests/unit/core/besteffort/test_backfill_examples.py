"""Schedules worked out by hand, and what the queues refuse."""

from __future__ import annotations

import pytest

from outrider.core.besteffort.counted import (
    Block,
    CountedJob,
    CountedQueue,
    EasyQueue,
    Policy,
    ProfileQueue,
    counted_queue,
)

EASY = Policy.named("aggressive")


def job(number: int, processors: int, requested_s: int) -> CountedJob:
    return CountedJob(number=number, processors=processors, requested_s=requested_s)


def started(queue: CountedQueue, jobs: list[CountedJob], now_s: int) -> list[int]:
    """The numbers of what starts after these were submitted."""
    for each in jobs:
        queue.submit(each, now_s)
    return [each.number for each in queue.schedule(now_s)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # 4 processors. Job 1 holds 2 until 10. Job 2 wants all 4: shadow time 10, none
        # extra. Job 3 would last until 20; job 4 ends at 10.
        ("off", [1]),
        ("greedy", [1, 3]),
        ("aggressive", [1, 4]),
        ("conservative", [1, 4]),
    ],
)
def test_a_job_passes_the_first_one_only_as_the_policy_allows(policy: str, expected: list[int]) -> None:
    jobs = [job(1, 2, 10), job(2, 4, 5), job(3, 2, 20), job(4, 2, 10)]
    queue = counted_queue(Policy.named(policy), capacity=4)

    assert started(queue, jobs, 0) == expected


def test_easy_uses_up_the_extra_processors_once() -> None:
    # Job 1 holds 4 of 6 until 10, job 2 wants 5 then: one processor is extra.
    jobs = [job(1, 4, 10), job(2, 5, 10), job(3, 1, 99), job(4, 1, 99)]

    assert started(EasyQueue(capacity=6), jobs, 0) == [1, 3]


def test_easy_may_delay_the_second_job_and_conservative_may_not() -> None:
    # At 10 job 2 leaves two processors over, and job 4 may have one of them for all that
    # EASY knows. But job 3, whose turn comes at 20, needs all four, and job 4 ends at 30.
    jobs = [job(1, 3, 10), job(2, 2, 10), job(3, 4, 10), job(4, 1, 30)]
    easy = counted_queue(EASY, capacity=4)
    conservative = counted_queue(Policy.named("conservative"), capacity=4)

    assert started(easy, jobs, 0) == [1, 4]
    assert started(conservative, jobs, 0) == [1]


def test_a_second_reservation_protects_the_second_job() -> None:
    jobs = [job(1, 3, 10), job(2, 2, 10), job(3, 4, 10), job(4, 1, 30)]
    queue = counted_queue(Policy.named("reservations=2"), capacity=4)

    assert started(queue, jobs, 0) == [1]


def test_an_early_completion_moves_promises_forward_in_the_queue_order() -> None:
    queue = ProfileQueue(Policy.named("conservative"), capacity=4)
    first = job(1, 3, 10)
    others = [job(2, 4, 10), job(3, 3, 10)]
    assert started(queue, [first, *others], 0) == [1]
    assert [queue.promised_start_s(n) for n in (2, 3)] == [10, 20]

    queue.finished(first, 4)

    assert [each.number for each in queue.schedule(4)] == [2]
    assert queue.promised_start_s(3) == 14


def test_an_early_completion_gives_no_promised_place_to_an_earlier_job() -> None:
    # Jobs 1 and 2 run until 10 and 20. Job 3 needs everything, hence 20; job 4 does not
    # fit before it, hence 25; job 5 does, hence 10. When job 1 ends at 4, job 4 would fit
    # into [4, 16), but for job 5, which would then wait until 25 and more.
    queue = ProfileQueue(Policy.named("conservative"), capacity=4)
    first = job(1, 2, 10)
    others = [job(2, 2, 20), job(3, 4, 5), job(4, 2, 12), job(5, 2, 10)]
    assert started(queue, [first, *others], 0) == [1, 2]
    assert [queue.promised_start_s(n) for n in (3, 4, 5)] == [20, 25, 10]

    queue.finished(first, 4)

    assert [each.number for each in queue.schedule(4)] == [5]
    assert [queue.promised_start_s(n) for n in (3, 4)] == [20, 25]


def test_a_job_past_its_estimate_is_expected_to_end_within_a_second() -> None:
    # At 15 job 1 should have ended at 10. Job 2 waits for it; job 3 may use one second.
    for queue in (EasyQueue(capacity=2), ProfileQueue(EASY, capacity=2)):
        assert started(queue, [job(1, 1, 10), job(2, 2, 10)], 0) == [1]

        assert started(queue, [job(3, 1, 2), job(4, 1, 1)], 15) == [4]


def test_promises_made_anew_after_an_overrun_keep_the_queue_order() -> None:
    # Job 1 should end at 10 and does not. If job 3 kept its 20 while job 2 looks for
    # another place, job 2 would land behind it, at 30.
    queue = ProfileQueue(Policy.named("conservative"), capacity=2)
    assert started(queue, [job(1, 2, 10), job(2, 2, 10), job(3, 2, 10)], 0) == [1]
    assert [queue.promised_start_s(n) for n in (2, 3)] == [10, 20]

    assert queue.schedule(10) == []

    assert [queue.promised_start_s(n) for n in (2, 3)] == [11, 21]


def test_promises_made_anew_after_a_missed_moment_keep_the_queue_order() -> None:
    # Job 2 is promised 20, the end of the block, and nobody asks until 24. If jobs 3 and
    # 4 kept their 25, job 2's five seconds would have no room before 34.
    blocks = [Block(processors=2, start_s=10, end_s=20)]
    queue = ProfileQueue(Policy.named("conservative"), capacity=2, blocks=blocks)
    first = job(1, 2, 10)
    assert started(queue, [first, job(2, 2, 5), job(3, 1, 9), job(4, 1, 9)], 0) == [1]
    assert [queue.promised_start_s(n) for n in (2, 3, 4)] == [20, 25, 25]
    queue.finished(first, 10)

    assert [each.number for each in queue.schedule(24)] == [2]
    assert [queue.promised_start_s(n) for n in (3, 4)] == [29, 29]


@pytest.mark.parametrize("policy", ["off", "greedy", "aggressive", "conservative"])
def test_no_policy_starts_a_job_that_would_run_into_a_block(policy: str) -> None:
    blocks = [Block(processors=2, start_s=10, end_s=20)]
    queue = counted_queue(Policy.named(policy), capacity=2, blocks=blocks)

    assert started(queue, [job(1, 1, 11)], 0) == []
    assert started(queue, [], 19) == []
    assert started(queue, [], 20) == [1]


def test_a_job_that_ends_as_a_block_begins_starts_at_once() -> None:
    blocks = [Block(processors=2, start_s=10, end_s=20)]
    queue = counted_queue(EASY, capacity=2, blocks=blocks)

    assert started(queue, [job(1, 2, 10)], 0) == [1]


def test_blocks_that_overlap_beyond_the_capacity_are_refused() -> None:
    blocks = [
        Block(processors=2, start_s=0, end_s=10),
        Block(processors=1, start_s=9, end_s=20),
    ]

    with pytest.raises(ValueError, match="blocks together need more than 2 processors"):
        ProfileQueue(EASY, capacity=2, blocks=blocks)


@pytest.mark.parametrize("queue", [EasyQueue(capacity=4), ProfileQueue(EASY, capacity=4)])
def test_what_makes_no_sense_is_refused(queue: CountedQueue) -> None:
    queue.submit(job(1, 4, 10), 5)

    with pytest.raises(ValueError, match="asks for 5 processors and there are 4"):
        queue.submit(job(2, 5, 10), 5)
    with pytest.raises(ValueError, match="already waiting or running"):
        queue.submit(job(1, 1, 10), 5)
    with pytest.raises(ValueError, match="is not running"):
        queue.finished(job(1, 4, 10), 5)
    assert [each.number for each in queue.schedule(5)] == [1]
    with pytest.raises(ValueError, match="time went backwards, from 5 to 4"):
        queue.schedule(4)


def test_a_policy_is_found_by_its_name() -> None:
    assert Policy.named("reservations=1") == Policy.named("aggressive")
    assert Policy.named("off").is_backfilling is False
    assert Policy.named("conservative").reservations is None


@pytest.mark.parametrize("text", ["easy", "", "reservations=", "reservations=-1", "off=1"])
def test_an_unknown_policy_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match="use off, greedy, aggressive, conservative or"):
        Policy.named(text)


@pytest.mark.parametrize(("processors", "requested_s"), [(0, 10), (1, 0)])
def test_a_job_asks_for_something(processors: int, requested_s: int) -> None:
    with pytest.raises(ValueError, match="ask for some"):
        job(1, processors, requested_s)


@pytest.mark.parametrize(("processors", "end_s"), [(0, 10), (1, 5)])
def test_a_block_holds_something(processors: int, end_s: int) -> None:
    with pytest.raises(ValueError, match="block"):
        Block(processors=processors, start_s=5, end_s=end_s)


def test_a_policy_cannot_reserve_for_jobs_that_nobody_may_pass() -> None:
    with pytest.raises(ValueError, match="needs no reservations"):
        Policy(reservations=2, is_backfilling=False)
