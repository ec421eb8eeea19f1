"""Whom leases keep waiting has a first slice at once; who runs makes way for it, and not too often."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.besteffort.protection.first_slice import AHEAD_S, MOST_PAUSES, SliceRules
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.core.scheduler import LeaseRules
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import FinishedRun, Simulation
from tests.amount import examples

ONE = Resources.of(cpus=1, memory_mib=100)
WRITE_S = 2
SUSPENDING = SuspensionRules(disk_bytes_per_s=50 << 20, least_run_s=1)
HOUR_S = 3600
RULES = SliceRules(length_s=100)


def job(
    name: str, at_s: int, run_s: int, *, nodes: int = 1, limit_s: int | None = None, may_stop: bool = True
) -> TraceSubmission:
    workspace = Workspace(
        name=name, instances=nodes, resources=ONE, duration_s=limit_s or run_s, is_preemptible=may_stop
    )
    return TraceSubmission(at_s=at_s, run_s=run_s, workspace=workspace)


def lease(name: str, at_s: int, start_s: int, lasts_s: int, nodes: int = 1) -> TraceSubmission:
    workspace = Workspace(name=name, instances=nodes, resources=ONE, duration_s=lasts_s, start_s=start_s)
    return TraceSubmission(at_s=at_s, run_s=lasts_s, workspace=workspace)


def simulation(nodes: int, submissions: list[TraceSubmission], slices: SliceRules | None) -> Simulation:
    setup = Setup(has_images=False, suspension=SUSPENDING, leases=LeaseRules(is_moving=True, slices=slices))
    site = tuple(Node(name=f"n{number}", capacity=ONE) for number in range(nodes))
    ordered = tuple(sorted(submissions, key=lambda each: each.at_s))
    return Simulation(setup, site, Trace(name="t", submissions=ordered))


def ran(
    nodes: int, submissions: list[TraceSubmission], slices: SliceRules | None = RULES
) -> dict[str, FinishedRun]:
    return {run.workspace: run for run in simulation(nodes, submissions, slices).run().done}


LONG = job("long", 0, 5 * HOUR_S, limit_s=10 * HOUR_S)
HEAD = job("head", 20, HOUR_S, nodes=2)
"""The first that waits has a place in the future, and keeps it."""
LEASE = lease("lease", 10, 5000, 1000)


def test_a_short_one_that_waits_beside_a_lease_runs_at_once_where_a_long_one_is_suspended() -> None:
    """One node of two is the lease's from 5000 to 6000, the other the long job's."""
    submissions = [LONG, HEAD, LEASE, job("short", 5100, 30, limit_s=4 * HOUR_S)]

    done = ran(2, submissions)
    plain = ran(2, submissions, None)

    assert (done["short"].start_s, done["short"].end_s) == (5100 + WRITE_S, 5130 + WRITE_S)
    # Nobody who asks for more is put between the lease and its end without one.
    assert plain["short"].start_s == 6000
    # Written, away for as long as the short one ran, read.
    assert done["long"].end_s == plain["long"].end_s + WRITE_S + 30 + WRITE_S


def test_who_is_not_over_by_then_begins_anew_in_its_turn_and_has_no_other_slice() -> None:
    submissions = [LONG, HEAD, LEASE, job("other", 5100, 2000, limit_s=4 * HOUR_S)]

    done = ran(2, submissions)

    assert done["other"].segments[0].start_s == 6000
    assert done["other"].end_s == 8000
    assert len(done["long"].segments) == 2


def test_who_asks_for_little_has_all_of_it_at_once() -> None:
    submissions = [LONG, HEAD, LEASE, job("small", 5100, 450, limit_s=500)]

    assert ran(2, submissions)["small"].start_s == 5100 + WRITE_S


@pytest.mark.parametrize(
    "waiting",
    [
        job("short", 5100, 30, limit_s=4 * HOUR_S, may_stop=False),
        job("short", 6100, 30, nodes=2, limit_s=4 * HOUR_S),
    ],
)
def test_who_may_not_be_stopped_or_came_when_the_lease_was_over_waits(waiting: TraceSubmission) -> None:
    submissions = [LONG, HEAD, LEASE, waiting]

    assert ran(2, submissions) == ran(2, submissions, None)


def test_who_came_before_the_lease_has_a_slice_from_an_hour_before_it_on() -> None:
    early = 5000 - AHEAD_S
    submissions = [
        LONG,
        HEAD,
        LEASE,
        job("wide", early - 10, 30, nodes=2, limit_s=4 * HOUR_S),
        job("tick", early, 1),
    ]

    assert ran(2, submissions)["wide"].start_s == early + 1 + WRITE_S


def test_who_is_nearly_over_and_who_has_a_place_in_the_future_make_way_for_nobody() -> None:
    nearly = job("nearly", 0, 6000, limit_s=6000)
    submissions = [nearly, HEAD, LEASE, job("short", 5100, 30, limit_s=4 * HOUR_S)]

    assert len(ran(2, submissions)["nearly"].segments) == 1


def history(random: Random, leases: int) -> tuple[int, list[TraceSubmission]]:
    nodes = random.randint(2, 6)
    found = [
        job(
            f"j{number}",
            random.randint(0, 20_000),
            random.choice([5, 60, 300, 3000, 12_000]),
            nodes=random.randint(1, nodes),
            limit_s=random.choice([12_000, 30_000]),
            may_stop=random.random() < 0.9,
        )
        for number in range(40)
    ]
    for number in range(leases):
        at_s = random.randint(0, 20_000)
        start_s = at_s + random.randint(10, 5000)
        found.append(lease(f"l{number}", at_s, start_s, random.randint(100, 3000), random.randint(1, nodes)))
    return nodes, found


@pytest.mark.parametrize("seed", range(examples(12)))
def test_nobody_makes_way_too_often_none_has_two_slices_and_every_lease_is_kept(seed: int) -> None:
    nodes, submissions = history(Random(seed), 8)
    world = simulation(nodes, submissions, SliceRules(length_s=100))
    slices = world.scheduler.slices
    assert slices is not None
    begun: list[str] = []
    pauses: dict[str, int] = {}
    take = slices._take

    def watched(waiting, place, now_s):  # type: ignore[no-untyped-def]
        heads = [
            (run, run.start_s) for run in world.scheduler.board.runs.values()
            if not run.has_begun and run.start_s > max(run.ready_s, now_s)
        ]  # fmt: skip
        begun.append(waiting.workspace.name)
        changed = take(waiting, place, now_s)
        assert all(run.start_s == start_s for run, start_s in heads), "a place of the queue has moved"
        pauses.update({run.name: run.pauses for run in changed})
        return changed

    slices._take = watched  # type: ignore[method-assign]
    outcome = world.run()

    assert len(begun) == len(set(begun)) > 0
    assert max(pauses.values()) <= MOST_PAUSES
    assert len(outcome.done) == 40
    assert len(outcome.kept) + len(outcome.refused) == 8
    for run in outcome.done:
        length_s = sum(segment.useful_s for segment in run.segments)
        assert length_s == next(each.run_s for each in submissions if each.workspace.name == run.workspace)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_without_leases_every_run_is_as_it_is_without_slices(seed: int) -> None:
    nodes, submissions = history(Random(seed), 0)

    sliced = simulation(nodes, submissions, SliceRules(length_s=100)).run()
    plain = simulation(nodes, submissions, None).run()

    assert repr(sliced).encode() == repr(plain).encode()
