"""Reservations with several options in the simulated site, and options in Outrider's own trace form."""

from __future__ import annotations

from pathlib import Path

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.options.request import Option
from outrider.sim.setup import Setup
from outrider.sim.workload.formats.native import read_native, write_native
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation, SimulationResult

ONE = Resources.of(cpus=1)
IMAGE = Image(uri="i", size_bytes=100)
FASTER = Option(instances=4, resources=ONE, duration_s=35, image=IMAGE)
NODES = tuple(Node(name=f"n{number}", capacity=ONE) for number in range(4))


def asked(finish_by_s: int | None, run_s: int = 60) -> TraceSubmission:
    """Two nodes for 60 s, or four for 35, from 20 on; the image comes in 10 s."""
    wanted = Workspace(
        name="w", instances=2, resources=ONE, duration_s=60, image=IMAGE, start_s=20, finish_by_s=finish_by_s
    )
    return TraceSubmission(at_s=0, workspace=wanted, run_s=run_s, options=(FASTER,))


def run(*submissions: TraceSubmission) -> SimulationResult:
    setup = Setup(rate_bytes_per_s=10)
    return Simulation(setup, NODES, Trace(name="options", submissions=submissions)).run()


def test_option_with_fewer_node_seconds_runs_while_it_is_in_time() -> None:
    outcome = run(asked(200))

    (kept,) = outcome.kept
    assert (len(kept.nodes), kept.start_s, kept.end_s) == (2, 20, 80)


def test_other_option_runs_for_the_same_part_of_its_duration() -> None:
    # Three of four nodes are taken from 60 on, so two are not free for 60 s by 90; of its 35 s the faster
    # option runs half.
    blocker = Workspace(name="b", instances=3, resources=ONE, duration_s=100, start_s=60)
    outcome = run(TraceSubmission(at_s=0, workspace=blocker, run_s=0), asked(90, run_s=30))

    kept = next(each for each in outcome.kept if each.workspace.name == "w")
    assert (len(kept.nodes), kept.end_s - kept.start_s) == (4, 17)


def test_request_of_which_no_option_has_a_place_is_refused_once() -> None:
    blocker = Workspace(name="b", instances=3, resources=ONE, duration_s=500, start_s=1)
    outcome = run(TraceSubmission(at_s=0, workspace=blocker, run_s=500), asked(150))

    assert [submission.workspace.name for submission, _ in outcome.refused] == ["w"]


def test_larger_option_is_taken_where_only_that_keeps_the_deadline() -> None:
    late = Workspace(name="b", instances=1, resources=ONE, duration_s=30, start_s=60)
    wanted = Workspace(name="w", instances=4, resources=ONE, duration_s=60, start_s=20, finish_by_s=80)
    shorter = Option(instances=3, resources=ONE, duration_s=59)
    outcome = run(
        TraceSubmission(at_s=0, workspace=late, run_s=30),
        TraceSubmission(at_s=0, workspace=wanted, run_s=60, options=(shorter,)),
    )

    assert {each.workspace.name: len(each.nodes) for each in outcome.kept} == {"b": 1, "w": 3}
    assert outcome.workspaces["w"].duration_s == 59


def test_options_are_written_and_read_back_exactly(tmp_path: Path) -> None:
    trace = Trace(name="t", submissions=(asked(200),), nodes=NODES)
    path = tmp_path / "trace.jsonl"

    write_native(path, trace)

    assert read_native(path) == trace
