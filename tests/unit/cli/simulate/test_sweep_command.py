"""`outrider sim sweep`: the same bytes whoever did what, nothing twice, and going on after a kill."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.cli.simulate.sweep import read_file
from outrider.sim.leases.injection import ALL_INJECTIONS
from tests.repository import ROOT

LOG = ROOT / "tests" / "data" / "datastar-excerpt.swf"
SWEEP = f"""
logs: [{LOG}]
from_day: 101
days: 2
processors_per_node: 8
work: [10, 20]
hours: [1]
sizes: [small]
policies: [none, all]
users: [steadfast, choosing]
"""


def write(tmp_path: Path, text: str = SWEEP) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return str(path)


def run(file: str, folder: Path, *more: str) -> int:
    return main(["sim", "sweep", file, "-o", str(folder), "--workers", "1", *more])


def runs(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}


def test_every_combination_is_a_row_and_parts_give_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path)
    assert run(file, tmp_path / "whole") == 0
    whole = (tmp_path / "whole" / "results.csv").read_bytes()

    for number in (3, 1, 2):
        assert run(file, tmp_path / "parts", "--part", f"{number}/3") == 0
        assert not (tmp_path / "parts" / "results.csv").exists()
    done = runs(tmp_path / "parts")
    capsys.readouterr()
    assert run(file, tmp_path / "parts") == 0

    rows = list(csv.DictReader(io.StringIO(whole.decode())))
    assert len({(row["work"], row["policy"], row["users"]) for row in rows}) == 2 * 2 * 2
    assert (tmp_path / "parts" / "results.csv").read_bytes() == whole
    # Eight, and one without reservations that all of them are compared with.
    assert len(done) == 8 + 1
    assert runs(tmp_path / "parts") == done
    assert "0 runs done now" in capsys.readouterr().err


def test_a_sweep_that_was_killed_goes_on(tmp_path: Path) -> None:
    file, folder = write(tmp_path), tmp_path / "killed"
    argv = [sys.executable, "-m", "outrider.cli.main", "sim", "sweep", file, "-o", str(folder)]
    with subprocess.Popen([*argv, "--workers", "1"], cwd=ROOT, start_new_session=True) as process:
        while process.poll() is None and len(runs(folder)) < 2:
            pass
        os.killpg(process.pid, signal.SIGKILL)
    before = runs(folder)
    (folder / "torn.1.part").write_text("{")

    assert run(file, folder) == 0
    assert run(file, tmp_path / "whole") == 0

    assert before.items() <= runs(folder).items()
    assert (folder / "results.csv").read_bytes() == (tmp_path / "whole" / "results.csv").read_bytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("days: 3\n", "logs: name at least one"),
        (SWEEP + "colour: red\n", "colour: unknown"),
        (SWEEP + "terms: {speed: 3}\n", "terms: keys are"),
        (SWEEP.replace("[none, all]", "[some]"), "policy 'some': choose from"),
        (SWEEP.replace("[10, 20]", "[ten]"), "work: 'ten'; write a whole number"),
        (SWEEP.replace("[steadfast, choosing]", "[kind]"), "users: 'kind'; choose from"),
        ("- 1\n", "not a table of keys"),
        ("logs: [\n", "sweep.yaml"),
    ],
)
def test_what_cannot_be_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    assert run(write(tmp_path, text), tmp_path / "none") == 1

    assert words in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_result_that_is_no_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = write(tmp_path), tmp_path / "results"
    run(file, folder)
    victim = sorted(folder.glob("*.json"))[0]
    victim.write_text("{}")

    assert run(file, folder) == 1

    assert f"{victim}: not the result of a run" in capsys.readouterr().err


def test_the_table_is_printed_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = write(tmp_path), tmp_path / "results"
    run(file, folder)

    assert run(file, folder, "--csv") == 0
    assert capsys.readouterr().out == (folder / "results.csv").read_text()
    assert run(file, folder, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["case"]["policy"] for row in rows[:4]] == ["none", "none", "all", "all"]
    assert run(file, folder, "--part", "1/2", "--csv") == 1
    assert "--part does runs and makes no table" in capsys.readouterr().err


def test_the_file_to_begin_with_is_the_papers_seventy_two_by_five_policies_by_four_users() -> None:
    cases, seeds = read_file(str(ROOT / "docs" / "results" / "leases-sweep.yaml"))

    assert len(set(cases)) == 72 * 5 * 4
    assert {case.injection for case in cases} == set(ALL_INJECTIONS)
    assert seeds == [1]
