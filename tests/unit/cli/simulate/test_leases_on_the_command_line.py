"""What a researcher asks of leases and tables on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.core.model import Node, Resources, Workspace
from outrider.sim.workload.formats.native import write_native
from outrider.sim.workload.trace import Trace, TraceSubmission
from tests.repository import ROOT

LEASES = str(ROOT / "tests" / "data" / "leases.lwf")


def published(folder: Path) -> str:
    """A trace in the thesis' own form: two best-effort requests for two instances each."""
    path = folder / "small.trace"
    path.write_text("".join(f"{at_s};file:///a;600;2;512;50;NULL;NULL;100;BATCH\n" for at_s in (0, 10)))
    return str(path)


def report_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["sim", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_leases_are_named_in_the_report_and_in_the_table_of_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.csv"

    report = report_of(capsys, "run", LEASES, "--jobs-csv", str(jobs))

    leases = report["leases"]
    assert isinstance(leases, list)
    assert [each["name"] for each in leases] == ["1", "2", "3", "4"] or len(leases) == 4
    with open(jobs, newline="") as file:
        named = {row["name"] for row in csv.DictReader(file)}
    assert named == {each["name"] for each in leases if each["state"] == "done"}


def test_best_effort_of_the_thesis_traces_is_serial_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = published(tmp_path)
    site = ("--nodes", "1", "--cpus", "1")

    together = report_of(capsys, "run", trace, *site)
    serial = report_of(capsys, "run", trace, *site, "--serial")

    assert together["jobs"] == 0
    assert serial["jobs"] == 4
    assert main(["sim", "run", LEASES, "--serial"]) == 1
    assert main(["sim", "convert", trace, str(tmp_path / "t.jsonl"), "--serial"]) == 0
    assert (tmp_path / "t.jsonl").read_text().count('"is_parallel":false') == 2


def test_a_table_begins_with_the_seed_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def cells(*words: str) -> tuple[object, object]:
        report = report_of(capsys, "table", "4.1", "--workers", "1", *words)
        parts = report["parts"]
        assert isinstance(parts, list)
        return report["first_seed"], [cell["ours"] for cell in parts[0]["rows"][0]["cells"]]

    first = cells("--seeds", "1")
    second = cells("--seeds", "1", "--first-seed", "2")
    both = cells("--seeds", "2")

    assert (first[0], second[0], both[0]) == (1, 2, 1)
    assert first[1] != second[1]
    assert isinstance(first[1], list)
    assert isinstance(second[1], list)
    assert isinstance(both[1], list)
    assert both[1][0] == pytest.approx((first[1][0] + second[1][0]) / 2)
    assert main(["sim", "table", "8.2", "--first-seed", "2"]) == 1


def test_whose_nodes_a_reservation_gets_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.jsonl"
    lines = [
        {"format": "outrider-trace", "version": 1, "name": "w"},
        {"at_s": 0, "name": "run", "instances": 1, "resources": {"cpus": 1}, "duration_s": 7200},
        {
            "at_s": 5,
            "name": "r",
            "instances": 1,
            "resources": {"cpus": 1},
            "duration_s": 900,
            "start_s": 1800,
        },
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    site = ("--nodes", "2", "--images", "predeployed", "--profile", "thesis")

    ends = {
        yielding: report_of(capsys, "run", str(path), *site, "--yielding", yielding)["makespan_s"]
        for yielding in ("cheapest", "youngest", "site-order")
    }

    assert ends == {"cheapest": 7920, "youngest": 7920, "site-order": 7920 + 990}


def batch_trace(folder: Path) -> str:
    """One node; a job that may yield, a reservation that is asked for while it runs, and a later job."""

    def job(name: str, at_s: int, work_s: int) -> TraceSubmission:
        return TraceSubmission(at_s=at_s, workspace=wanted(name, 120), run_s=work_s)

    def wanted(name: str, lasts_s: int, start_s: int | None = None) -> Workspace:
        one = Resources.of(cpus=1)
        return Workspace(name=name, instances=1, resources=one, duration_s=lasts_s, start_s=start_s)

    reserved = TraceSubmission(at_s=10, workspace=wanted("r", 30, 100), run_s=30)
    nodes = (Node(name="n1", capacity=Resources.of(cpus=1)),)
    given = (job("a", 0, 110), reserved, job("b", 11, 10))
    write_native(folder / "batch.jsonl", Trace(name="batch", submissions=given, nodes=nodes))
    return str(folder / "batch.jsonl")


def test_jobs_of_a_batch_system_are_started_by_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = batch_trace(tmp_path)

    ours = report_of(capsys, "run", trace, "--mode", "schedule", "--delay", "margin=20", "--delay", "start=2")
    theirs = report_of(capsys, "run", trace, "--mode", "lead", "--batch-system", "gridengine")

    # Sent back at 80 for the reservation, which ends at 130; two seconds to start, then 110 of work.
    assert ours["waiting_s"]["maximum"] == (130 + 2 + 110) + 2 - 11  # type: ignore[index]
    # Sent back at 100; it is looked at 135, and at 255 when the first has ended at 245.
    assert theirs["waiting_s"]["maximum"] == 255 - 11  # type: ignore[index]


@pytest.mark.parametrize(
    "words",
    [
        ("--order", "age"),
        ("--mode", "lead", "--policy", "off"),
        ("--mode", "schedule", "--pool", "1GB"),
        ("--mode", "schedule", "--batch-system", "slurm"),
        ("--mode", "schedule", "--delay", "end"),
    ],
)
def test_options_that_say_nothing_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    try:
        code = main(["sim", "run", batch_trace(tmp_path), *words])
    except SystemExit as ended:
        code = int(str(ended.code))

    assert code != 0


def test_first_slices_of_a_policy_file_are_followed_and_refused_where_nobody_is_suspended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes: a long job, a wide one behind it, a reservation of one node, and a short one beside that."""
    policies, trace, one = tmp_path / "policies.yaml", tmp_path / "t.jsonl", Resources.of(cpus=1)
    policies.write_text("version: 1\nrules: [{name: everybody}]\nleases: {first_slice: 2m}\n")

    def handed_in(name: str, at_s: int, run_s: int, limit_s: int, nodes: int = 1) -> TraceSubmission:
        workspace = Workspace(name=name, instances=nodes, resources=one, duration_s=limit_s)
        return TraceSubmission(at_s=at_s, run_s=run_s, workspace=workspace)

    lease = Workspace(name="lease", instances=1, resources=one, duration_s=1000, start_s=5000)
    submissions = (
        handed_in("long", 0, 20_000, 40_000),
        TraceSubmission(at_s=10, run_s=1000, workspace=lease),
        handed_in("head", 20, 100, 3600, nodes=2),
        handed_in("short", 5100, 30, 14_000),
    )
    nodes = tuple(Node(name=f"n{number}", capacity=one) for number in (1, 2))
    write_native(str(trace), Trace(name="t", submissions=submissions, nodes=nodes))
    words = ("run", str(trace), "--site-policy", str(policies), "--slowdown", "0")
    jobs = tmp_path / "jobs.csv"

    report_of(capsys, *words, "--jobs-csv", str(jobs))
    code = main(["sim", *words[:4], "--mode", "schedule"])

    with open(jobs, newline="") as file:
        starts = {row["name"]: float(row["starting_time"]) for row in csv.DictReader(file)}
    assert starts["short"] == 5100
    assert code == 1
    assert "leases.first_slice suspends who runs" in capsys.readouterr().err
