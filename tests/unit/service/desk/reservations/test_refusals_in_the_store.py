"""Refused requests: each is answered, and only so many of one user are written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.state.refusal_log import HOUR_S, Noted, RefusalLog
from outrider.service.requests import Caller
from outrider.service.settings import Settings
from outrider.store.errors import StoreFailed
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, wanted


def test_refusals_of_one_user_are_written_down_up_to_a_number_in_an_hour() -> None:
    refusals = RefusalLog(3)
    found = [refusals.add(1_001, 100 + number)[0] for number in range(5)]

    assert found == [Noted.ALONE, Noted.ALONE, Noted.LAST, Noted.COUNTED, Noted.COUNTED]
    assert refusals.is_full(1_001)
    assert refusals.add(1_002, 105) == (Noted.ALONE, 0), "others have their own"
    assert not refusals.is_full(1_002)


def test_next_hour_says_how_many_were_left_out() -> None:
    refusals = RefusalLog(3)
    for number in range(10):
        refusals.add(1_001, 100 + number)

    assert refusals.add(1_001, 100 + HOUR_S) == (Noted.ALONE, 7)
    assert not refusals.is_full(1_001)
    assert refusals.add(1_001, 101 + HOUR_S) == (Noted.ALONE, 0)


def test_store_does_not_grow_with_what_one_user_is_refused(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=60, most_refusals=5))
    impossible = wanted(sandbox, nodes=100)

    def refused(caller: Caller, number: int) -> str:
        answer = sandbox.ask(replace(impossible, key=f"k{number}", request_hash="h"), caller)
        assert isinstance(answer, Decision)
        return answer.result

    results = {refused(ALICE, number) for number in range(50)} | {refused(BOB, 0)}
    rows = sandbox.store.decisions(most=1_000)
    lines = [line for line in sandbox.log.lines if line.startswith("reservation decided")]
    kept = [number for number in range(50) if sandbox.store.answered(ALICE.uid, f"k{number}", "h")]
    sandbox.close()

    assert results == {"refused"}
    assert len(rows) == 5 + 1
    assert sum("further refusals of this hour are only counted" in row.reason for row in rows) == 1
    assert kept == [0, 1, 2, 3, 4]
    assert lines


def test_refusal_that_could_not_be_written_down_is_no_answer(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again with the same key it may be another one."""

    def broken() -> None:
        raise StoreFailed("its disk fails")

    monkeypatch.setattr(sandbox.store, "promise", broken)
    answer = sandbox.ask(replace(wanted(sandbox, nodes=100), key="k", request_hash="h"))

    assert isinstance(answer, Trouble), answer
    assert (answer.code, answer.message) == (
        "unavailable",
        "whether this was done is not known: its disk fails",
    )
