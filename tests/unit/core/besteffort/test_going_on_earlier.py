"""A run that is suspended, or will be, gains by what ends or goes before its time."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.suspension import BYTES_PER_MIB, SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.core.scheduler import Scheduler
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation
from tests.amount import examples

COSTLY = SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB)
OVERHEAD_S = 20


def setup(rules: SuspensionRules) -> Setup:
    return Setup(has_images=False, backfilling=Backfilling.GREEDY, suspension=rules)


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"n{n}", capacity=Resources.of(cpus=1, memory_mib=1000)) for n in range(1, count + 1)
    )


def workspace(name: str, duration_s: int, start_s: int | None = None, *, instances: int = 1) -> Workspace:
    return Workspace(
        name=name, instances=instances, resources=Resources.of(cpus=1, memory_mib=OVERHEAD_S),
        duration_s=duration_s, start_s=start_s,
    )  # fmt: skip


def suspended(rules: SuspensionRules, count: int = 1) -> tuple[Scheduler, BestEffortRun]:
    """A run of 200 s, for which a reservation of [100, 500) is in the way on all nodes."""
    scheduler = setup(rules).scheduler(nodes(count))
    scheduler.submit(workspace("run", 200))
    [run] = scheduler.schedule(0)
    scheduler.queue.begin(run, 0)
    scheduler.reserve(workspace("r", 400, 100, instances=count), 0)
    return scheduler, run


def spans(run: BestEffortRun) -> list[tuple[int, int, int, int]]:
    return [(each.start_s, each.end_s, each.resume_s, each.suspend_s) for each in run.segments]


def test_a_suspended_run_is_resumed_when_the_reservation_ends_early() -> None:
    scheduler, run = suspended(COSTLY)
    assert spans(run) == [(0, 100, 0, OVERHEAD_S), (500, 640, OVERHEAD_S, 0)]

    scheduler.end_reservation("r", 150)
    moved = scheduler.schedule(150)

    assert moved == [run]
    assert spans(run) == [(0, 100, 0, OVERHEAD_S), (150, 290, OVERHEAD_S, 0)]
    assert sum(each.useful_s for each in run.segments) == 200


def test_a_run_that_would_be_suspended_goes_on_when_the_reservation_is_cancelled() -> None:
    scheduler, run = suspended(COSTLY)

    scheduler.end_reservation("r", 30)
    moved = scheduler.schedule(30)

    assert moved == [run]
    assert spans(run) == [(0, 200, 0, 0)]


def test_a_run_that_gains_nothing_keeps_all_that_it_has() -> None:
    scheduler, run = suspended(COSTLY)
    scheduler.reserve(workspace("after", 300, 500), 0)
    before = spans(run)
    taken = [list(row.free) for row in scheduler.board.everything.rows]
    disks = [list(disk._taken) for disk in scheduler.board.disks]
    scheduler.queue.gain_node()

    moved = scheduler.schedule(40)

    assert moved == []
    assert spans(run) == before
    assert [list(row.free) for row in scheduler.board.everything.rows] == taken
    assert [list(disk._taken) for disk in scheduler.board.disks] == disks


def test_the_older_one_goes_on_first() -> None:
    scheduler = setup(SuspensionRules()).scheduler(nodes(2))
    for name in ("old", "young"):
        scheduler.submit(workspace(name, 200))
    runs = scheduler.schedule(0)
    for run in runs:
        scheduler.queue.begin(run, 0)
    scheduler.reserve(workspace("r", 400, 100, instances=2), 0)

    scheduler.end_reservation("r", 150)
    moved = scheduler.schedule(150)

    assert [run.name for run in moved] == ["old/0", "young/0"]
    assert all(run.end_s == 250 for run in runs)


@pytest.mark.parametrize("rules", [SuspensionRules(), COSTLY])
def test_in_a_simulation_nobody_is_still_suspended_on_a_node_on_which_nothing_is_planned(
    rules: SuspensionRules,
) -> None:
    """Reservations that use a tenth of their time: what ends is compared with what nodes could do."""
    for seed in range(examples(40)):
        chance = Random(seed)
        submissions = [
            TraceSubmission(at_s=0, workspace=workspace(f"be{n}", chance.randint(100, 900)), run_s=0)
            for n in range(2)
        ]
        submissions = [
            TraceSubmission(at_s=0, workspace=each.workspace, run_s=each.workspace.duration_s)
            for each in submissions
        ]
        submissions += [
            TraceSubmission(
                at_s=10,
                workspace=workspace(f"ar{n}", 1000, 100 + 1100 * n, instances=2),
                run_s=chance.randint(10, 100),
            )
            for n in range(2)
        ]
        outcome = Simulation(setup(rules), nodes(2), Trace(name="t", submissions=tuple(submissions))).run()

        overhead_s = rules.overhead_s(Resources.of(memory_mib=OVERHEAD_S))
        for done in outcome.done:
            # Two reservations of at most 100 s each are in its way, and writing and reading for each.
            work_s = sum(each.useful_s for each in done.segments)
            assert done.end_s <= work_s + 2 * (100 + 2 * overhead_s), f"seed {seed}"


def test_a_gang_gets_the_nodes_that_are_free_for_longest() -> None:
    scheduler = setup(SuspensionRules(least_run_s=60)).scheduler(nodes(4))
    first = scheduler.reserve(workspace("soon", 3600, 90, instances=2), 0)
    scheduler.reserve(workspace("later", 3600, 1800, instances=2), 0)
    scheduler.submit(workspace("gang", 2000, instances=2))

    [run] = scheduler.schedule(0)

    assert first.moved == ()
    assert spans(run)[0][:2] == (0, 1800)
    assert {share.node for share in run.segments[0].shares} == {2, 3}


def test_a_gang_gets_the_nodes_on_which_it_ends_first_though_others_are_free_for_longer() -> None:
    scheduler = setup(SuspensionRules(least_run_s=60)).scheduler(nodes(4))
    scheduler.reserve(workspace("short", 10, 90, instances=2), 0)
    scheduler.reserve(workspace("long", 3600, 1800, instances=2), 0)
    scheduler.submit(workspace("gang", 2000, instances=2))

    [run] = scheduler.schedule(0)

    assert spans(run) == [(0, 90, 0, 0), (100, 2010, 0, 0)]
