"""What holds for every workload; and the fast EASY decides as the plain one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

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
from outrider.sim.batch.counted import BatchLog, run_batch, run_queue
from tests.amount import examples

OFF = Policy.named("off")
GREEDY = Policy.named("greedy")
EASY = Policy.named("aggressive")
CONSERVATIVE = Policy.named("conservative")
NAMES = ["off", "greedy", "aggressive", "reservations=3", "conservative"]


def random_log(random: Random, capacity: int, *, is_exact: bool = False) -> BatchLog:
    """A short busy log: about as much work arrives as the processors can do."""
    submits, runs, widths, requests = [], [], [], []
    at_s = 0
    for _ in range(random.randint(1, 40)):
        at_s += random.choice([0, 0, 1, 2, 5])
        requested = random.choice([1, 2, 3, 5, 8, 13, 30])
        submits.append(at_s)
        requests.append(requested)
        runs.append(requested if is_exact else random.randint(0, requested))
        widths.append(min(capacity, random.choice([1, 1, 2, 3, 4, 8])))
    return BatchLog(submit_s=submits, run_s=runs, processors=widths, requested_s=requests)


@dataclass
class Moment:
    """What can be seen from outside, after the decision of one second."""

    now_s: int
    starting: list[int]
    waiting: list[int]
    # The running jobs' starts.
    running: dict[int, int]


def drive(queue: CountedQueue, log: BatchLog) -> Iterator[Moment]:
    """Second by second. Unlike in the simulator, a job may outlive its estimate."""
    jobs = [
        CountedJob(number=number, processors=width, requested_s=requested_s)
        for number, (width, requested_s) in enumerate(zip(log.processors, log.requested_s, strict=True))
    ]
    moment = Moment(0, [], [], {})
    left = len(log)
    while left:
        now_s = moment.now_s
        for number, start_s in sorted(moment.running.items()):
            if start_s + max(log.run_s[number], 1) == now_s:
                del moment.running[number]
                queue.finished(jobs[number], now_s)
                left -= 1
        for number, submit_s in enumerate(log.submit_s):
            if submit_s == now_s:
                moment.waiting.append(number)
                queue.submit(jobs[number], now_s)
        moment.starting = [job.number for job in queue.schedule(now_s)]
        for number in moment.starting:
            moment.waiting.remove(number)
            moment.running[number] = now_s
        yield moment
        moment.now_s += 1


def starts(queue: CountedQueue, log: BatchLog) -> list[tuple[int, int]]:
    """Every start as (second, number), in order."""
    return [(m.now_s, number) for m in drive(queue, log) for number in m.starting]


def shadow_s(moment: Moment, log: BatchLog, capacity: int) -> int:
    """When the first waiting job could start if all others ran their estimates."""
    second = moment.now_s
    while True:
        held = sum(
            log.processors[number]
            for number, start_s in moment.running.items()
            if second < start_s + log.requested_s[number]
        )
        if held + log.processors[moment.waiting[0]] <= capacity:
            return second
        second += 1


def test_fast_and_plain_easy_give_the_same_schedules() -> None:
    random = Random(1)
    differing = []
    for _ in range(examples(1500)):
        capacity = random.randint(1, 12)
        log = random_log(random, capacity)
        fast = run_queue(log, EasyQueue(capacity=capacity))
        plain = run_queue(log, ProfileQueue(EASY, capacity=capacity))
        if fast != plain:
            differing.append((capacity, log))

    assert differing == []


def test_fast_and_plain_easy_agree_when_jobs_outlive_their_estimates() -> None:
    random = Random(2)
    differing = []
    for _ in range(examples(400)):
        capacity = random.randint(1, 12)
        log = random_log(random, capacity)
        late = BatchLog(
            submit_s=log.submit_s,
            run_s=[run_s + random.choice([0, 0, 1, 4]) for run_s in log.run_s],
            processors=log.processors,
            requested_s=log.requested_s,
        )
        fast = starts(EasyQueue(capacity=capacity), late)
        plain = starts(ProfileQueue(EASY, capacity=capacity), late)
        if fast != plain:
            differing.append((capacity, late))

    assert differing == []


@pytest.mark.parametrize("name", NAMES)
def test_every_job_runs_once_and_capacity_is_never_exceeded(name: str) -> None:
    random = Random(3)
    for _ in range(100):
        capacity = random.randint(4, 12)
        log = random_log(random, capacity)
        blocks = [
            Block(processors=random.randint(1, capacity), start_s=at_s, end_s=at_s + 9)
            for at_s in range(random.randint(0, 20), 120, 30)
        ]

        result = run_batch(
            log.submit_s,
            log.run_s,
            log.processors,
            log.requested_s,
            capacity=capacity,
            policy=Policy.named(name),
            blocks=blocks,
        )

        held = [(b.start_s, b.end_s, b.processors) for b in blocks]
        held += zip(result.start_s, result.end_s, log.processors, strict=True)
        for second in range(max(result.end_s)):
            used = sum(width for start, end, width in held if start <= second < end)
            assert used <= capacity
        for submit_s, start_s in zip(log.submit_s, result.start_s, strict=True):
            assert start_s >= submit_s


@pytest.mark.parametrize("is_exact", [True, False])
def test_under_easy_the_first_job_starts_by_the_shadow_time_it_first_had(
    is_exact: bool,
) -> None:
    random = Random(4)
    kept = 0
    for _ in range(examples(150)):
        capacity = random.randint(2, 12)
        log = random_log(random, capacity, is_exact=is_exact)
        limits_s: dict[int, int] = {}
        for moment in drive(EasyQueue(capacity=capacity), log):
            for number in moment.starting:
                assert moment.now_s <= limits_s.get(number, moment.now_s)
                kept += number in limits_s
            if moment.waiting and moment.waiting[0] not in limits_s:
                limits_s[moment.waiting[0]] = shadow_s(moment, log, capacity)

    assert kept > examples(500)


@pytest.mark.parametrize("is_exact", [True, False])
def test_under_conservative_no_job_starts_after_its_first_promise(is_exact: bool) -> None:
    random = Random(5)
    early = in_time = 0
    for _ in range(examples(150)):
        capacity = random.randint(2, 12)
        log = random_log(random, capacity, is_exact=is_exact)
        queue = ProfileQueue(CONSERVATIVE, capacity=capacity)
        first_s: dict[int, int] = {}
        for moment in drive(queue, log):
            for number in moment.starting:
                promised_s = first_s.get(number, moment.now_s)
                assert moment.now_s <= promised_s
                early += moment.now_s < promised_s
                in_time += moment.now_s == promised_s
            for number in moment.waiting:
                start_s = queue.promised_start_s(number)
                assert start_s is not None
                first_s.setdefault(number, start_s)

    assert in_time > examples(1500)
    # With exact estimates nothing ends early, so nothing can move forward either.
    assert early == 0 if is_exact else early > examples(1500)


def test_without_backfilling_jobs_start_in_the_order_of_submission() -> None:
    random = Random(7)
    for _ in range(100):
        log = random_log(random, 8)

        numbers = [number for _, number in starts(counted_queue(OFF, capacity=8), log)]

        assert numbers == list(range(len(log)))


def test_greedy_leaves_no_waiting_job_that_would_fit() -> None:
    random = Random(8)
    for _ in range(100):
        log = random_log(random, 8)
        for moment in drive(counted_queue(GREEDY, capacity=8), log):
            free = 8 - sum(log.processors[number] for number in moment.running)

            assert all(log.processors[number] > free for number in moment.waiting)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_log_gives_the_same_schedule(name: str) -> None:
    results = []
    for _ in range(2):
        log = random_log(Random(9), 8)
        results.append(run_queue(log, counted_queue(Policy.named(name), capacity=8)))

    assert results[0] == results[1]


def test_as_many_reservations_as_jobs_is_conservative() -> None:
    random = Random(10)
    for _ in range(100):
        log = random_log(random, 8)

        numbered = run_queue(log, ProfileQueue(Policy(reservations=40), capacity=8))

        assert numbered == run_queue(log, ProfileQueue(CONSERVATIVE, capacity=8))
