"""What is written down of runs on hosts comes from the runs."""

from __future__ import annotations

import csv
from pathlib import Path

from bench.physical import report
from bench.physical.experiments import ALL


def found(name: str, real_s: float, ready_s: int) -> report.Found:
    experiment = ALL[name]
    quantity = {"name": "mean deployment", "unit": "s", "real": real_s, "simulated": 500.0, "fitted": 490.0}
    row = {"request": 0, "ready_s": ready_s, "size_bytes": 600_000_000}
    return {
        "name": name, "figure": experiment.figure, "trace": experiment.trace, "way": experiment.way,
        "factor": 40, "took_s": 1.0, "load": 0.5,
        "link_bytes_per_s": 12_000_000, "start_delay_s": 5.0, "jobs_started": 1,
        "leftovers": [], "rows": [row], "simulated_rows": [row], "quantities": [quantity],
    }  # fmt: skip


def test_hosts_are_compared_with_the_simulator_and_with_the_thesis() -> None:
    (row,) = report.summary([found("III/no-pool", 450.0, 100)])

    assert (row["difference_percent"], row["difference_as_measured_percent"]) == (-10.0, -8.2)
    assert row["thesis"] == 440


def test_lead_of_the_pools_is_what_is_deployed_more_by_then() -> None:
    rows = list(report.summary([found("IV/pool", 300.0, 3000), found("IV/no-pool", 450.0, 4000)]))

    assert (rows[-1]["quantity"], rows[-1]["physical"], rows[-1]["thesis"]) == (
        "lead of the pools at 3550 s", 0.6, 27.6,
    )  # fmt: skip


def test_quantities_of_a_run_are_written_for_the_site(tmp_path: Path) -> None:
    report.write_all([found("III/no-pool", 450.0, 100)], tmp_path)

    with (tmp_path / "results" / "physical-summary.csv").open(newline="") as file:
        assert [row["physical"] for row in csv.DictReader(file)] == ["450.0"]
