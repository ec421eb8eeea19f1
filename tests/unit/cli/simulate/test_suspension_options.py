"""`outrider sim run`: each option of suspension and migration does something, and what says
nothing is refused.

An instance has 1000 MiB: 21 s at 50 MB/s, 11 s at 100 MB/s. In a virtual machine 200 s become 220 s, and a
reservation of 40 s from 100 on ends at 144. What is suspended by then has worked for 100 s less the writing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from outrider.cli.main import main

Capture = pytest.CaptureFixture[str]
EACH = {"cpus": 1, "memory_mib": 1000}


def ends(folder: Path, nodes: int, submissions: Sequence[dict[str, object]], *options: str) -> dict[str, int]:
    """When each job is over."""
    header = {
        "format": "outrider-trace", "version": 1, "name": "t",
        "nodes": [{"name": f"n{number}", "capacity": EACH} for number in range(1, nodes + 1)],
    }  # fmt: skip
    rows = [{"at_s": 0, "instances": 1, "resources": EACH, **each} for each in submissions]
    path, jobs = folder / "t.jsonl", folder / "jobs.csv"
    path.write_text("".join(json.dumps(row) + "\n" for row in [header, *rows]))

    assert main(["sim", "run", str(path), "--jobs-csv", str(jobs), *options]) == 0
    with jobs.open(newline="") as file:
        return {row["name"]: int(float(row["finish_time"])) for row in csv.DictReader(file)}


JOB: dict[str, object] = {"name": "job", "duration_s": 200}
LEASE: dict[str, object] = {"name": "lease", "duration_s": 40, "start_s": 100}


@pytest.mark.parametrize(
    ("options", "end_s"),
    [
        ([], 144 + 21 + 220 - 79),
        (["--suspend-rate", "100"], 144 + 11 + 220 - 89),
        (["--suspend-rate", "free"], 144 + 220 - 100),
        (["--slowdown", "0"], 140 + 21 + 200 - 79),
        (["--resume-rate", "100"], 144 + 11 + 220 - 79),
        (["--suspend-seconds", "9"], 144 + 21 + 220 - 70),
        (["--resume-seconds", "9"], 144 + 30 + 220 - 79),
        (["--disk-speed", "n1=50", "--least-run", "1"], 144 + 42 + 220 - 58),
        (["--disk-speed", "n[1-1]=200"], 144 + 11 + 220 - 89),
        (["--least-run", "79"], 144 + 21 + 220 - 79),
        (["--least-run", "80"], 144 + 220),
        (["--suspension", "none"], 144 + 220),
        (["--suspension", "serial"], 144 + 21 + 220 - 79),
    ],
)
def test_what_suspending_costs_delays_a_job_by_just_that(
    options: list[str], end_s: int, tmp_path: Path
) -> None:
    assert ends(tmp_path, 1, [JOB, LEASE], *options)["job"] == end_s


@pytest.mark.parametrize(
    ("options", "end_s"), [([], 144 + 21 + 220 - 79), (["--suspension", "serial"], 144 + 220)]
)
def test_serial_leaves_what_runs_on_several_nodes_alone(
    options: list[str], end_s: int, tmp_path: Path
) -> None:
    gang = JOB | {"instances": 2}

    assert ends(tmp_path, 2, [gang, LEASE | {"instances": 2}], *options)["job"] == end_s


def test_one_file_system_for_all_writes_and_reads_one_after_the_other(tmp_path: Path) -> None:
    work = [JOB, JOB | {"name": "other"}, LEASE | {"instances": 2}]

    apart, together = (
        ends(tmp_path, 2, work, *options) for options in ([], ["--shared-disk", "--least-run", "1"])
    )

    assert (apart["job"], apart["other"]) == (306, 306)
    # One has written from 58 to 79, the other from 79 to 100; they read from 144 to 165 and 186.
    assert sorted((together["job"], together["other"])) in ([306, 348], [327, 327])


@pytest.mark.parametrize(
    ("options", "resumed_s"),
    [
        ([], 1200),
        (["--migration", "no"], 1200),
        (["--migration", "yes"], 100 + 84),
        (["--migration", "yes", "--migration-rate", "100"], 100 + 11),
        (["--migration", "free"], 110),
    ],
)
@pytest.mark.parametrize("profile", ["honest", "thesis"])
def test_what_is_suspended_goes_on_on_another_node_under_any_profile(
    profile: str, options: list[str], resumed_s: int, tmp_path: Path
) -> None:
    """Another job has the second node until 110; the reservation lasts from 100 to 1200."""
    other = {"name": "other", "duration_s": 100, "is_preemptible": False}
    lease = LEASE | {"duration_s": 1000, "at_s": 10}
    rates = ["--suspend-rate", "50", "--suspend-seconds", "0"]

    found = ends(tmp_path, 2, [JOB, other, lease], "--profile", profile, *rates, *options)

    assert found["job"] == resumed_s + 21 + 220 - 79


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--suspension", "none", "--suspend-rate", "9"],
            "--suspend-rate has no effect with --suspension none",
        ),
        (["--profile", "thesis", "--resume-rate", "9"], "has no effect where writing is free"),
        (["--profile", "thesis", "--shared-disk"], "has no effect where writing is free"),
        (["--shared-disk", "--disk-speed", "n1=50"], "leave out --shared-disk"),
        (["--disk-speed", "n9=50"], "there is no node n9"),
        (["--disk-speed", "n1"], "is not a speed of disks"),
        (["--migration-rate", "9"], "--migration-rate needs --migration yes"),
        (["--suspend-rate", "free", "--suspend-seconds", "2"], "has no effect where writing is free"),
        (["--images", "none", "--suspension", "all"], "use --images predeployed"),
        (["--images", "none", "--slowdown", "5"], "--slowdown is of virtual machines"),
        (["--mode", "schedule", "--migration", "yes"], "--migration has no effect with --mode"),
    ],
)
def test_what_would_say_nothing_is_refused(
    options: list[str], words: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "t.jsonl"
    header = {
        "format": "outrider-trace",
        "version": 1,
        "name": "t",
        "nodes": [{"name": "n1", "capacity": EACH}],
    }
    rows = [header, {"at_s": 0, "instances": 1, "resources": EACH, **JOB}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert main(["sim", "run", str(path), *options]) == 1
    assert words in capsys.readouterr().err


def test_a_log_over_counted_processors_suspends_nothing(tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 4\n1 0 0 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n")

    assert main(["sim", "run", str(log), "--migration", "yes"]) == 1
    assert "--migration is about nodes" in capsys.readouterr().err
