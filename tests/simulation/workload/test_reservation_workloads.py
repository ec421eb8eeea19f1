"""The workloads of section 8.1 of the thesis: reservations only."""

from dataclasses import replace
from statistics import mean

import pytest

from outrider.core.model import Image, Resources, Workspace
from outrider.sim.workload.reservations import (
    DiskUsageParameters,
    FeasibleParameters,
    disk_usage_trace,
    feasible_trace,
    transfers_meet_deadlines,
)
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError


def reservation(at_s: int, start_s: int, instances: int = 1) -> TraceSubmission:
    workspace = Workspace(
        name=f"ar-{start_s}",
        instances=instances,
        resources=Resources.of(cpus=1),
        duration_s=60,
        image=Image(uri="i", size_bytes=1),
        start_s=start_s,
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=60)


def most_demanded(trace: Trace, cost_s: int) -> int:
    """The largest excess of work over time in any interval from a submission to a start.

    If it is above 0, no schedule of one link exists, whatever the order.
    """
    requests = [(one.at_s, one.workspace.start_s or 0, one.workspace.instances * cost_s)
                for one in trace.submissions]  # fmt: skip
    return max(
        sum(work for at_s, start_s, work in requests if low <= at_s and start_s <= high) - (high - low)
        for low, _, _ in requests
        for _, high, _ in requests
        if low < high
    )


def test_disk_usage_workload_is_that_of_the_text() -> None:
    traces = [disk_usage_trace(DiskUsageParameters(seed=seed)) for seed in range(20)]

    workspaces = [one.workspace for trace in traces for one in trace.submissions]
    assert {len(trace.submissions) for trace in traces} == {94}
    assert {one.at_s for trace in traces for one in trace.submissions} == {0}
    assert {one.instances for one in workspaces} == set(range(1, 17))
    assert max(one.start_s or 0 for one in workspaces) <= 36_000
    assert mean(one.start_s or 0 for one in workspaces) == pytest.approx(18_200, rel=0.04)
    assert mean(one.duration_s for one in workspaces) == pytest.approx(600, rel=0.04)


def test_disk_usage_leaves_time_for_the_own_transfers() -> None:
    for seed in range(20):
        for one in disk_usage_trace(DiskUsageParameters(seed=seed)).submissions:
            assert (one.workspace.start_s or 0) >= 50 * one.workspace.instances


@pytest.mark.parametrize("window_s", [None, 100])
def test_admitted_reservations_do_not_overload_the_link(window_s: int | None) -> None:
    parameters = FeasibleParameters(seed=4, window_s=window_s)

    trace = feasible_trace(parameters)

    assert len(trace.submissions) == 36
    assert most_demanded(trace, parameters.transfer_s + parameters.overhead_s) <= 0
    assert {one.workspace.instances for one in trace.submissions} == {2, 3, 4}


def test_requests_without_admission_would_overload_the_link() -> None:
    free = FeasibleParameters(seed=4, window_s=100, transfer_s=48, overhead_s=10)
    blind = replace(free, overhead_s=-48)

    assert most_demanded(feasible_trace(blind), 58) > 0


def test_clustered_starts_lie_in_the_windows() -> None:
    trace = feasible_trace(FeasibleParameters(seed=2, window_s=100, reservations=30))

    starts = [one.workspace.start_s or 0 for one in trace.submissions]
    assert all(start_s >= 900 and start_s % 900 < 100 for start_s in starts)
    assert len({start_s // 900 for start_s in starts}) > 3


def test_no_more_instances_run_at_a_time_than_there_are_slots() -> None:
    parameters = FeasibleParameters(seed=3, duration_s=900, reservations=20)
    held = [
        (one.workspace.start_s or 0, one.workspace.instances)
        for one in feasible_trace(parameters).submissions
    ]

    busiest = max(
        sum(instances for start_s, instances in held if start_s <= now_s < start_s + 900) for now_s, _ in held
    )

    assert 4 < busiest <= 16


def test_tighter_deadline_goes_first_even_if_submitted_later() -> None:
    urgent_last = [reservation(0, 300, instances=3), reservation(40, 200)]

    assert transfers_meet_deadlines(urgent_last, 75)
    assert not transfers_meet_deadlines(urgent_last, 76)  # 4 transfers of 76 s end at 304


def test_transfer_waits_for_its_submission() -> None:
    assert transfers_meet_deadlines([reservation(100, 150)], 50)
    assert not transfers_meet_deadlines([reservation(101, 150)], 50)


def test_more_than_can_be_admitted_is_refused() -> None:
    with pytest.raises(WorkloadError, match="of 500 reservations could be admitted in 600 draws"):
        feasible_trace(FeasibleParameters(seed=1, reservations=500, attempts=600))
