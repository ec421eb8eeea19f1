"""Worlds small enough to be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.faults import Fault, LinkFault, NodeFault
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import EventOrder, Simulation, SimulationResult

RATE = 10
IMAGE = Image(uri="image", size_bytes=100)
NEVER_SUSPENDED = SuspensionRules(is_allowed=False)


class FiniteWorld(Simulation):
    """A world that complains instead of going on forever."""

    def _at(self, at_s: int, order: EventOrder, happen: Callable[..., None], *arguments: object) -> None:
        assert self._sequence < 500, f"at {self.now_s} after {self._sequence} events"
        super()._at(at_s, order, happen, *arguments)


def submission(
    name: str,
    duration_s: int,
    *,
    at_s: int = 0,
    start_s: int | None = None,
    image: Image | None = None,
    cpus: int = 1,
    instances: int = 1,
    run_s: int | None = None,
) -> TraceSubmission:
    workspace = Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=cpus),
        duration_s=duration_s,
        image=image,
        start_s=start_s,
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=duration_s if run_s is None else run_s)


def run(
    submissions: Sequence[TraceSubmission],
    *,
    nodes: Sequence[Node] | int = 1,
    faults: Sequence[Fault] = (),
    **changes: object,
) -> SimulationResult:
    if isinstance(nodes, int):
        nodes = tuple(Node(name=f"n{n}", capacity=Resources.of(cpus=1)) for n in range(nodes))
    given: dict[str, object] = {"rate_bytes_per_s": RATE, "suspension": NEVER_SUSPENDED, **changes}
    trace = Trace(name="small", submissions=submissions)
    return FiniteWorld(Setup(**given), tuple(nodes), trace, faults).run()  # type: ignore[arg-type]


def spans(outcome: SimulationResult) -> dict[str, list[tuple[int, int]]]:
    return {done.workspace: [(each.start_s, each.end_s) for each in done.segments] for done in outcome.done}


def test_a_run_on_a_node_that_fails_begins_again_and_is_done_once() -> None:
    outcome = run([submission("work", 50)], faults=[NodeFault(node="n0", at_s=20, until_s=30)])

    assert outcome.lost_runs == 1
    assert spans(outcome) == {"work": [(30, 80)]}


def test_a_node_is_away_until_the_last_of_its_faults_is_over() -> None:
    faults = [NodeFault(node="n0", at_s=0, until_s=30), NodeFault(node="n0", at_s=10, until_s=100)]

    outcome = run([submission("work", 50)], faults=faults)

    assert spans(outcome) == {"work": [(100, 150)]}


def test_a_reservation_that_loses_its_node_before_it_begins_gets_another() -> None:
    outcome = run(
        [submission("reservation", 50, start_s=100)],
        nodes=2,
        faults=[NodeFault(node="n0", at_s=20, until_s=500)],
    )

    [kept] = outcome.kept
    assert kept.nodes == ("n1",)
    assert (kept.start_s, kept.end_s) == (100, 150)
    assert outcome.broken == []


def test_a_reservation_that_loses_the_only_node_is_broken() -> None:
    outcome = run(
        [submission("reservation", 50, start_s=100)], faults=[NodeFault(node="n0", at_s=20, until_s=500)]
    )

    assert [each.workspace.name for each in outcome.broken] == ["reservation"]
    assert outcome.kept == []


def test_a_reservation_is_late_when_its_link_was_slow_and_broken_when_it_loses_its_node_as_well() -> None:
    late = submission("reservation", 50, start_s=100, image=IMAGE)
    slow = LinkFault(at_s=0, until_s=200, percent=100)

    kept = run([late], faults=[slow])
    lost = run([late], faults=[slow, NodeFault(node="n0", at_s=120, until_s=130)])

    assert ([each.workspace.name for each in kept.late], kept.broken) == (["reservation"], [])
    assert (lost.late, [each.workspace.name for each in lost.broken]) == ([], ["reservation"])


def test_best_effort_waits_for_an_image_that_a_slow_link_brings_late() -> None:
    slow = LinkFault(at_s=0, until_s=5, percent=50)

    outcome = run([submission("work", 50, image=IMAGE)], faults=[slow])

    assert spans(outcome) == {"work": [(15, 65)]}


@pytest.mark.parametrize("quantum_s", [1, 60])
def test_what_runs_for_no_time_is_done(quantum_s: int) -> None:
    outcome = run([submission("nothing", 50, run_s=0), submission("work", 50)], quantum_s=quantum_s)

    assert {done.workspace: (done.start_s, done.end_s) for done in outcome.done} == {
        "nothing": (0, 0),
        "work": (0, 50),
    }


def test_what_no_node_has_both_the_room_and_the_pool_for_is_impossible() -> None:
    nodes = (
        Node(name="wide", capacity=Resources.of(cpus=4), pool_bytes=50),
        Node(name="deep", capacity=Resources.of(cpus=1), pool_bytes=500),
    )

    outcome = run([submission("work", 50, image=IMAGE, cpus=2)], nodes=nodes, quantum_s=60)

    assert [each.workspace.name for each in outcome.impossible] == ["work"]


def test_two_nodes_of_which_one_pool_is_too_small_are_one_for_a_large_image() -> None:
    nodes = (
        Node(name="small", capacity=Resources.of(cpus=1), pool_bytes=50),
        Node(name="large", capacity=Resources.of(cpus=1), pool_bytes=500),
    )

    outcome = run([submission("work", 50, image=IMAGE, instances=2)], nodes=nodes, quantum_s=60)

    assert [each.workspace.name for each in outcome.impossible] == ["work"]


def test_best_effort_goes_where_the_pool_is_large_enough() -> None:
    nodes = (
        Node(name="small", capacity=Resources.of(cpus=1), pool_bytes=50),
        Node(name="large", capacity=Resources.of(cpus=1), pool_bytes=500),
    )

    outcome = run([submission("work", 50, image=IMAGE)], nodes=nodes, quantum_s=60)

    assert [segment.shares[0].node for done in outcome.done for segment in done.segments] == [1]


@pytest.mark.parametrize("backfilling", Backfilling)
def test_who_waits_starts_when_the_one_before_it_ends_early(backfilling: Backfilling) -> None:
    outcome = run([submission("first", 100, run_s=10), submission("second", 50)], backfilling=backfilling)

    assert spans(outcome)["second"] == [(10, 60)]


@pytest.mark.parametrize("backfilling", Backfilling)
def test_who_waits_starts_when_a_node_comes_back(backfilling: Backfilling) -> None:
    outcome = run(
        [submission("first", 100), submission("second", 50, at_s=10)],
        nodes=2,
        backfilling=backfilling,
        faults=[NodeFault(node="n1", at_s=5, until_s=30)],
    )

    assert spans(outcome) == {"first": [(0, 100)], "second": [(30, 80)]}
