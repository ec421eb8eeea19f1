"""`outrider sim run --html`: one file that has everything in it and asks nobody."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.cli.simulate.runs.webpage import written_page
from outrider.sim.results.joblog import JobRow
from outrider.sim.results.occupancy import Bar, Schedule
from tests.repository import ROOT

LOG = ROOT / "tests/data/datastar-excerpt.swf"


def data_of(page: str) -> dict[str, dict[str, dict[str, list[object]]]]:
    found = page.partition('id="data">')[2].partition("</script>")[0]
    answer: dict[str, dict[str, dict[str, list[object]]]] = json.loads(found)
    return answer


def test_page_of_a_log_has_every_job_and_what_was_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.html"

    assert main(["sim", "run", str(LOG), "--html", str(file), "--jobs-csv", str(tmp_path / "jobs.csv")]) == 0

    page = file.read_text()
    printed = capsys.readouterr().out
    rows = (tmp_path / "jobs.csv").read_text().splitlines()[1:]
    assert len(set(data_of(page)["overview"]["reservations"]["names"])) == len(rows) > 10
    assert printed.strip() in page.replace("&#x27;", "'")


def schedule(name: str) -> Schedule:
    job = JobRow(
        number=1,
        workload="w",
        submit_s=0,
        requested_s=60,
        start_s=20,
        end_s=80,
        allocated=((0, 1),),
        name=name,
    )
    bar = Bar(job=1, start_s=20, end_s=80, processors=((0, 1),))
    return Schedule(jobs=(job,), bars=(bar,), processors=4, names=(name,), transfers=((5, 15),))


def test_only_its_own_script_runs_and_nothing_is_fetched() -> None:
    page = written_page(schedule("a"), "log", ["words"])

    script = page.partition('<script type="module">')[2].partition("</script>")[0]
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{seal}'" in page
    assert "default-src 'none'" in page
    assert re.findall(r"(?:src|href)=|@import|^import |^export |url\(", page, re.MULTILINE) == []


def test_name_of_a_workload_or_a_job_is_no_markup() -> None:
    evil = "</script><script>alert(1)</script>"

    page = written_page(schedule(evil), evil, [evil])

    assert page.count("<script") == 2
    assert data_of(page)["overview"]["reservations"]["names"] == [evil]
