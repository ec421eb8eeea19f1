"""`outrider sim table`: the same numbers as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.cli.simulate.tables.text import report_text
from outrider.sim.experiments.tables import table_of_the_thesis

RUN_TABLE = [sys.executable, "-m", "outrider.cli.main", "sim", "table"]


def test_json_has_what_the_text_has(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sim", "table", "4.1", "--seeds", "2", "--workers", "1", "--json"])
    data = json.loads(capsys.readouterr().out)
    main(["sim", "table", "4.1", "--seeds", "2", "--workers", "1"])
    text = capsys.readouterr().out

    assert (data["table"], data["seeds"]) == ("4.1", 2)
    cells = data["parts"][0]["rows"][0]["cells"]
    assert [cell["thesis"] for cell in cells[:3]] == [45_780, 48_240, 52_020]
    for cell in cells[:3]:
        assert f"{cell['ours']:.0f}" in text
        assert f"{cell['error_percent']:+.1f}%" in text


def test_csv_has_one_cell_a_line_under_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "table", "8.2", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert len(rows) == 6 * 8
    found = next(row for row in rows if (row["row"], row["column"]) == ("img.5", "III images"))
    assert (found["unit"], float(found["ours"]), found["thesis"]) == ("count", 34, "")


def test_json_and_csv_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "table", "8.2", "--csv", "--json"]) == 1
    assert "not allowed with" in capsys.readouterr().err


def test_text_is_no_wider_than_110_columns(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sim", "table", "8.2"])
    main(["sim", "table", "4.2", "--seeds", "1", "--workers", "1"])
    report = table_of_the_thesis(
        "8.5", seeds=2, rows=("long,000-025,25-75", "long,075-100,75-25"), workers=1, joins_any_image=True
    )
    lines = capsys.readouterr().out.splitlines() + report_text(report).splitlines()

    assert max(map(len, lines)) <= 110


def test_hash_seed_changes_nothing(tmp_path: Path) -> None:
    def printed(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            [*RUN_TABLE, "4.2", "--seeds", "2", "--json"],
            env=environment, capture_output=True, timeout=120, check=True,
        ).stdout  # fmt: skip

    assert printed("1") == printed("2")
