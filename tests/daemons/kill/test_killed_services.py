"""outriderd and its nodes' daemons, killed with SIGKILL at random moments under load, again and again."""

from __future__ import annotations

import os

import pytest

from tests.amount import few
from tests.daemons.kill.rounds import campaign

ROUNDS = int(os.environ.get("OUTRIDER_KILL_ROUNDS", few(40)))


@pytest.mark.repeats("tests/daemons/service/test_outriderd_program.py::test_promise_is_kept_over_a_kill")
def test_nothing_that_was_promised_is_lost_by_killing() -> None:
    report = campaign(ROUNDS, "kill")

    assert report.wrong == [], report.text
    assert report.kills.total() >= ROUNDS
    assert report.told["accepted"] >= ROUNDS // 4, report.text
    assert report.ends["met"] > 0, report.text
