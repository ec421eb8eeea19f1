"""The 36 mixed traces of section 8.3 of the thesis."""

import os
import subprocess
import sys
from dataclasses import replace
from statistics import mean

import pytest

from outrider.core.model import Resources
from outrider.sim.workload.mixed import (
    ROWS,
    MixedParameters,
    mixed_trace,
    requested_work,
    row_parameters,
)
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError


def all_rows(seed: int | str) -> dict[str, Trace]:
    return {label: mixed_trace(row_parameters(label, seed), name=label) for label in ROWS}


@pytest.fixture(scope="module")
def rows() -> dict[str, Trace]:
    return all_rows(1)


def reserved(trace: Trace) -> list[TraceSubmission]:
    return [one for one in trace.submissions if not one.workspace.is_best_effort]


def best_effort(trace: Trace) -> list[TraceSubmission]:
    return [one for one in trace.submissions if one.workspace.is_best_effort]


def test_rows_are_those_of_the_published_tables(rows: dict[str, Trace]) -> None:
    assert list(rows) == list(ROWS)
    assert len(rows) == 36
    assert (ROWS[0], ROWS[-1]) == ("long,000-025,25-75", "short,075-100,75-25")


def test_every_trace_asks_for_ten_to_ten_and_a_half_hours_of_all_slots(
    rows: dict[str, Trace],
) -> None:
    for trace in rows.values():
        hours = sum(requested_work(list(trace.submissions))) / 16 / 3600

        assert 10 <= hours <= 10.5


def test_best_effort_has_its_share_of_the_work(rows: dict[str, Trace]) -> None:
    for label, trace in rows.items():
        wanted = int(label.split(",")[2][:2]) / 100
        free, kept = requested_work(list(trace.submissions))

        assert free / (free + kept) == pytest.approx(wanted, abs=0.015)


def test_reservations_are_known_from_the_beginning_and_start_within_ten_hours(
    rows: dict[str, Trace],
) -> None:
    for label, trace in rows.items():
        low, high = (int(percent) * 16 // 100 for percent in label.split(",")[1].split("-"))
        for one in reserved(trace):
            assert one.at_s == 0
            assert one.workspace.start_s is not None
            assert one.workspace.start_s % 60 == one.workspace.duration_s % 60 == 0
            assert 0 < one.workspace.start_s <= 36_000
            assert low < one.workspace.instances <= high
            assert one.workspace.is_parallel


def test_best_effort_is_serial_and_close_to_its_mean_duration(
    rows: dict[str, Trace],
) -> None:
    means = {"long": 900, "medium": 600, "short": 285}
    for label, trace in rows.items():
        wanted_s = means[label.split(",")[0]]
        durations = [one.workspace.duration_s for one in best_effort(trace)]

        assert mean(durations) == pytest.approx(wanted_s, rel=0.06)
        assert not any(one.workspace.is_parallel for one in best_effort(trace))
        assert all(one.workspace.resources == Resources.of(cpus=1) for one in best_effort(trace))


@pytest.mark.parametrize(("label", "printed"), [("long,075-100,75-25", 830), ("short,075-100,75-25", 1876)])
def test_two_rows_have_the_number_of_vms_that_the_thesis_prints(label: str, printed: int) -> None:
    counts = [
        sum(one.workspace.instances for one in mixed_trace(row_parameters(label, seed)).submissions)
        for seed in range(20)
    ]

    assert mean(counts) == pytest.approx(printed, rel=0.02)


def test_derived_means_are_those_behind_the_tables() -> None:
    parameters = [row_parameters(f"short,{nodes},50-50", 0) for nodes in
                  ("000-025", "025-050", "050-075", "075-100")]  # fmt: skip

    assert [one.ar_mean_s for one in parameters] == [2486, 956, 592, 429]
    assert (parameters[0].interval_mean_s, parameters[0].work_per_request) == (379, 6215)


def test_seven_images_serve_seventy_per_cent_of_the_requests() -> None:
    traces = all_rows("images").values()
    uris = [one.workspace.image.uri for trace in traces for one in trace.submissions
            if one.workspace.image]  # fmt: skip

    popular = sum(uri <= "image-07" for uri in uris)
    assert len(set(uris)) == 37
    assert popular / len(uris) == pytest.approx(0.70, abs=0.03)


def test_lead_counts_transfers_as_asked() -> None:
    each = row_parameters("short,075-100,50-50", 3)
    each = replace(each, share_tolerance=1.0, work_low_s=1, work_high_s=75_599, lead_high=0.1)
    shared = replace(each, instances_per_transfer=2)

    starts = [
        next(one.workspace.start_s or 0 for one in reserved(mixed_trace(parameters)))
        for parameters in (each, shared)
    ]

    assert 300 <= starts[0] - starts[1] <= 480  # 7 or 8 transfers of 55 s, then whole minutes


def test_seed_decides_everything_and_rows_differ() -> None:
    label = "medium,025-050,50-50"

    assert mixed_trace(row_parameters(label, 5)) == mixed_trace(row_parameters(label, 5))
    assert mixed_trace(row_parameters(label, 5)) != mixed_trace(row_parameters(label, 6))


def test_hash_seed_of_the_process_changes_nothing() -> None:
    program = (
        "from outrider.sim.workload.mixed import *\n"
        "from outrider.sim.workload.reservations import *\n"
        "from outrider.sim.workload.synthetic import *\n"
        "print(mixed_trace(row_parameters('short,000-025,50-50', 9)))\n"
        "print(disk_usage_trace(DiskUsageParameters(seed='a')))\n"
        "print(feasible_trace(FeasibleParameters(seed='a', reservations=9)))\n"
        "print(synthetic_leases(20, 4, seed='a'))\n"
    )

    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=240,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(printed) == 1
    assert b"be1" in printed.pop()


def test_parameters_that_cannot_be_met_are_refused() -> None:
    parameters = replace(row_parameters(ROWS[0], 1), attempts=20, share_tolerance=0.0)

    with pytest.raises(WorkloadError, match="none of 20 draws"):
        mixed_trace(parameters)


@pytest.mark.parametrize(
    ("share", "high", "requests", "message"),
    [
        (1.0, 4, 95, "between 0 and 1"),
        (0.5, 17, 95, "do not fit 16 slots"),
        (0.5, 4, 0, "1 or more"),
    ],
)
def test_impossible_parameters_are_refused(share: float, high: int, requests: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixedParameters(
            share_best_effort=share,
            best_effort_mean_s=600,
            ar_nodes_low=1,
            ar_nodes_high=high,
            seed=1,
            requests=requests,
        )


def test_unknown_row_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="no row 'short,075-100'; rows are like 'long,"):
        row_parameters("short,075-100", 1)
