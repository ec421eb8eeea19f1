"""`outrider sim leases`: forms of its answer, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from outrider.cli.main import main, parser
from outrider.cli.simulate.leases import cases
from outrider.sim.leases.systems import SystemTerms
from tests.repository import ROOT

LOG = str(ROOT / "tests" / "data" / "datastar-excerpt.swf")
FEW = (
    "sim", "leases", LOG, "--from-day", "101", "--days", "2", "--processors-per-node", "8", "--seeds", "2",
    "--workers", "1",
)  # fmt: skip


def test_rows_are_means_of_the_seeds_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    ways = ("--system", "whole", "--policy", "none", "--policy", "all", "--users", "steadfast")
    assert main([*FEW, *ways, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert main([*FEW, *ways, "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert main([*FEW, *ways]) == 0
    told = capsys.readouterr().out.splitlines()

    assert [row["case"]["policy"] for row in rows] == ["none", "all"]
    assert [row["metrics"]["acceptance"]["mean"] for row in rows] == [0.0, 100.0]
    # Without reservations it is what it is compared with.
    assert rows[0]["metrics"]["slowdown_ratio"]["mean"] == 1.0
    assert {(line["policy"], line["metric"]) for line in lines} == {
        (row["case"]["policy"], name) for row in rows for name in row["metrics"]
    }
    assert [line.split()[1] for line in told] == ["policy", "none", "all"]


def test_every_cost_of_a_system_reaches_the_experiment() -> None:
    given = (
        "--suspend-rate", "11", "--resume-rate", "12", "--suspend-seconds", "13", "--resume-seconds", "14",
        "--shared-disk", "--slowdown", "15", "--checkpoints", "16", "--images", "17",
    )  # fmt: skip

    (case, *_) = cases(parser().parse_args([*FEW, "--system", "migrate", *given]))

    assert (case.system, case.images) == ("migrate", 17)
    assert case.terms == SystemTerms(
        write_mb_per_s=11, read_mb_per_s=12, write_s=13, read_s=14, is_shared=True, slowdown_percent=15,
        checkpoint_s=16 * 60,
    )  # fmt: skip


def test_worth_is_compared_with_a_policy_draw_by_draw(capsys: pytest.CaptureFixture[str]) -> None:
    ways = ("--policy", "none", "--policy", "all", "--users", "steadfast", "--against", "all")
    assert main([*FEW, *ways, "--json"]) == 0
    none, everything = (row["metrics"] for row in json.loads(capsys.readouterr().out)["rows"])

    assert everything["worth_gain"] == {"mean": 0.0, "error": 0.0, "half_width": 0.0}
    assert none["worth_gain"]["mean"] == pytest.approx(none["worth"]["mean"] - everything["worth"]["mean"])
    assert none["worth_gain"]["mean"] != 0


def test_picture_has_a_bar_for_each_model_of_users(tmp_path: Path) -> None:
    picture = tmp_path / "leases.svg"

    assert main([*FEW, "--policy", "all", "--users", "choosing", "--picture", str(picture)]) == 0

    assert "choosing at 50 %, 20%x2hxmedium" in picture.read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--policy", "some"), "policy 'some': choose from all, none, hour-share=N, protect=N"),
        (("--system", "plain", "--policy", "protect=5"), "policy protect=5 looks at a queue"),
        (("--against", "protect=x"), "policy 'protect=x': choose from"),
        (("--from-day", "500"), "no jobs in 2 days from day 500 on"),
    ],
)
def test_what_there_is_not_is_refused(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], words: str
) -> None:
    assert main([*FEW, *given]) == 1

    assert words in capsys.readouterr().err
