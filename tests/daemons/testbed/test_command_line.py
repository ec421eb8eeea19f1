"""The testbed's commands: make one and leave, work on it, see it, take it away."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import records
from testbed.__main__ import rate
from testbed.cluster import Cluster
from testbed.people import People
from testbed.slurmconf import slurm_conf
from tests.daemons.testbed.clusters import needs_gridengine, needs_slurm, processes
from tests.repository import ROOT

NAME = f"line-{os.getpid()}"


def told(*words: str, kind: str = "slurm", name: str = NAME) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "testbed", kind, words[0], "--name", name, *words[1:]]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def _standing() -> Iterator[None]:
    needs_slurm()
    made = told("up", "--nodes", "1", "--rate", "100mbit")
    assert made.returncode == 0, made.stderr
    yield
    told("down")


@pytest.mark.usefixtures("_standing")
def test_cluster_stays_when_up_has_ended_until_it_is_taken_down() -> None:
    status = json.loads(told("status", "--json").stdout)
    run = told("run", "head", "--user", "ada", "--", "sh", "-c", "srun hostname; echo wrong >&2; exit 7")
    again = told("up", "--nodes", "1")
    down = told("down")

    assert [(host["host"], host["address"], host["state"]) for host in status["hosts"]] == [
        ("head", "10.77.0.1", None),
        ("images", "10.77.0.2", None),
        ("n1", "10.77.1.1", "idle"),
    ]
    assert status["hosts"][0]["processes"] == ["munged", "slurmctld", "slurmscriptd"]
    assert status["rate_bits_per_s"] == 100_000_000
    assert (run.returncode, run.stdout, run.stderr) == (7, "n1\n", "wrong\n")
    assert again.returncode == 1
    assert f"a testbed called {NAME} stands" in again.stderr
    assert down.stdout == f"{NAME}: removed\n"
    assert processes(NAME) == []
    assert not (records.FOLDER / NAME).exists()


@pytest.mark.usefixtures("_standing")
def test_both_batch_systems_stand_side_by_side_and_each_is_removed_by_its_own_kind() -> None:
    needs_gridengine()
    name = f"{NAME}-ge"
    try:
        up = told("up", "--nodes", "1", kind="gridengine", name=name)
        status = json.loads(told("status", "--json", kind="gridengine", name=name).stdout)
        run = told("run", "head", "--user", "ada", "--", "qhost", kind="gridengine", name=name)
        wrong = told("run", "head", "--", "true", kind="gridengine")
        none = told("down", kind="gridengine")
    finally:
        down = told("down", kind="gridengine", name=name)
    slurm = told("run", "head", "--", "sinfo", "--noheader", "--format=%N %T")

    assert up.stdout.startswith(f"{name}: Grid Engine {status['gridengine']} on head and 1 nodes")
    assert [(host["state"], host["processes"]) for host in status["hosts"]] == [
        (None, ["sge_qmaster"]),
        (None, ["python3"]),
        ("idle", ["sge_execd"]),
    ]
    assert [line.split()[0] for line in run.stdout.splitlines()][-2:] == ["global", "n1"]
    assert "(slurm) cannot be worked on: it is ended, or not gridengine" in wrong.stderr
    assert none.stdout == ""
    assert down.stdout == f"{name}: removed\n"
    assert slurm.stdout == "n1 idle\n"
    assert processes(name) == []


def test_cluster_can_be_made_on_a_machine_whose_root_is_an_overlay_itself() -> None:
    needs_slurm()
    up = [sys.executable, "-m", "testbed", "slurm", "up", "--nodes", "1", "--pool", "300MiB"]
    run = [sys.executable, "-m", "testbed", "slurm", "run", "--user", "bob", "head", "--", "srun", "hostname"]
    environment = {"PYTHONPATH": str(ROOT)}
    with Cluster({"outer": "10.77.0.1"}) as outer:
        outer.run("outer", up, environment=environment)
        done = outer.run("outer", run, environment=environment)

    assert done.stdout == "n1\n"


def test_user_of_the_cluster_stands_in_the_place_of_the_machines_own(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/r:/bin/sh\nada:x:1000:1000::/a:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nada:x:1000:\nbobsleigh:x:5:")
    people = People(tmp_path, ("ada", "bob"))

    assert [line.split(":")[:3] for line in people.passwd().decode().splitlines()] == [
        ["root", "x", "0"],
        ["ada", "x", "2001"],
        ["bob", "x", "2002"],
    ]
    assert people.group().decode().splitlines() == [
        "root:x:0:",
        "bobsleigh:x:5:",
        "ada:x:2001:",
        "bob:x:2002:",
    ]
    assert people.of("ada").uid == 2001


def test_run_without_a_command_shows_how_it_is_written() -> None:
    done = told("run", "head")

    assert done.returncode == 2
    assert "testbed slurm run HOST -- COMMAND" in done.stderr


def test_command_on_no_cluster_says_how_to_make_one() -> None:
    done = told("run", "head", "--", "true")

    assert done.returncode == 1
    assert f"there is no testbed called {NAME}" in done.stderr


@pytest.mark.parametrize(
    ("text", "bits"), [("100mbit", 10**8), ("1gbit", 10**9), ("500kbit", 500_000), ("8bit", 8)]
)
def test_rate_is_read_as_tc_reads_it(text: str, bits: int) -> None:
    assert rate(text) == bits


@pytest.mark.parametrize("text", ["100", "fast", "0mbit", "-1mbit", "1.5gbit"])
def test_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a rate"):
        rate(text)


def test_line_of_the_caller_stands_in_the_place_of_the_same_key() -> None:
    lines = ["killwait=30", "PartitionName=main Nodes=n1", "PartitionName=more Nodes=n2", "Prolog=/p"]
    text = slurm_conf(3, lines).splitlines()

    assert [line for line in text if line.lower().startswith("killwait")] == ["killwait=30"]
    assert [line for line in text if line.startswith("PartitionName")] == lines[1:3]
    assert [line.split()[0] for line in text if line.startswith("NodeName=")] == ["NodeName=n[1-3]"]
    assert text.count("Prolog=/p") == 1
