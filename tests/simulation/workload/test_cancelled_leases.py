"""Leases that their users take back, in the files and in a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.sim.results.report import world_report
from outrider.sim.setup import Setup
from outrider.sim.workload.formats.haizea import read_haizea
from outrider.sim.workload.formats.native import read_native, write_native
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError
from outrider.sim.world import Simulation
from tests.repository import ROOT

ONE = Resources.of(cpus=1)
NODES = (Node(name="n1", capacity=ONE),)
LEASES = ROOT / "tests" / "data" / "leases.lwf"


def lease(
    name: str,
    duration_s: int,
    start_s: int | None = None,
    *,
    cancel_s: int | None = None,
    instances: int = 1,
    is_parallel: bool = True,
) -> TraceSubmission:
    workspace = Workspace(
        name=name, instances=instances, resources=ONE, duration_s=duration_s, start_s=start_s,
        is_parallel=is_parallel,
    )  # fmt: skip
    return TraceSubmission(at_s=0, workspace=workspace, run_s=duration_s, cancel_s=cancel_s)


def states(*leases: TraceSubmission) -> dict[str, tuple[str, int | None, int | None]]:
    trace = Trace(name="t", submissions=leases, nodes=NODES)
    outcome = Simulation(
        Setup(suspension=SuspensionRules(), backfilling=Backfilling.GREEDY), NODES, trace
    ).run()
    report = world_report("t", outcome, leases)
    assert report.never_fit == ()
    return {each.name: (each.state, each.start_s, each.end_s) for each in report.leases or ()}


def test_a_reservation_that_is_cancelled_before_its_start_leaves_its_slots_to_others() -> None:
    found = states(lease("gone", 100, 50, cancel_s=20), lease("run", 100))

    assert found == {"gone": ("cancelled", None, None), "run": ("done", 0, 100)}


def test_a_reservation_that_is_cancelled_while_it_lasts_ends_then() -> None:
    found = states(lease("gone", 100, 50, cancel_s=70), lease("run", 100))

    assert found == {"gone": ("cancelled", 50, 70), "run": ("done", 0, 120)}


def test_best_effort_that_is_cancelled_frees_its_node_or_its_place_in_the_queue() -> None:
    found = states(lease("runs", 100, cancel_s=30), lease("waits", 100, cancel_s=20), lease("next", 10))

    assert found == {
        "runs": ("cancelled", None, None),
        "waits": ("cancelled", None, None),
        "next": ("done", 30, 40),
    }


def test_what_is_over_cannot_be_cancelled_any_more() -> None:
    found = states(lease("over", 10, cancel_s=30), lease("before", 10, 40, cancel_s=60))

    assert found == {"over": ("done", 0, 10), "before": ("done", 40, 50)}


def test_of_a_serial_one_all_instances_that_are_left_go() -> None:
    found = states(lease("serial", 10, instances=3, is_parallel=False, cancel_s=15), lease("next", 10))

    assert found == {"serial": ("cancelled", 0, 10), "next": ("done", 15, 25)}


def test_files_say_when_a_lease_is_cancelled(tmp_path: Path) -> None:
    trace = Trace(name="t", submissions=(lease("a", 10, cancel_s=5),), nodes=NODES)
    write_native(tmp_path / "t.jsonl", trace)
    path = tmp_path / "leases.lwf"
    path.write_text(LEASES.read_text().replace("<lease-request ", '<lease-request cancelled="09:00:00" ', 1))

    assert read_native(tmp_path / "t.jsonl") == trace
    assert [one.cancel_s for one in read_haizea(path).submissions] == [32400, None, None, None]


def test_what_is_cancelled_before_it_is_handed_in_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "leases.lwf"
    text = LEASES.read_text().replace(
        '<lease-request arrival="00:10', '<lease-request cancelled="00:01:00" arrival="00:10'
    )
    assert text != LEASES.read_text()
    path.write_text(text)

    with pytest.raises(WorkloadError, match="cancelled at 60 s, before"):
        read_haizea(path)
