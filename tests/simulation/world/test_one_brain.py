"""The service and the simulator decide alike of the same jobs: one is driven by what the other has seen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs import schedule
from outrider.core.besteffort.jobs.order import Order
from outrider.core.besteffort.jobs.schedule import JobSchedule, ScheduleRules, Walk
from outrider.core.model import Node, Resources
from outrider.rms.base import JobState, RmsJob, RmsReservation, Sight
from outrider.service.settings import ScheduleSettings, Settings
from outrider.sim.batch.turns import LEAD, BatchQueue, BatchRun, Blocked, SimulatedJob, Starter, run_batch
from tests.amount import examples
from tests.unit.service.desk.sandbox import RATE, Sandbox

LOOK_S, NODES, CPUS = 30, 6, 8
RULES = {
    "off": ScheduleRules(backfilling=Backfilling.OFF),
    "greedy": ScheduleRules(backfilling=Backfilling.GREEDY),
    "easy": ScheduleRules(places=1),
    "two": ScheduleRules(places=2),
    "conservative": ScheduleRules(places=None),
}
OCCUPYING = (JobState.STARTING, JobState.RUNNING)


def batch_job(job: RmsJob) -> SimulatedJob:
    assert job.limit_s is not None
    return SimulatedJob(
        name=job.key,
        submitted_s=job.submitted_s,
        nodes_wanted=job.nodes_wanted,
        resources=job.resources,
        limit_s=job.limit_s,
        work_s=job.limit_s,
    )


class Shadow:
    """The simulator's queue, told what each look at the batch system shows."""

    def __init__(self, sights: list[Sight], starter: Starter) -> None:
        nodes = [Node(name=node.name, capacity=node.capacity) for node in sights[0].nodes]
        blocked = {
            Blocked(name=each.name, nodes=each.nodes, start_s=each.start_s, end_s=each.end_s)
            for sight in sights
            for each in sight.reservations
        }
        self._queue = BatchQueue(nodes, starter, blocked, overrun_s=LOOK_S)
        self._seen: dict[str, JobState] = {}

    def look(self, sight: Sight) -> None:
        there = {job.key for job in sight.jobs}
        for name in [name for name in self._seen if name not in there]:
            self._queue.end(name)
            del self._seen[name]
        for job in sight.jobs:
            if job.key not in self._seen:
                self._queue.submit(batch_job(job), sight.at_s)
            if job.state in OCCUPYING and self._seen.get(job.key) not in OCCUPYING:
                assert job.start_s is not None
                self._queue.begin(job.key, job.nodes, job.start_s)
            self._seen[job.key] = job.state
        self._queue.seen(sight.at_s)

    def decide(self, at_s: int) -> set[tuple[str, tuple[str, ...]]]:
        """Who starts, on which nodes."""
        walk = self._queue.decide(at_s)
        return {(name, self._queue.names(place.nodes)) for name, place in walk.starts.items()}


class Recorded(Sandbox):
    """A sandbox that keeps what was seen at each look, and when its service has thought about all jobs."""

    events: list[Sight | int]

    def _carry_out(self, call: object) -> object:
        found = super()._carry_out(call)  # type: ignore[arg-type]
        if isinstance(found, Sight):
            self.events.append(found)
        return found


# Each rule with each order; in the short form each of these pairs once.
ORDERS = (Order.FCFS, Order.AGE, Order.SIZE)
SEEDS_AND_ORDERS = [
    pytest.param(seed, order, marks=[pytest.mark.long] if seed != number else [])
    for seed in range(9)
    for number, order in enumerate(ORDERS)
]


@pytest.mark.parametrize(("seed", "order"), SEEDS_AND_ORDERS)
@pytest.mark.parametrize("rule", RULES)
def test_service_and_simulator_decide_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, rule: str, order: Order
) -> None:
    chance = random.Random(f"{seed} {rule} {order}")
    starter = Starter(rules=RULES[rule], order=order)
    settings = Settings(
        link_rate_bytes_per_s=RATE,
        schedule=ScheduleSettings(queues=("main",), rules=starter.rules, order=order),
    )
    Recorded.events = events = list[Sight | int]()
    told: set[tuple[str, tuple[str, ...]]] = set()
    plain = JobSchedule.go_on

    def go_on(self: JobSchedule, now_s: int, available: int) -> Walk:
        events.append(now_s)
        found = plain(self, now_s, available)
        told.update(
            (name, tuple(f"n{node + 1}" for node in place.nodes)) for name, place in found.starts.items()
        )
        return found

    monkeypatch.setattr(JobSchedule, "go_on", go_on)
    # The service's walks are interrupted by whatever happens, the simulator's are not.
    monkeypatch.setattr(schedule, "SLICE", 1)
    world = Recorded(tmp_path, nodes=NODES, cpus=CPUS, settings=settings)
    reserved_s = world.now_s + chance.randint(300, 1500)
    world.rms.outside.reserve(
        RmsReservation(
            name="theirs", nodes=("n1", "n2"), start_s=reserved_s, end_s=reserved_s + 600, users=("root",)
        )
    )
    for _ in range(40):
        if chance.random() < 0.6:
            work_s = chance.randint(10, 900)
            world.submit(
                None,
                nodes=chance.choice((1, 1, 2, 3, 6)),
                cpus=chance.choice((CPUS, CPUS, 4, 2)),
                limit_s=max(work_s, chance.randint(60, 900)),
                argv=("sleep", str(work_s)),
            )
        world.sleep(chance.randint(1, 90))
    world.sleep(3600)
    world.close()

    monkeypatch.undo()

    shadow = Shadow([event for event in events if isinstance(event, Sight)], starter)
    simulated: set[tuple[str, tuple[str, ...]]] = set()
    for event in events:
        if isinstance(event, Sight):
            shadow.look(event)
        else:
            simulated |= shadow.decide(event)
    assert len(told) > 10
    assert simulated == told


def random_jobs(chance: random.Random, count: int) -> list[SimulatedJob]:
    at_s, found = 0, []
    for number in range(count):
        at_s += chance.randint(0, 120)
        work_s = chance.randint(1, 600)
        found.append(
            SimulatedJob(
                name=str(number),
                submitted_s=at_s,
                nodes_wanted=chance.choice((1, 1, 2, 4, 6)),
                resources=Resources.of(cpus=chance.choice((8, 8, 4))),
                limit_s=work_s + chance.randint(0, 600),
                work_s=work_s,
            )
        )
    return found


SITE = [Node(name=f"n{number}", capacity=Resources.of(cpus=CPUS)) for number in range(1, NODES + 1)]
EVENT = Blocked(name="event", nodes=("n1", "n2", "n3"), start_s=900, end_s=1500)
STARTERS = {**{f"schedule {name}": Starter(rules=rules) for name, rules in RULES.items()}, **LEAD}


@pytest.mark.parametrize("name", STARTERS)
@pytest.mark.parametrize("seed", range(examples(12)))
def test_every_job_runs_once_and_no_node_is_overbooked(name: str, seed: int) -> None:
    jobs = random_jobs(random.Random(seed), 40)

    runs = run_batch(SITE, jobs, STARTERS[name], [EVENT])

    assert sorted(run.job.name for run in runs) == sorted(job.name for job in jobs)
    assert all(
        run.start_s >= run.job.submitted_s and run.end_s == run.start_s + run.job.work_s for run in runs
    )
    assert all(len(set(run.nodes)) == run.job.nodes_wanted for run in runs)
    for at_s in sorted({run.start_s for run in runs}):
        assert most_used(runs, at_s) <= CPUS
    within = [run for run in runs if run.start_s < EVENT.end_s and run.end_s > EVENT.start_s]
    assert not any(set(run.nodes) & set(EVENT.nodes) for run in within)


def most_used(runs: list[BatchRun], at_s: int) -> int:
    used = dict.fromkeys((node.name for node in SITE), 0)
    for run in runs:
        if run.start_s <= at_s < run.end_s:
            for name in run.nodes:
                used[name] += dict(run.job.resources.amounts)["cpus"]
    return max(used.values())


def test_batch_system_that_looks_every_so_often_starts_nobody_in_between() -> None:
    runs = run_batch(SITE, random_jobs(random.Random(1), 30), LEAD["slurm"])

    assert {run.start_s % LEAD["slurm"].every_s for run in runs} == {0}
