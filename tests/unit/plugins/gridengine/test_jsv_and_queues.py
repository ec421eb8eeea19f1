"""Grid Engine's submit filter holds jobs without an image in queues of which Outrider starts all jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.service.daemon.world.turns import text_of
from tests.unit.plugins.gridengine.jsv import SERVER, module

jsv = module(SERVER)
HELD = ["PARAM h u", "PARAM ac OUTRIDER_HELD=1", "RESULT STATE CORRECT"]
ACCEPTED = ["RESULT STATE ACCEPT"]


def site(folder: Path, queues: list[str] | None) -> object:
    made = jsv.Site(str(folder / "jsv.json"))
    made.queues_file = jsv.Files(str(folder / "queues"))
    if queues is not None:
        (folder / "queues").write_text(text_of(queues))
    return made


@pytest.mark.parametrize(
    ("lines", "queues", "answer"),
    [
        ([], ["all.q", "*"], HELD),
        (["PARAM q_hard all.q"], ["all.q", "*"], HELD),
        (["PARAM q_hard all.q@n1,other.q"], ["all.q"], HELD),
        (["PARAM q_hard other.q"], ["all.q", "*"], ACCEPTED),
        ([], ["long.q"], ACCEPTED),
        (["PARAM q_hard all-q"], ["all.q", "*"], ACCEPTED),
        (["PARAM h u"], ["*"], ACCEPTED),
        ([], [], ACCEPTED),
        ([], None, ACCEPTED),
        (["PARAM ar 7"], ["*"], ["ENV ADD OUTRIDER_RESERVED 1", "RESULT STATE CORRECT"]),
        (["PARAM ac A=1"], ["*"], ["PARAM h u", "PARAM ac A=1,OUTRIDER_HELD=1", "RESULT STATE CORRECT"]),
    ],
)
def test_job_without_an_image_waits_for_its_turn_where_all_do(
    tmp_path: Path, lines: list[str], queues: list[str] | None, answer: list[str]
) -> None:
    said = ["PARAM USER ada", "PARAM JOB_ID 7", *lines]

    assert jsv.verdict(said, site(tmp_path, queues), 1_800_000_000) == answer


def test_queues_that_are_handed_back_are_seen_at_once(tmp_path: Path) -> None:
    made = site(tmp_path, ["*"])
    before = jsv.verdict(["PARAM USER ada"], made, 1_800_000_000)
    (tmp_path / "queues").write_text(text_of(()))

    assert before == HELD
    assert jsv.verdict(["PARAM USER ada"], made, 1_800_000_000) == ACCEPTED
