"""A node is taken out of the batch system: what was promised on it loses its place, and may get it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import RmsReservation, Sight, Unavailable, Unknown
from tests.unit.service.desk.sandbox import Sandbox, reserve, show


def lose_n4(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """render-1 wants all nodes, and n4 is taken out of the batch system before that has it."""
    look, make = sandbox.rms.look, sandbox.rms.reserve

    def look_without() -> Sight:
        sight = look()
        return replace(sight, nodes=tuple(node for node in sight.nodes if node.name != "n4"))

    def refuse(wanted: RmsReservation) -> None:
        if wanted.name == "render-1":
            raise Unknown("there is no node n4")
        make(wanted)

    monkeypatch.setattr(sandbox.rms, "look", look_without)
    monkeypatch.setattr(sandbox.rms, "reserve", refuse)
    reserve(sandbox, nodes=4, start="now+1hours")
    sandbox.sleep(60)
    assert show(sandbox, "render-1").reservation.state == "endangered"


def test_what_has_lost_its_nodes_is_not_saved_by_the_batch_system_alone(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is back in the batch system before a look has shown it."""
    look, make = sandbox.rms.look, sandbox.rms.reserve
    lose_n4(sandbox, monkeypatch)
    monkeypatch.setattr(sandbox.rms, "reserve", make)
    sandbox.sleep(600)

    assert [each.name for each in look().reservations] == ["render-1"]
    assert show(sandbox, "render-1").reservation.state == "endangered"
    assert reserve(sandbox, name="other", nodes=1, start="now+1hours").result == "refused"
    monkeypatch.setattr(sandbox.rms, "look", look)
    sandbox.sleep(120)
    assert show(sandbox, "render-1").reservation.state in ("accepted", "preparing", "ready")


def test_what_was_promised_in_the_place_of_a_lost_reservation_stays_promised(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_n4:
        lose_n4(sandbox, without_n4)
        reserve(sandbox, name="other", nodes=1, start="now+1hours")
        sandbox.sleep(60)
    sandbox.sleep(60)

    assert len(sandbox.rms.look().nodes) == 4
    assert show(sandbox, "other-2").reservation.state == "accepted"
    assert show(sandbox, "render-1").reservation.state == "endangered"
    sandbox.sleep(3600)
    assert show(sandbox, "other-2").reservation.state == "active"


def test_nodes_that_the_batch_system_gave_to_a_lost_reservation_are_not_promised_before_the_next_look(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_n4:
        lose_n4(sandbox, without_n4)
    start_s = sandbox.now_s + 3600
    look = sandbox.rms.look

    def look_in_vain() -> Sight:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(sandbox.rms, "look", look_in_vain)
    sandbox.sleep(200)
    (made,) = look().reservations
    answer = reserve(sandbox, name="other", nodes=1, start=f"now+{start_s - sandbox.now_s}seconds")

    assert made.name == "render-1"
    assert answer.result == "refused"
    assert answer.cause == "slots"
