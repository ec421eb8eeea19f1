"""A transfer whose time was over before it could begin: who has it is told, and nobody else counts on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import BOB, RATE, Sandbox, reserve, show

LATE = "should have begun"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """Three transfers of 20 s for a reservation on three nodes, begun as late as may be."""
    settings = Settings(link_rate_bytes_per_s=RATE, shipping="per-node", reserve_s=0)
    made = Sandbox(tmp_path, settings=settings)
    yield made
    made.close()


def stand_still(sandbox: Sandbox, seconds: int) -> None:
    """The service does not run for so long, so that nothing begins meanwhile."""
    sandbox.clock.sleep(seconds)


def alarms_of(sandbox: Sandbox, name: str) -> list[str]:
    return [line for line in sandbox.log.lines if f"is endangered reservation={name} " in line]


def test_who_has_a_late_transfer_is_told(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=3, start="now+200seconds")
    stand_still(sandbox, 190)
    sandbox.turn()

    (line,) = alarms_of(sandbox, "render-1")
    assert LATE in line


def test_a_new_reservation_does_not_count_on_a_late_transfer(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=3, start="now+200seconds")
    stand_still(sandbox, 190)
    answer = reserve(sandbox, BOB, name="next", nodes=3, start="now+5hours")
    sandbox.turn()

    assert answer.result == "accepted"
    assert len(alarms_of(sandbox, "render-1")) == 1
    assert alarms_of(sandbox, "next-2") == []
    sandbox.sleep(5 * 3600 + 60)
    assert show(sandbox, "next-2").reservation.state == "active"


def test_what_moves_to_other_nodes_does_not_count_on_a_late_transfer(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=3, start="now+200seconds", duration="30min")
    reserve(sandbox, name="far", nodes=1, start="now+5hours")
    assert show(sandbox, "far-2").reservation.nodes == "n1", "where the image is brought anyhow"
    stand_still(sandbox, 190)
    sandbox.rms.outside.fail("n1")
    sandbox.turn()
    moved = show(sandbox, "far-2").reservation

    assert moved.nodes != "n1"
    assert alarms_of(sandbox, "far-2") == []
    sandbox.sleep(5 * 3600 + 60)
    assert show(sandbox, "far-2").reservation.state == "active"
