"""Plans that are being made elsewhere, and what each of them is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.service.answers.reply import Replied, Trouble
from outrider.service.desk.switch.fleet import Fleet
from outrider.service.ports import PlanMoves
from outrider.service.requests import Asked

MOST_OPEN = 8
LOST = Trouble(code="unavailable", message="the site was loaded anew meanwhile: ask again")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenPlan:
    """What is planned with, and for whom: for a request, for a switch that goes on and failed, or, if
    neither, because the service itself looks whether a switch would help."""

    fleet: Fleet
    borne: frozenset[str] = frozenset()
    """Jobs that stay where they are, since there would be no processors for them anywhere."""
    drained: tuple[str, ...] = ()
    fences: Mapping[str, str]
    by: str
    asked: Asked | None = None
    is_anew: bool = False


class OpenPlans:
    """All of them, by the number of the call."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[PlanMoves, OpenPlan]] = {}
        self._calls: list[PlanMoves] = []
        self._last = 0

    @property
    def is_full(self) -> bool:
        return len(self._open) >= MOST_OPEN

    @property
    def has_own(self) -> bool:
        """Whether one is made that nobody has asked for."""
        return any(plan.asked is None for _, plan in self._open.values())

    def want(self, plan: OpenPlan) -> None:
        self._last += 1
        fleet = plan.fleet
        call = PlanMoves(number=self._last, situation=fleet.situation, queue=fleet.queue, rules=fleet.rules)
        self._open[self._last] = call, plan
        self._calls.append(call)

    def calls(self) -> list[PlanMoves]:
        """Those that are to be made now."""
        found, self._calls = self._calls, []
        return found

    def take(self, call: PlanMoves) -> OpenPlan | None:
        """What it was for; None if it was asked for before the site was loaded anew."""
        wanted, plan = self._open.get(call.number, (None, None))
        if wanted is not call:
            return None
        del self._open[call.number]
        return plan

    def give_up(self) -> list[Replied]:
        """Nobody waits for them any more: the state that they are about is replaced by another."""
        asked = [plan.asked for _, plan in self._open.values() if plan.asked is not None]
        self._open.clear()
        self._calls.clear()
        return [Replied(ticket=each.ticket, answer=LOST) for each in asked]
