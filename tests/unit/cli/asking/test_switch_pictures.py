"""The picture of a switch: what each machine does on which node, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from outrider.cli.asking.display.switch_picture import bars, picture
from outrider.cli.main import main
from outrider.service.answers.switch import SwitchStep, SwitchView
from tests.unit.cli.canned import Service

AWAY = SwitchStep(
    stage=1, kind="suspend", job="7", source="n1", target="", pause_s=9, state="done", asked_s=100, done_s=110
)
BACK = SwitchStep(
    stage=2, kind="resume", job="7", source="n1", target="n2", pause_s=9, state="done",
    asked_s=130, done_s=140, back_s=155,
)  # fmt: skip
OTHER = SwitchStep(
    stage=1, kind="migrate", job="<8>", source="n2", target="n1", pause_s=9, state="done",
    asked_s=100, done_s=120, back_s=130,
)  # fmt: skip
OVER = SwitchView(
    state="done", number=3, by="root", begun_s=100, ended_s=160, cost_mib=1, bound_mib=1,
    steps=(AWAY, OTHER, BACK), asleep=(), kept=(), explanation=(), words="", is_consolidating=False,
    actions_left=60,
)  # fmt: skip


def drawn(found: SwitchView) -> set[tuple[str, str, int, int, str]]:
    return {
        (each.job, each.node, each.begin_s - 100, each.end_s - 100, each.kind)
        for each in bars(found)
        if each.end_s > each.begin_s
    }


def test_machine_is_drawn_where_it_is_at_any_time() -> None:
    assert drawn(OVER) == {
        ("7", "n1", 0, 10, "suspend"),
        ("7", "n1", 10, 30, "saved"),
        ("7", "n1", 30, 40, "move"),
        ("7", "n2", 30, 40, "move"),
        ("7", "n2", 40, 55, "return"),
        ("7", "n2", 55, 60, "runs"),
        ("<8>", "n2", 0, 20, "move"),
        ("<8>", "n1", 0, 20, "move"),
        ("<8>", "n1", 20, 30, "return"),
        ("<8>", "n1", 30, 60, "runs"),
    }


def test_machine_that_stays_while_another_of_its_job_moves_is_saved_there() -> None:
    wide = replace(OTHER, job="9", source="n1,n2", target="n1,n3")

    assert drawn(replace(OVER, steps=(wide,))) == {
        ("9", "n1", 0, 20, "suspend"),
        ("9", "n2", 0, 20, "move"),
        ("9", "n3", 0, 20, "move"),
        ("9", "n1", 20, 30, "return"),
        ("9", "n3", 20, 30, "return"),
        ("9", "n1", 30, 60, "runs"),
        ("9", "n3", 30, 60, "runs"),
    }


def test_switch_that_goes_on_is_drawn_as_far_as_it_is_known() -> None:
    waits = replace(BACK, state="waits", asked_s=None, done_s=None, back_s=None)
    half = replace(OVER, state="runs", ended_s=None, steps=(AWAY, waits))

    assert drawn(half) == {("7", "n1", 0, 10, "suspend")}


def test_picture_is_a_file_that_any_viewer_reads(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.on("GET", "/v1/switch", OVER)
    path = tmp_path / "switch.svg"

    assert main(["switch", "show", "--svg", str(path)]) == 0

    texts = [each.text for each in ElementTree.fromstring(path.read_text()).iter() if each.text]
    assert "job <8> is saved if it runs, and carried on n1: 20 s" in texts
    assert "switch 3 by root: done, 60 s" in texts
    assert "switch 3 by root: done" in capsys.readouterr().out
    assert picture(OVER) == path.read_text()


def test_nothing_is_drawn_before_the_first_switch(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.on("GET", "/v1/switch", replace(OVER, state="none", begun_s=None))

    assert main(["switch", "show", "--svg", str(tmp_path / "x.svg")]) == 1

    assert "there was no switch yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
