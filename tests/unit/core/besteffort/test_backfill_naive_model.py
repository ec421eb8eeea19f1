"""The queues against a model that looks at every second, written from the definitions.

The model knows nothing of profiles or events: it holds who runs and who waits, and asks
of each second how many processors are free in it.
"""

from __future__ import annotations

import os
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.besteffort.counted import Block, Policy
from outrider.sim.batch.counted import run_batch
from tests.amount import LONG, examples

# One job: submitted at, processors, estimate, real run time.
Job = tuple[int, int, int, int]

EASY = Policy.named("aggressive")
# Of all workloads the short form tries each fourth, among which each job has each of the nine shapes.
EVERY = 1 if os.environ.get(LONG) else 4
NAMES = ["off", "greedy", "aggressive", "reservations=2", "conservative"]


class Model:
    """The definitions, second by second."""

    def __init__(self, capacity: int, jobs: list[Job], blocks: list[Block]) -> None:
        self.capacity, self.jobs, self.blocks = capacity, jobs, blocks
        self.starts: dict[int, int] = {}
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.promised: dict[int, int] = {}

    def simulate(self, policy: Policy) -> list[int]:
        submitted: set[int] = set()
        second = 0
        while len(self.starts) < len(self.jobs) or self.running:
            ended = [i for i in self.running if self.starts[i] + self.jobs[i][3] == second]
            self.running = [i for i in self.running if i not in ended]
            came = [i for i in range(len(self.jobs)) if self.jobs[i][0] == second]
            came = [i for i in came if i not in submitted]
            submitted.update(came)
            self.waiting += came
            if policy == EASY and not self.blocks:
                self.decide_easy(second)
            elif ended or came or any(block.end_s == second for block in self.blocks):
                self.decide(second, policy)
            # A job of no length ends in the second of its start.
            if not any(self.starts[i] + self.jobs[i][3] == second for i in self.running):
                second += 1
        return [self.starts[i] for i in range(len(self.jobs))]

    def start(self, job: int, second: int) -> None:
        self.starts[job] = second
        self.waiting.remove(job)
        self.running.append(job)

    def unused(self, second: int) -> int:
        """Processors that neither running jobs (as estimated) nor blocks hold."""
        held = []
        for i in self.running:
            _, processors, requested, _ = self.jobs[i]
            if second < self.starts[i] + requested:
                held.append(processors)
        held += [b.processors for b in self.blocks if b.start_s <= second < b.end_s]
        return self.capacity - sum(held)

    def decide_easy(self, now: int) -> None:
        """Shadow time and extra processors, as the textbook has them."""
        while self.waiting and self.jobs[self.waiting[0]][1] <= self.unused(now):
            self.start(self.waiting[0], now)
        if not self.waiting:
            return
        head = self.jobs[self.waiting[0]][1]
        shadow = now
        while self.unused(shadow) < head:
            shadow += 1
        extra = self.unused(shadow) - head
        for job in self.waiting[1:]:
            _, processors, requested, _ = self.jobs[job]
            if processors > self.unused(now):
                continue
            if now + requested <= shadow:
                self.start(job, now)
            elif processors <= extra:
                extra -= processors
                self.start(job, now)

    def decide(self, now: int, policy: Policy) -> None:
        """The queue's order; who holds a promise goes as early as the others' allow."""
        for job in list(self.waiting):
            had_promise = self.promised.pop(job, None) is not None
            limit = policy.reservations
            may_hold = had_promise or limit is None or len(self.promised) < limit
            if self.is_possible(job, now):
                self.start(job, now)
            elif may_hold:
                begin = now + 1
                while not self.is_possible(job, begin):
                    begin += 1
                self.promised[job] = begin
            elif not policy.is_backfilling:
                return

    def is_possible(self, job: int, begin: int) -> bool:
        _, processors, requested, _ = self.jobs[job]
        return all(
            processors <= self.unused(second) - self.promised_in(second)
            for second in range(begin, begin + requested)
        )

    def promised_in(self, second: int) -> int:
        return sum(
            self.jobs[i][1] for i, begin in self.promised.items() if begin <= second < begin + self.jobs[i][2]
        )


def starts_by_program(capacity: int, jobs: list[Job], policy: Policy, blocks: list[Block]) -> list[int]:
    submits, processors, requests, runs = map(list, zip(*jobs, strict=True))
    result = run_batch(submits, runs, processors, requests, capacity=capacity, policy=policy, blocks=blocks)
    return list(result.start_s)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arrivals", [(0, 0, 0, 0), (0, 0, 1, 2)], ids=str)
def test_every_small_workload_is_scheduled_as_by_the_model(name: str, arrivals: tuple[int, ...]) -> None:
    policy = Policy.named(name)
    # Four jobs on four processors are the fewest with which the extra ones can be
    # used up: one runs, one waits with a reservation, two would pass it.
    shapes = list(product([1, 2, 3], [(1, 1), (3, 3), (3, 1)]))

    differing = []
    for chosen in islice(product(shapes, repeat=4), 0, None, EVERY):
        jobs = [
            (at, width, requested, run)
            for at, (width, (requested, run)) in zip(arrivals, chosen, strict=True)
        ]
        if starts_by_program(4, jobs, policy, []) != Model(4, jobs, []).simulate(policy):
            differing.append(jobs)

    assert differing == []


@pytest.mark.parametrize("name", NAMES)
def test_every_small_workload_beside_a_block_is_scheduled_as_by_the_model(
    name: str,
) -> None:
    policy = Policy.named(name)
    shapes = list(product([1, 2], [(1, 1), (2, 2), (3, 1)]))
    places = [(1, 2), (1, 3), (2, 3), (3, 5)]

    differing = []
    for chosen, place, held in product(product(shapes, repeat=3), places, [1, 2]):
        start_s, end_s = place
        blocks = [Block(processors=held, start_s=start_s, end_s=end_s)]
        jobs = [(0, width, requested, run) for width, (requested, run) in chosen]
        if starts_by_program(2, jobs, policy, blocks) != Model(2, jobs, blocks).simulate(policy):
            differing.append((jobs, blocks))

    assert differing == []


@st.composite
def workloads(draw: st.DrawFn) -> tuple[int, list[Job], list[Block]]:
    capacity = draw(st.integers(1, 6))
    count = draw(st.integers(1, 10))
    jobs = []
    at_s = 0
    for _ in range(count):
        at_s += draw(st.integers(0, 3))
        requested = draw(st.integers(1, 9))
        run = draw(st.integers(0, requested))
        jobs.append((at_s, draw(st.integers(1, capacity)), requested, run))
    blocks = []
    after_s = 0
    for _ in range(draw(st.integers(0, 2))):
        start_s = after_s + draw(st.integers(0, 8))
        after_s = start_s + draw(st.integers(1, 6))
        held = draw(st.integers(1, capacity))
        blocks.append(Block(processors=held, start_s=start_s, end_s=after_s))
    return capacity, jobs, blocks


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(workload=workloads(), name=st.sampled_from(NAMES))
def test_any_workload_is_scheduled_as_by_the_model(
    workload: tuple[int, list[Job], list[Block]], name: str
) -> None:
    policy = Policy.named(name)
    capacity, jobs, blocks = workload

    by_model = Model(capacity, jobs, blocks).simulate(policy)
    by_program = starts_by_program(capacity, jobs, policy, blocks)

    assert by_program == by_model
