"""Which processors whom: no processor twice, suspended jobs in pieces."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.model import Resources, Workspace
from outrider.sim.results.occupancy import queued_over_time, used_over_time, world_occupancy
from outrider.sim.results.report import world_report
from outrider.sim.setup import THESIS, thesis_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation, SimulationResult

ONE_CPU = Resources.of(cpus=1)


def suspended_outcome() -> tuple[SimulationResult, Trace]:
    """One node of two slots: a job of 900 s in the way of a reservation of both from 600 to 900 s."""
    job = Workspace(name="job", instances=1, resources=ONE_CPU, duration_s=900, is_parallel=False)
    reservation = Workspace(name="both", instances=2, resources=ONE_CPU, duration_s=300, start_s=600)
    submissions = tuple(
        TraceSubmission(at_s=0, workspace=workspace, run_s=workspace.duration_s)
        for workspace in (reservation, job)
    )
    trace = Trace(name="suspended", submissions=submissions)
    return Simulation(replace(THESIS, slowdown_percent=0), thesis_nodes(1), trace).run(), trace


def test_suspended_job_has_two_bars_around_the_reservation() -> None:
    outcome, _ = suspended_outcome()
    occupancy = world_occupancy(outcome, "w")

    bars = [(bar.start_s, bar.end_s, bar.processors) for bar in occupancy.bars]
    assert bars == [(0, 600, ((0, 0),)), (600, 900, ((0, 1),)), (900, 1200, ((0, 0),))]
    assert [(row.start_s, row.end_s, row.allocated) for row in occupancy.jobs] == [
        (600, 900, ((0, 1),)),
        (0, 1200, ((0, 0),)),
    ]
    assert occupancy.names == ("both", "job/0")


def test_use_and_queue_are_counted_from_the_bars() -> None:
    outcome, _ = suspended_outcome()
    occupancy = world_occupancy(outcome, "w")

    assert used_over_time(occupancy.bars) == [(0, 1), (600, 2), (900, 1), (1200, 0)]
    # Nobody waits for a reservation, and the job begins at once.
    assert [waiting for _, waiting in queued_over_time(occupancy.jobs)] == [0, 0]


def test_report_counts_suspension_as_waiting() -> None:
    outcome, trace = suspended_outcome()
    report = world_report("w", outcome, trace.submissions)

    assert report.waiting_s is not None
    assert report.bounded_slowdown is not None
    assert report.waiting_s.maximum == 0
    assert report.bounded_slowdown.mean == 1200 / 900
    # 900 s of one slot and 300 s of two, of 1200 s of two.
    assert report.utilisation == (900 + 2 * 300) / (2 * 1200)
    assert report.reservations is not None
    assert (report.reservations.accepted, report.images) == (1, None)
