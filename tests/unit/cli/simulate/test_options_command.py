"""`outrider sim options`: the same numbers as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from outrider.cli.errors import InputError
from outrider.cli.main import main
from outrider.sim.workload.options.example import SCHEMES

SMALL = ["--seeds", "2", "--intervals", "10", "--workers", "1"]


def test_example_has_every_scheme_and_what_the_paper_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "options", "example"]) == 0

    text = capsys.readouterr().out
    assert all(scheme.value in text for scheme in SCHEMES)
    assert "lost: th5, th10, th11   (paper: th5, th10, th11)" in text


def test_json_and_csv_have_the_same_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "options", "synthetic", *SMALL, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    assert main(["sim", "options", "synthetic", *SMALL, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    named = [(cell["load"], cell["scheme"]) for cell in cells]
    assert [(row["load"], row["scheme"]) for row in rows] == named
    assert [float(row["benefit_percent"]) for row in rows] == [cell["benefit"]["mean"] for cell in cells]


def test_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "figure.svg"

    assert main(["sim", "options", "benchmark", *SMALL, "-o", str(picture)]) == 0

    assert picture.read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_log_is_played_with_moldable_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    log = "tests/data/datastar-excerpt.swf"

    assert main(["sim", "options", "moldable", log, "--seeds", "2", "--jobs", "20", "--workers", "1"]) == 0

    assert "datastar-excerpt.swf, amdahl" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["moldable"], ["synthetic", "log.swf"], ["moldable", "no-such.swf"]])
def test_what_does_not_go_together_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "options", *words]) == InputError.exit_code

    assert capsys.readouterr().err.count("\n") == 1
