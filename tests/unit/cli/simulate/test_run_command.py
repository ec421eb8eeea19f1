"""`outrider sim run`: workloads of every kind, their reports and their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.results.joblog import COLUMNS, read_jobs
from outrider.sim.workload.formats.swf import read_log
from tests.repository import ROOT

Capture = pytest.CaptureFixture[str]
LEASES = str(ROOT / "tests" / "data" / "leases.lwf")

# Two processors: the second job waits 90 s for both, the third fits beside the first.
LOG = """; Acknowledge: nobody in particular
; MaxProcs: 2
1 0 -1 100 1 -1 -1 1 100 -1 1 1 -1 -1 -1 -1 -1 -1
2 10 -1 50 2 -1 -1 2 60 -1 1 1 -1 -1 -1 -1 -1 -1
3 20 -1 30 1 -1 -1 1 40 -1 1 1 -1 -1 -1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


def report(line: list[str], capsys: Capture) -> dict[str, object]:
    assert main(["sim", "run", *line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_log_is_measured_as_by_hand(log: Path, capsys: Capture) -> None:
    found = report([str(log)], capsys)

    assert found["jobs"] == 3
    assert found["waiting_s"] == {"mean": 30, "median": 0, "p90": 90, "p99": 90, "maximum": 90}
    assert found["makespan_s"] == 150
    assert found["utilisation"] == pytest.approx((100 + 2 * 50 + 30) / (2 * 150))
    assert found["longest_queue"] == 1


def test_without_backfilling_the_third_job_waits_for_the_second(log: Path, capsys: Capture) -> None:
    found = report([str(log), "--policy", "off"], capsys)

    assert found["waiting_s"]["maximum"] == 150 - 20  # type: ignore[index]


def test_jobs_wider_than_the_machine_are_named(log: Path, capsys: Capture) -> None:
    found = report([str(log), "--nodes", "1"], capsys)

    assert (found["jobs"], found["never_fit"]) == (2, ["job2"])


def test_text_report_says_what_json_says(log: Path, capsys: Capture) -> None:
    assert main(["sim", "run", str(log)]) == 0
    text = capsys.readouterr().out

    assert "1:30 min" in text
    assert "2:30 min" in text
    assert "76.7 %" in text


def test_schedule_is_written_for_others_to_read(log: Path, tmp_path: Path, capsys: Capture) -> None:
    jobs, swf = tmp_path / "jobs.csv", tmp_path / "schedule.swf"

    assert main(["sim", "run", str(log), "--jobs-csv", str(jobs), "--swf", str(swf)]) == 0

    with jobs.open() as file:
        rows = read_jobs(file)
    assert jobs.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert [(row.start_s, row.end_s) for row in rows] == [(0, 100), (100, 150), (20, 50)]
    written = read_log(swf)
    assert written.wait_s == [0, 90, 0]
    assert "; Acknowledge: nobody in particular" in written.header


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_schedule_is_drawn(log: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"gantt.{suffix}"

    assert main(["sim", "run", str(log), "--gantt", str(path)]) == 0

    assert path.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, "small.swf"]


def test_images_dealt_to_a_log_are_moved_once_for_each_node(log: Path, capsys: Capture) -> None:
    line = [str(log), "--nodes", "2", "--images", "uniform=1x100MB", "--shipping", "per-node"]
    found = report(line, capsys)

    images = found["images"]
    assert isinstance(images, dict)
    assert images["peak_disk_bytes"] == 100 * 10**6
    assert images["moved_bytes"] == 100 * 10**6 * images["transfers"]
    assert images["transfers"] >= 2


def test_images_larger_than_every_pool_are_named_and_end(log: Path, capsys: Capture) -> None:
    line = [str(log), "--images", "uniform=1x2GiB", "--pool", "1GB", "--profile", "thesis", "--reuse"]
    found = report(line, capsys)

    assert (found["jobs"], found["never_fit"]) == (0, ["job1", "job2", "job3"])


def test_reservations_are_refused_with_their_reason(tmp_path: Path, capsys: Capture) -> None:
    workload = tmp_path / "two.jsonl"
    header = {
        "format": "outrider-trace", "version": 1, "name": "two",
        "nodes": [{"name": "n1", "capacity": {"cpus": 1}}], "images": {},
    }  # fmt: skip
    rows = [
        {
            "at_s": 0,
            "name": name,
            "instances": 1,
            "resources": {"cpus": 1},
            "duration_s": 100,
            "start_s": 3600,
        }
        for name in ("first", "second")
    ]
    workload.write_text("".join(json.dumps(each) + "\n" for each in (header, *rows)))
    found = report([str(workload), "--images", "none"], capsys)

    reservations = found["reservations"]
    assert isinstance(reservations, dict)
    assert (reservations["accepted"], reservations["late"]) == (1, 0)
    assert [each["workspace"] for each in reservations["refused"]] == ["second"]
    assert "0 of 1 instances fit between 1:00:00 and 1:01:40" in reservations["refused"][0]["reason"]


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        (["--pool", "1GB"], "--pool"),
        (["--policy", "best"], "best"),
        (["--images", "uniform=0"], "uniform=0"),
        (["--images", "uniform=2xhuge"], "huge"),
        (["--images", "predeployed", "--push-back", "soon"], "soon"),
        (["--images", "uniform=2", "--evict", "lfu"], "--keep"),
        (["--cpus", "2"], "--nodes"),
        (["--gantt", "chart.txt"], "chart.txt"),
        (["--profile", "thesis"], "--profile"),
    ],
)
def test_options_without_effect_or_meaning_are_refused(
    log: Path, options: list[str], culprit: str, capsys: Capture
) -> None:
    assert main(["sim", "run", str(log), *options]) == 1
    assert culprit in capsys.readouterr().err


def test_unwritable_output_leaves_what_was_there(log: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["sim", "run", str(log), "--jobs-csv", str(tmp_path)]) == 2
    assert "folder" in capsys.readouterr().err


def test_every_option_on_eviction_is_one_the_node_side_knows() -> None:
    from cachemgr.pool.policies import POLICIES
    from outrider.cli.simulate.run import EVICTIONS

    assert set(EVICTIONS) == set(POLICIES)


def test_faults_are_injected_and_counted(tmp_path: Path, capsys: Capture) -> None:
    assert main(["sim", "run", LEASES, "--json"]) == 0
    sound = json.loads(capsys.readouterr().out)
    # Every node is away for two days from the beginning on, so nothing can be promised.
    away = [option for node in (1, 2, 3, 4) for option in ("--fail", f"n{node}:0:172800")]
    assert main(["sim", "run", LEASES, *away, "--json"]) == 0
    broken = json.loads(capsys.readouterr().out)

    assert sound["reservations"]["accepted"] == 3
    assert broken["reservations"]["accepted"] == 0


@pytest.mark.parametrize(
    ("option", "value", "culprit"),
    [
        ("--fail", "n1:9", "NODE:FROM:UNTIL"),
        ("--fail", "nowhere:1:2", "nowhere"),
        ("--fail", "n1:9:9", "not later"),
        ("--slow", "1:2", "FROM:UNTIL:PERCENT"),
    ],
)
def test_faults_that_make_no_sense_are_refused(
    option: str, value: str, culprit: str, capsys: Capture
) -> None:
    assert main(["sim", "run", LEASES, option, value]) == 1

    assert culprit in capsys.readouterr().err
