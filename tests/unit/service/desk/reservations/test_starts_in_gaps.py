"""A reservation whose time came while no service was there: it is told, and its receipt says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.desk.reservations.lifecycle import NOBODY_THERE
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import RATE, Sandbox, reserve, show


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=0))
    yield made
    made.close()


def alarms_of(sandbox: Sandbox, name: str) -> list[str]:
    return [line for line in sandbox.log.lines if f"is endangered reservation={name} " in line]


@pytest.mark.parametrize("away_s", [260, 2_000])
def test_a_start_within_the_gap_is_told_and_in_the_receipt(sandbox: Sandbox, away_s: int) -> None:
    reserve(sandbox, nodes=1, start="now+200seconds", duration="10min")
    sandbox.clock.sleep(away_s)
    sandbox.restart()
    sandbox.sleep(2_000)

    (line, *_) = alarms_of(sandbox, "render-1")
    assert NOBODY_THERE in line
    found = show(sandbox, "render-1")
    assert found.receipt is not None
    assert found.receipt.is_met is False
    assert NOBODY_THERE in found.receipt.words


def test_what_was_ready_before_the_gap_is_met_without_an_alarm(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1, start="now+200seconds", duration="10min")
    sandbox.sleep(195)
    assert show(sandbox, "render-1").reservation.state == "ready"
    sandbox.clock.sleep(60)
    sandbox.restart()
    sandbox.sleep(2_000)

    found = show(sandbox, "render-1")
    assert found.receipt is not None
    assert found.receipt.is_met
    assert alarms_of(sandbox, "render-1") == []
