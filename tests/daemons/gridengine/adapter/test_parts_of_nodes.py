"""On a real Grid Engine: reservations of parts of nodes, and guards that are made anew while jobs wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, NodeState, Refused, RmsReservation
from outrider.rms.commands import Output
from outrider.rms.gridengine import GridEngine, parsing
from tests.contract.gridengine_harness import (
    GridEngineHarness,
    gridengine,
    gridengine_of,
    the_cluster,
)
from tests.contract.harness import Scene

HALF = Resources.of(cpus=1)
"""Of the two slots of a node."""
LASTS_S = 1200


@pytest.fixture
def scene() -> Iterator[Scene]:
    with gridengine() as harness:
        yield Scene(harness)


def half(scene: Scene, name: str, *, start_s: int, person: int = 0) -> RmsReservation:
    """One slot of each of two nodes."""
    return RmsReservation(
        name=name,
        nodes=scene.nodes[:2],
        start_s=start_s,
        end_s=start_s + LASTS_S,
        users=(scene.harness.people[person].user,),
        size=HALF,
    )


def small(scene: Scene, *, on: str, limit_s: int | None, run_s: int = 100_000) -> str:
    """A job of one slot, on that node."""
    alice = scene.harness.people[0]
    limit = [] if limit_s is None else ["-l", f"h_rt={limit_s}"]
    where = ["-q", f"all.q@{on}", *limit]
    argv = ["qsub", "-terse", "-b", "y", *where, *scene.harness.command(run_s)]
    return the_cluster().run(argv, user=alice.user).strip()


def closed_hosts() -> list[str]:
    """The hosts whose work queue is disabled."""
    lines = [line.split() for line in the_cluster().run(["qstat", "-f", "-q", "all.q"]).splitlines()]
    return [line[0] for line in lines if len(line) == 6 and "d" in line[5]]


def test_two_parts_of_a_node_are_kept_beside_each_other_and_beside_jobs(scene: Scene) -> None:
    system, start_s = scene.system, scene.in_time_s()
    first = half(scene, "vw-1", start_s=start_s)
    system.reserve(first)
    kept = scene.reservations()
    beside = [small(scene, on=node, limit_s=None) for node in first.nodes]
    for job in beside:
        scene.wait_for_state(job, JobState.RUNNING)
    late = small(scene, on=first.nodes[0], limit_s=None)
    inside = system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation="vw-1"))
    scene.watch(start_s)
    found = scene.wait_for_state(inside, JobState.RUNNING, within_s=scene.lags.change_s)

    assert kept == {"vw-1": first}
    assert found is not None
    assert (found.nodes, found.resources, found.reservation) == (first.nodes, HALF, "vw-1")
    assert [scene.state(job) for job in (*beside, late)] == [JobState.RUNNING] * 2 + [JobState.PENDING]
    with pytest.raises(Refused, match="has n1 until"):
        system.reserve(replace(first, name="vw-2", size=Resources.of(cpus=2)))


def test_two_users_have_halves_and_neither_gets_more(scene: Scene) -> None:
    start_s = scene.in_time_s()
    for person, name in enumerate(("vw-1", "vw-2")):
        scene.system.reserve(half(scene, name, start_s=start_s, person=person))
    with pytest.raises(Refused, match="has n1 until"):
        scene.system.reserve(half(scene, "vw-3", start_s=start_s))
    jobs = [
        scene.system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation=name, person=person))
        for person, name in enumerate(("vw-1", "vw-2"))
    ]
    third = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation="vw-1"))
    scene.watch(start_s)
    for job in jobs:
        scene.wait_for_state(job, JobState.RUNNING)
    scene.settle()

    assert [scene.state(job) for job in (*jobs, third)] == [JobState.RUNNING] * 2 + [JobState.PENDING]


def test_part_that_jobs_have_is_refused_and_nothing_is_left_of_it(scene: Scene) -> None:
    for _ in range(2):
        scene.wait_for_state(small(scene, on=scene.nodes[0], limit_s=None), JobState.RUNNING)

    with pytest.raises(Refused, match="cannot keep 1 slots"):
        scene.system.reserve(half(scene, "vw-1", start_s=scene.in_time_s() + 600))
    assert scene.reservations() == {}
    assert the_cluster().run(["qrstat", "-u", "*"]) == ""
    assert closed_hosts() == []


def test_part_that_cannot_be_moved_stays_where_it_was(scene: Scene) -> None:
    kept = half(scene, "vw-1", start_s=scene.in_time_s() + 900)
    scene.system.reserve(kept)
    for _ in range(2):
        scene.wait_for_state(small(scene, on=scene.nodes[3], limit_s=None), JobState.RUNNING)

    with pytest.raises(Refused, match="cannot keep"):
        scene.system.reserve(replace(kept, nodes=(scene.nodes[2], scene.nodes[3])))
    late = small(scene, on=kept.nodes[0], limit_s=None)
    scene.wait_for_state(late, JobState.RUNNING)
    later = small(scene, on=kept.nodes[0], limit_s=None)
    scene.settle()

    assert scene.reservations() == {"vw-1": kept}
    assert scene.state(later) is JobState.PENDING


class Hasty:
    """A runner between any two of whose commands Grid Engine starts all that may start."""

    def __init__(self, harness: GridEngineHarness) -> None:
        self._harness = harness

    def __call__(self, argv: Sequence[str], **given: Any) -> Output:
        done = self._harness.runner(argv, **given)
        if argv[0] in ("qrdel", "qrsub", "qconf"):
            self._harness.pass_time(1)
        return done


def moved_on(scene: Scene, system: GridEngine, times: int) -> RmsReservation:
    """A whole node for what may come at any moment: it is to begin 300 s from now, again and again."""
    wanted = scene.reservation("vw-1", scene.nodes[:1], scene.harness.now_s() + 300, 100_000)
    system.reserve(wanted)
    for _ in range(times):
        the_cluster().stand_still(100)
        wanted = replace(wanted, start_s=scene.harness.now_s() + 300)
        system.reserve(wanted)
    return wanted


def test_what_would_stay_for_long_never_starts_while_a_guard_is_made_anew(scene: Scene) -> None:
    assert isinstance(scene.harness, GridEngineHarness)
    system = gridengine_of(the_cluster(), Hasty(scene.harness))
    moved_on(scene, system, 0)
    long = [small(scene, on=scene.nodes[0], limit_s=3000) for _ in range(3)]

    moved_on(scene, system, 2)
    short = small(scene, on=scene.nodes[0], limit_s=200, run_s=40)
    scene.wait_for_state(short, JobState.RUNNING, JobState.ENDED, within_s=scene.lags.change_s)

    assert [scene.state(job) for job in long] == [JobState.PENDING] * 3
    assert scene.state(short) in (JobState.RUNNING, JobState.ENDED)


def test_job_that_is_there_when_the_event_comes_is_followed_by_no_other(scene: Scene) -> None:
    assert isinstance(scene.harness, GridEngineHarness)
    system = gridengine_of(the_cluster(), Hasty(scene.harness))
    wanted = moved_on(scene, system, 1)
    short = small(scene, on=scene.nodes[0], limit_s=200, run_s=100)
    scene.wait_for_state(short, JobState.RUNNING)
    long = [small(scene, on=scene.nodes[0], limit_s=3000) for _ in range(3)]
    inside = system.submit(scene.submission(limit_s=None, reservation="vw-1"))

    system.reserve(replace(wanted, start_s=scene.harness.now_s()))
    scene.wait_for_state(inside, JobState.RUNNING, within_s=200 + scene.lags.change_s)

    assert [scene.state(job) for job in long] == [JobState.PENDING] * 3


def test_host_that_a_killed_service_has_left_closed_is_opened_and_a_drained_one_is_not(scene: Scene) -> None:
    assert isinstance(scene.harness, GridEngineHarness)
    closed, drained = scene.nodes[:2]
    scene.harness.drain(drained)
    mark = ("-N", f"outrider_closed_{closed}", "-a", parsing.utc_text(scene.harness.now_s() + 86_400))
    what = ("-d", "60", "-q", f"ar.q@{closed}", "-l", "outrider_reservation=TRUE")
    the_cluster().run(["qrsub", *mark, *what], user="outrider")
    the_cluster().run(["qmod", "-d", f"all.q@{closed}"])
    before = closed_hosts()
    states = {node.name: node.state for node in scene.look().nodes}

    assert before == [f"all.q@{closed}", f"all.q@{drained}"]
    assert (states[closed], states[drained]) == (NodeState.UP, NodeState.DRAINED)
    assert closed_hosts() == [f"all.q@{drained}"]
    assert scene.reservations() == {}
    assert the_cluster().run(["qrstat", "-u", "*"]) == ""
