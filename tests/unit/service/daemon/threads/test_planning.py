"""A switch planned by a process of its own: the same plan, and words where there is none."""

from __future__ import annotations

import pytest

from outrider.core.switch.planner import NoSwitch, Switch
from outrider.core.switch.rules import NO_RULES, PlacementRules
from outrider.service.daemon.threads import planning
from outrider.service.daemon.threads.planning import planned, planned_apart
from outrider.service.ports import PlanMoves
from outrider.sim.switch.situations import MIXES, draw


def call_with(rules: PlacementRules) -> PlanMoves:
    situation = draw(20, 54, MIXES["six-two-two"], 1)
    return PlanMoves(number=1, situation=situation, queue=tuple(range(len(situation.jobs))), rules=rules)


def test_another_process_makes_the_same_plan() -> None:
    call = call_with(NO_RULES)

    found = planned_apart(call)

    assert isinstance(found, Switch)
    assert found == planned(call)
    assert found.plan.actions


def test_another_process_says_why_there_is_no_plan() -> None:
    found = planned_apart(call_with(PlacementRules(fence={0: frozenset()})))

    assert isinstance(found, NoSwitch)
    assert "may run on no node" in str(found)


def test_process_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PLAN_S", 0.0001)

    found = planned_apart(call_with(NO_RULES))

    assert isinstance(found, NoSwitch)
    assert "no answer" in str(found)
