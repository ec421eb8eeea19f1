"""The general queue, where nothing but numbers of nodes matters, against the counted queues.

Nodes of one processor, no images, nothing suspended: then only how many nodes a workspace
takes counts, and the counted queues (which have a naive model of their own) say who starts
when. Without promises about the future the two must agree to the second. With promises
they may differ, because a promise here names its nodes: what must hold then is that
nobody is delayed by those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import BestEffortRun, QueueRules
from outrider.core.besteffort.counted import Policy
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.core.scheduler import Scheduler
from outrider.sim.batch.counted import run_batch
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation
from tests.amount import examples

ONE = Resources.of(cpus=1)
POLICIES = {
    "off": (Backfilling.OFF, 0),
    "greedy": (Backfilling.GREEDY, 0),
    "aggressive": (Backfilling.RESERVING, 1),
    "reservations=2": (Backfilling.RESERVING, 2),
    "conservative": (Backfilling.RESERVING, None),
}


@dataclass(frozen=True, slots=True)
class Job:
    submit_s: int
    width: int
    requested_s: int
    run_s: int

    def submission(self, number: int) -> TraceSubmission:
        workspace = Workspace(
            name=f"job-{number:03}", instances=self.width, resources=ONE, duration_s=self.requested_s
        )
        return TraceSubmission(at_s=self.submit_s, workspace=workspace, run_s=self.run_s)


def random_jobs(random: Random, capacity: int, *, is_exact: bool = False) -> list[Job]:
    jobs: list[Job] = []
    for _ in range(random.randint(1, 25)):
        requested_s = random.choice([random.randint(1, 20), random.randint(1, 200)])
        run_s = requested_s if is_exact or random.random() < 0.4 else random.randint(1, requested_s)
        jobs.append(Job(random.randint(0, 150), random.randint(1, capacity), requested_s, run_s))
    return sorted(jobs, key=lambda job: job.submit_s)


def setup(name: str) -> Setup:
    backfilling, places = POLICIES[name]
    return Setup(
        has_images=False,
        backfilling=backfilling,
        places=places,
        suspension=SuspensionRules(is_allowed=False),
    )


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{number}", capacity=ONE) for number in range(count))


def starts_of_general(jobs: Sequence[Job], name: str, capacity: int) -> list[int]:
    trace = Trace(name="jobs", submissions=[job.submission(number) for number, job in enumerate(jobs)])
    outcome = Simulation(setup(name), nodes(capacity), trace).run()
    starts = {done.workspace: done.start_s for done in outcome.done}
    return [starts[f"job-{number:03}"] for number in range(len(jobs))]


def starts_of_counted(jobs: Sequence[Job], name: str, capacity: int) -> list[int]:
    result = run_batch(
        [job.submit_s for job in jobs],
        [job.run_s for job in jobs],
        [job.width for job in jobs],
        [job.requested_s for job in jobs],
        capacity=capacity,
        policy=Policy.named(name),
    )
    return list(result.start_s)


@pytest.mark.parametrize("name", ["off", "greedy"])
def test_without_promises_the_two_queues_agree(name: str) -> None:
    for seed in range(examples(250)):
        random = Random(seed)
        capacity = random.randint(1, 6)
        jobs = random_jobs(random, capacity)

        assert starts_of_general(jobs, name, capacity) == starts_of_counted(jobs, name, capacity), seed


@pytest.mark.parametrize("name", POLICIES)
def test_on_one_node_the_two_queues_agree_with_promises_too(name: str) -> None:
    for seed in range(examples(150)):
        jobs = random_jobs(Random(seed), 1)

        assert starts_of_general(jobs, name, 1) == starts_of_counted(jobs, name, 1), seed


@dataclass(slots=True)
class Site:
    """Drives a scheduler by hand and writes down what it promises at each instant."""

    scheduler: Scheduler
    jobs: Sequence[Job]
    promised: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    began_behind: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        submissions = [job.submission(number) for number, job in enumerate(self.jobs)]
        real_s = {each.workspace.name: each.run_s for each in submissions}
        running: list[tuple[int, BestEffortRun]] = []
        while submissions or running or self.scheduler.board.runs or self.scheduler.queue.waiting:
            coming = [run.start_s for run in self.scheduler.board.runs.values() if not run.has_begun]
            now_s = min([*coming, *(end_s for end_s, _ in running), *(each.at_s for each in submissions)])
            for end_s, run in [entry for entry in running if entry[0] == now_s]:
                running.remove((end_s, run))
                self.scheduler.queue.finish(run, now_s)
            while submissions and submissions[0].at_s == now_s:
                assert self.scheduler.submit(submissions.pop(0).workspace)
            self.scheduler.schedule(now_s)
            for run in list(self.scheduler.board.runs.values()):
                if run.has_begun:
                    continue
                name = run.workspace.name
                self.promised.setdefault(name, []).append(run.start_s)
                if run.start_s == now_s:
                    self.scheduler.queue.begin(run, now_s)
                    self.starts[name] = now_s
                    running.append((now_s + real_s[name], run))


def site(jobs: Sequence[Job], name: str, capacity: int) -> Site:
    backfilling, places = POLICIES[name]
    rules = QueueRules(backfilling=backfilling, places=places, suspension=SuspensionRules(is_allowed=False))
    scheduler = setup(name).scheduler(nodes(capacity))
    assert scheduler.board.rules == rules
    driven = Site(scheduler, jobs)
    driven.run()
    return driven


@pytest.mark.parametrize("name", ["aggressive", "reservations=2", "conservative"])
def test_a_promised_start_never_moves_back_when_others_end_early(name: str) -> None:
    for seed in range(examples(250)):
        random = Random(seed)
        capacity = random.randint(1, 6)
        jobs = random_jobs(random, capacity)

        driven = site(jobs, name, capacity)

        assert len(driven.starts) == len(jobs)
        for job, promises in driven.promised.items():
            assert promises == sorted(promises, reverse=True), f"seed {seed}: {job} {promises}"


@pytest.mark.parametrize("name", ["aggressive", "reservations=2", "conservative"])
def test_the_world_and_a_site_driven_by_hand_decide_alike(name: str) -> None:
    for seed in range(examples(60)):
        random = Random(seed)
        capacity = random.randint(1, 6)
        jobs = random_jobs(random, capacity)

        by_hand = site(jobs, name, capacity).starts

        assert [by_hand[f"job-{number:03}"] for number in range(len(jobs))] == starts_of_general(
            jobs, name, capacity
        ), f"seed {seed}"


def test_who_waits_with_a_promise_starts_when_the_one_before_it_ends_early() -> None:
    jobs = [Job(0, 1, 100, 10), Job(1, 1, 50, 50)]

    assert starts_of_general(jobs, "aggressive", 1) == [0, 10]


def test_with_nobody_overtaking_starts_are_in_the_order_of_arrival() -> None:
    for seed in range(examples(150)):
        random = Random(seed)
        jobs = random_jobs(random, 4)

        starts = starts_of_general(jobs, "off", 4)

        assert starts == sorted(starts), seed
