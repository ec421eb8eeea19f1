"""`outrider sim switch`: forms of its answer, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.switch.datacentres import draw_instance

FEW = ("sim", "switch", "--nodes", "20", "--machines", "30", "--seeds", "2", "--workers", "1", "--no-solver")


def test_rows_are_the_means_of_the_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--mix", "thirds", "--mix", "six-two-two", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert [row["mix"] for row in answer["rows"]] == ["thirds", "six-two-two"]
    for row in answer["rows"]:
        own = [each for each in answer["samples"] if each["mix"] == row["mix"]]
        pairs = [(each["cost"], each["packed_cost"]) for each in own]
        reductions = [100 * (1 - cost / packed) if packed else 0.0 for cost, packed in pairs]
        assert row["samples"] == len(own) == 2
        assert row["reduction_percent"] == pytest.approx(sum(reductions) / 2)


def test_each_sample_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--mix", "thirds", "--csv"]) == 0

    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["seed"] for line in lines] == ["1", "2"]
    assert all(int(line["cost"]) <= int(line["packed_cost"]) for line in lines)


def test_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "f.svg"

    assert main([*FEW, "--mix", "thirds", "--picture", str(picture)]) == 0

    assert "reduction of the cost" in picture.read_text()
    assert "thirds" in capsys.readouterr().out


def test_unknown_mix_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--mix", "half"]) == 1

    assert "--mix half: choose from thirds, " in capsys.readouterr().err


def test_instance_is_solved_and_a_machine_of_it_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "i.json"
    path.write_text(json.dumps(draw_instance("li", 40, 6, 1)))
    given = ("sim", "switch", "--instance", str(path), "--no-solver", "--fewest-moves")

    assert main([*given, "--explain", "vm0", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["solved"]["machines"] == 240
    assert answer["solved"]["moves"] == answer["solved"]["least_moves"] == answer["solved"]["cost"]
    assert answer["explanation"][0].startswith("vm0 ")
    assert main([*given, "--explain", "vm240"]) == 1
    assert "--explain vm240: there is no such machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--instance", "none.json"), "--instance none.json: cannot be read"),
        (("--instance", "none.json", "--mix", "thirds"), "--mix is for random sites"),
        (("--fewest-moves",), "--fewest-moves is for --instance"),
        (("--explain", "j0m0"), "--explain is about one site"),
        (("--explain", "x", "--mix", "thirds", "--machines", "9"), "the machines are j0m0 to j0m8"),
    ],
)
def test_option_that_means_nothing_is_refused(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "switch", *options]) == 1

    assert words in capsys.readouterr().err


def test_machine_of_a_random_site_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--nodes", "20", "--machines", "30", "--mix", "thirds", "--no-solver", "--explain", "j0m0")

    assert main(["sim", "switch", *given]) == 0

    assert capsys.readouterr().out.startswith("j0m0 ")


def test_figure_9_is_in_the_two_pools_that_the_paper_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Section 4.1: "The first pool executes in parallel the actions suspend(VM3) and migrate(VM1) then the
    second pool executes the actions resume(VM5) and run(VM6)." """
    assert main(["sim", "switch", "--figure-9", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    pools = [{action.partition(" ")[0] for action in stage} for stage in answer["stages"]]
    assert pools == [{"suspend(VM3)", "migrate(VM1)"}, {"resume(VM5)", "run(VM6)"}]
    # Table 1 with the sizes of the example: VM3 and VM5 have 2048 MB, VM1 has 1024, and a run costs nothing.
    # Both actions of the second pool wait for the more expensive one of the first.
    assert answer["cost"] == 2048 + 1024 + (2048 + 2048) + (2048 + 0)
    assert answer["longest"] == 2048 + 2048


def test_figure_9_takes_no_other_site(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "switch", "--figure-9", "--mix", "thirds"]) == 1

    assert "--mix: --figure-9 is one example of its own" in capsys.readouterr().err
