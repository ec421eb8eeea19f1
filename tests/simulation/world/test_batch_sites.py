"""Jobs that a batch system runs beside reservations of all kinds, in simulated time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.model import Node, Resources, Workspace
from outrider.sim.batch.site import BatchSite, Delays
from outrider.sim.batch.turns import LEAD, SimulatedJob, Starter, run_batch
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import SimulationResult
from tests.amount import examples

EASY = Starter(rules=ScheduleRules(places=1))
STARTERS = {"schedule": EASY, **LEAD}
CPUS = 4
DELAYS = Delays(start_s=1, end_s=2, margin_s=20, back_s=12)


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{number + 1}", capacity=Resources.of(cpus=CPUS)) for number in range(count))


def job(
    name: str, at_s: int, work_s: int, limit_s: int, *, cpus: int = CPUS, stays: bool = False
) -> TraceSubmission:
    workspace = Workspace(
        name=name,
        instances=1,
        resources=Resources.of(cpus=cpus),
        duration_s=limit_s,
        is_preemptible=not stays,
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=work_s)


def lease(name: str, at_s: int, start_s: int, lasts_s: int, **more: object) -> TraceSubmission:
    workspace = Workspace(
        name=name, instances=1, resources=Resources.of(cpus=CPUS), duration_s=lasts_s, start_s=start_s
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=lasts_s, **more)  # type: ignore[arg-type]


def ran(count: int, *given: TraceSubmission, delays: Delays = DELAYS) -> tuple[BatchSite, SimulationResult]:
    trace = Trace(name="t", submissions=sorted(given, key=lambda each: each.at_s))
    site = BatchSite(Setup(), nodes(count), trace, EASY, delays)
    return site, site.run()


def starts(outcome: SimulationResult) -> dict[str, int]:
    return {done.workspace: done.start_s for done in outcome.done}


def test_job_starts_and_frees_its_nodes_after_the_batch_systems_own_time() -> None:
    _, outcome = ran(1, job("a", 0, 10, 60), job("b", 0, 10, 60))

    # One second to start, ten of work, two until its node is known to be free, one to start.
    assert starts(outcome) == {"a": 1, "b": 1 + 10 + 2 + 1}


def test_preemptible_job_in_the_way_is_sent_back_and_comes_back_first() -> None:
    site, outcome = ran(1, job("a", 0, 100, 120), lease("r", 10, 50, 30), job("b", 11, 10, 60))

    # Sent back 20 s before the reservation, which ends at 80; then it has the node before who came later.
    assert site.requeued == {"a": 1}
    assert starts(outcome) == {"a": 81, "b": 81 + 100 + 2 + 1}
    assert [(kept.start_s, kept.end_s) for kept in outcome.kept] == [(50, 80)]


def test_job_that_may_not_yield_keeps_its_node_and_the_reservation_is_elsewhere_or_refused() -> None:
    site, outcome = ran(1, job("a", 0, 100, 120, stays=True), lease("r", 10, 50, 30))
    beside, found = ran(2, job("a", 0, 100, 120, stays=True), lease("r", 10, 50, 30))

    assert (site.requeued, [each.workspace.name for each, _ in outcome.refused]) == ({}, ["r"])
    assert beside.requeued == {}
    assert [kept.nodes for kept in found.kept] == [("n2",)]


def test_job_does_not_start_where_a_reservation_comes_before_its_limit() -> None:
    _, outcome = ran(1, lease("r", 0, 50, 30), job("a", 1, 10, 60), job("b", 2, 10, 40))

    assert starts(outcome) == {"b": 3, "a": 81}


@pytest.mark.parametrize("name", STARTERS)
@pytest.mark.parametrize("seed", range(examples(12)))
def test_without_reservations_and_delays_it_is_the_plain_queue(name: str, seed: int) -> None:
    chance, at_s, given = random.Random(seed), 0, []
    for number in range(30):
        at_s += chance.randint(0, 30)
        work_s = chance.randint(1, 200)
        given.append(
            job(str(number), at_s, work_s, work_s + chance.randint(0, 200), cpus=chance.choice((1, 2, 4)))
        )
    plain = [
        SimulatedJob(
            name=each.workspace.name,
            submitted_s=each.at_s,
            nodes_wanted=1,
            resources=each.workspace.resources,
            limit_s=each.workspace.duration_s,
            work_s=each.run_s,
        )
        for each in given
    ]

    outcome = BatchSite(Setup(), nodes(2), Trace(name="t", submissions=given), STARTERS[name]).run()

    expected = run_batch(nodes(2), plain, STARTERS[name])
    assert starts(outcome) == {run.job.name: run.start_s for run in expected}


def random_site(seed: int) -> tuple[BatchSite, list[TraceSubmission], SimulationResult]:
    chance, at_s, given = random.Random(seed), 0, list[TraceSubmission]()
    for number in range(40):
        at_s += chance.randint(0, 15)
        name, lasts_s, ahead_s = str(number), chance.randint(5, 60), chance.randint(0, 150)
        if chance.random() < 0.7:
            limit_s = chance.choice((30, 60, 120))
            work_s = chance.randint(1, limit_s)
            cpus, stays = chance.choice((1, 2, 4)), chance.random() < 0.5
            given.append(job(name, at_s, work_s, limit_s, cpus=cpus, stays=stays))
            continue
        more = chance.choice(
            (
                {},
                {},
                {"every_s": 90, "times": 2},
                {"open_until_s": at_s + ahead_s + 60, "within_s": 60, "trigger_s": at_s + ahead_s + 30},
            )
        )
        given.append(lease(name, at_s, at_s + ahead_s, lasts_s, **more))
    trace = Trace(name="t", submissions=given)
    site = BatchSite(Setup(), nodes(3), trace, EASY, DELAYS)
    return site, given, site.run()


@pytest.mark.parametrize("seed", range(examples(120)))
def test_in_random_histories_every_job_ends_once_and_only_who_may_yields(seed: int) -> None:
    site, given, outcome = random_site(seed)

    jobs = {each.workspace.name: each for each in given if each.workspace.is_best_effort}
    assert Counter(done.workspace for done in outcome.done) == Counter(list(jobs))
    assert all(jobs[name].workspace.is_preemptible for name in site.requeued)
    for done in outcome.done:
        assert done.end_s - done.start_s == jobs[done.workspace].run_s
        for kept in outcome.kept:
            if kept.start_s < done.end_s and done.start_s < kept.end_s:
                assert f"n{done.segments[0].shares[0].node + 1}" not in kept.nodes, (done, kept)
    answered = {each.workspace.name for each in outcome.kept} | {
        each.workspace.name for each, _ in outcome.refused
    }
    wanted = {
        part.workspace.name for each in given if not each.workspace.is_best_effort for part in each.parts()
    }
    assert answered == wanted - set(outcome.without_event)
