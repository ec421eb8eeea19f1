"""Plan: every request gets the earliest place that is in time, on the slot table, also in later intervals.

A new request is planned around those that have a place. If it has none, all that have not begun are planned
anew in one order, and the new plan is taken if what it serves is worth more.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.model import Node
from outrider.core.options.machines import Machines
from outrider.core.options.priority import PlanOrder
from outrider.core.options.request import Request
from outrider.core.options.schemes import (
    Listed,
    Provisioner,
    Replanning,
    Rules,
    Scheme,
    Service,
    WaitingRequest,
)

MOST_REPLANNED = 16
"""So many places at most are given anew at once, and so many who have none are tried again: of a longer queue
those that have to begin next."""


class Planner(Provisioner):
    """The scheme that plans ahead."""

    def __init__(self, nodes: Sequence[Node], rules: Rules) -> None:
        super().__init__(nodes, rules)
        self._new: list[WaitingRequest] = []

    def enter(self, request: Request) -> WaitingRequest:
        waiting = super().enter(request)
        self._new.append(waiting)
        return waiting

    def _serve(self, now_s: int) -> None:
        self._plan(now_s)
        if self.rules.scheme is Scheme.PLAN_SCALED:
            self.scale_up([each.plan for each in self.waiting if each.plan and each.plan.start_s == now_s])

    def _plan(self, now_s: int) -> None:
        """Those whose start is over have begun; then the new ones, and if need be all, are planned."""
        begun = [each for each in self.waiting if each.plan is not None and each.plan.start_s < now_s]
        if begun:
            self.outcome.served += [each.plan for each in begun if each.plan is not None]
            self.waiting = [each for each in self.waiting if each.plan is None or each.plan.start_s >= now_s]
        new, self._new = self._new, []
        if self.rules.replanning is Replanning.ALWAYS:
            self._replan(now_s, self.waiting, is_forced=True)
            return
        refused: list[WaitingRequest] = []
        for each in self._in_order(new, now_s):
            each.plan = self._find(self.machines, each, now_s)
            if each.plan is not None:
                _take(self.machines, each.plan)
            elif each.needs and each.last_start_s >= now_s:
                refused.append(each)
        if refused:
            self._make_room(refused, now_s)

    def finish(self) -> None:
        self.outcome.served += [each.plan for each in self.waiting if each.plan is not None]
        self.waiting = [each for each in self.waiting if each.plan is None]

    def _in_order(self, waiting: Sequence[WaitingRequest], now_s: int) -> list[WaitingRequest]:
        order = self.rules.order
        if order is PlanOrder.DEADLINE:
            return sorted(waiting, key=lambda each: (each.request.finish_by_s, each.request.arrival_s))
        if order is PlanOrder.SLACK:
            return sorted(waiting, key=lambda each: (each.last_start_s, each.request.arrival_s))

        def by_factor(each: WaitingRequest) -> tuple[float, int]:
            return -each.weight / max(1, each.request.finish_by_s - now_s), each.request.arrival_s

        return sorted(waiting, key=by_factor)

    def _find(self, machines: Machines, each: WaitingRequest, now_s: int) -> Service | None:
        """The first option, in the order given, that has a place in time, at its earliest start."""
        for which, (need, count, duration_s) in enumerate(each.needs):
            place = machines.earliest(need, count, duration_s, now_s, each.request.finish_by_s - duration_s)
            if place is not None:
                return Service(each, which, place[0], place[0] + duration_s, place[1])
        return None

    def _make_room(self, refused: Sequence[WaitingRequest], now_s: int) -> None:
        """Plan those anew that begin next, with those that were refused, now or earlier."""
        waiting = sorted(self.waiting, key=lambda each: (each.last_start_s, each.request.arrival_s))
        planned = [each for each in waiting if each.plan is not None][:MOST_REPLANNED]
        new = set(map(id, refused))
        others = [each for each in waiting if each.plan is None and id(each) not in new][:MOST_REPLANNED]
        self._replan(now_s, [*planned, *others, *refused], is_forced=False)

    def _replan(self, now_s: int, moved: Sequence[WaitingRequest], *, is_forced: bool) -> bool:
        """Plan these anew; without `is_forced` the plan is changed only for more value. Whether it was."""
        trial = self.machines.copy()
        before = 0.0
        for each in moved:
            if each.plan is not None:
                before += each.request.value
                _give_back(trial, each.plan)
        plans: list[Service | None] = []
        possible = sum(each.request.value for each in moved)
        ordered = self._in_order(moved, now_s)
        for each in ordered:
            found = self._find(trial, each, now_s)
            plans.append(found)
            if found is not None:
                _take(trial, found)
            else:
                possible -= each.request.value
                if possible <= before and not is_forced:
                    return False
        self.machines = trial
        for each, found in zip(ordered, plans, strict=True):
            each.plan = found
        return True


def _take(machines: Machines, service: Service) -> None:
    need = service.waiting.needs[service.which][0]
    machines.take(need, service.places, service.start_s, service.end_s)


def _give_back(machines: Machines, service: Service) -> None:
    need = service.waiting.needs[service.which][0]
    machines.give_back(need, service.places, service.start_s, service.end_s)


def provisioner(nodes: Sequence[Node], rules: Rules) -> Provisioner:
    """What carries out a scheme."""
    return (
        Planner(nodes, rules) if rules.scheme in (Scheme.PLAN, Scheme.PLAN_SCALED) else Listed(nodes, rules)
    )
