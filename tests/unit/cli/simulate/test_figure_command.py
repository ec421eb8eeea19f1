"""`outrider sim figure`: pictures of every kind, and their data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from outrider.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("number", ["8.2", "8.3", "8.4", "8.5", "8.6", "8.7"])
def test_every_figure_is_drawn_with_its_origin_and_units(number: str, tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    seeds = ["--seeds", "1"] if number == "8.4" else []

    assert main(["sim", "figure", number, "-o", str(path), *seeds]) == 0

    ElementTree.parse(path)
    # Matplotlib draws letters as shapes, and notes each text in a comment.
    drawn = path.read_text()
    assert f"Figure {number} of the thesis" in drawn
    assert "(%)" in drawn or "(GB)" in drawn or "(s)" in drawn


def test_the_same_figure_has_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        main(["sim", "figure", "8.5", "-o", str(path)])

    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_data_of_a_figure_as_json_and_csv(capsys: Capture) -> None:
    main(["sim", "figure", "8.5", "--json"])
    data = json.loads(capsys.readouterr().out)
    main(["sim", "figure", "8.5", "--csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    series = {each["name"]: each["points"] for panel in data["panels"] for each in panel["series"]}
    assert series["submissions"][-1] == [4694, 62]
    assert series["images to deploy"][-1] == [4694, 144]
    assert len(rows) == sum(len(points) for points in series.values())
    assert sum(float(row["y"]) for row in rows if row["series"] == "submissions per minute") == 62


def test_a_drawing_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from outrider.sim.plots import draw

    path = tmp_path / "figure.svg"
    path.write_text("before")

    def interrupted(figure: object, path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(draw, "draw", interrupted)

    assert main(["sim", "figure", "8.5", "-o", str(path)]) == 130
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", ["3.1", "5.1", "5.2", "6.1", "6.2", "6.3", "8.1"])
def test_every_drawing_of_the_algorithm_is_drawn(number: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "drawing.svg"

    assert main(["sim", "figure", number, "-o", str(path)]) == 0

    ElementTree.parse(path)
    assert f"Figure {number} of the thesis" in path.read_text()
    assert capsys.readouterr().out.startswith(f"Figure {number}: ")


def test_boxes_of_a_drawing_as_json_and_csv(capsys: Capture) -> None:
    main(["sim", "figure", "6.2", "--json"])
    data = json.loads(capsys.readouterr().out)
    main(["sim", "figure", "6.2", "--csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert [panel["title"] for panel in data["panels"]] == ["EDF", "EDF/JIT"]
    (late,) = [
        row for row in rows if row["panel"] == "EDF/JIT" and row["kind"] == "transfer" and row["name"] == "A"
    ]
    assert (late["lane"], late["start_s"], late["end_s"]) == ("link", "60", "120")


@pytest.mark.parametrize(
    ("number", "why"), [("2.1", "what a workspace is made of"), ("9.9", "not a figure of the thesis")]
)
def test_what_is_no_drawing_of_the_algorithm_is_refused_with_the_reason(
    number: str, why: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["sim", "figure", number, "-o", str(tmp_path / "x.svg")]) == 1

    assert why in capsys.readouterr().err
