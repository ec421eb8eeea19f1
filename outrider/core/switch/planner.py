"""A whole switch: which jobs run, where their machines go, in what order, and what that costs at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.core.switch.bound import lower_bound
from outrider.core.switch.cost import sum_cost
from outrider.core.switch.model import NOWHERE, Situation, SwitchPlan, Target
from outrider.core.switch.placement import place, stopped_in
from outrider.core.switch.rules import NO_RULES, PlacementRules
from outrider.core.switch.selection import Decreasing, Selection, first_fit_decreasing, select
from outrider.core.switch.stages import NoPlan, plan_stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Improved:
    """What a solver found: a placement or none, and below what no plan's cost can be."""

    target: Target | None
    bound: int


Improve = Callable[[Situation, Sequence[int], PlacementRules, Target], Improved]
"""A solver: from the situation, the jobs that run, and a placement to start from, to a better one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """A plan and what is known of it. `by`: which way found it."""

    selection: Selection
    target: Target
    plan: SwitchPlan
    cost: int
    bound: int
    by: str

    @property
    def is_optimal(self) -> bool:
        return self.cost <= self.bound


class NoSwitch(Exception):
    """The rules contradict one another, or leave no room: each reason is a sentence."""


def plan_switch(
    situation: Situation,
    queue: Sequence[int],
    rules: PlacementRules = NO_RULES,
    *,
    order: Decreasing = Decreasing.MEMORY,
    stopped: frozenset[int] = frozenset(),
    improve: Improve | None = None,
) -> Switch:
    """The cheapest plan that was found for as many jobs of the queue as can run. Raises NoSwitch."""
    if found := rules.contradictions(situation):
        raise NoSwitch("; ".join(found))
    selection = select(situation, queue, rules, order)
    return plan_selected(situation, selection, rules, stopped=stopped, improve=improve)


def plan_selected(
    situation: Situation,
    selection: Selection,
    rules: PlacementRules = NO_RULES,
    *,
    stopped: frozenset[int] = frozenset(),
    improve: Improve | None = None,
) -> Switch:
    """The same where it is known which jobs run, with a placement of theirs or with none. Raises NoSwitch."""
    if found := rules.contradictions(situation):
        raise NoSwitch("; ".join(found))
    over = stopped | stopped_in(situation)
    ways = []
    placed = place(situation, selection.jobs, rules, stopped=stopped)
    if placed is not None and not rules.broken(situation, placed.hosts):
        ways.append(("heuristic", placed))
    packed = [("first fit decreasing", selection.hosts)]
    if situation.whole:
        packed.append(
            ("first fit at home", first_fit_decreasing(situation, selection.jobs, rules, at_home=True) or ())
        )
    for way, found_hosts in packed:
        if found_hosts:
            hosts = tuple(NOWHERE if number in over else node for number, node in enumerate(found_hosts))
            ways.append((way, Target(hosts=hosts, stopped=over)))
    bound = lower_bound(situation, selection.jobs, rules, over)
    best = _cheapest(situation, rules, ways)
    if improve is not None and best[0] > bound:
        improved = improve(situation, selection.jobs, rules, best[3])
        bound = max(bound, improved.bound)
        if improved.target is not None and not rules.broken(situation, improved.target.hosts):
            best = min(
                best, _cheapest(situation, rules, [("solver", improved.target)]), key=lambda way: way[0]
            )
    cost, name, plan, target = best
    return Switch(selection=selection, target=target, plan=plan, cost=cost, bound=min(bound, cost), by=name)


def _cheapest(
    situation: Situation, rules: PlacementRules, ways: Sequence[tuple[str, Target]]
) -> tuple[int, str, SwitchPlan, Target]:
    found, obstacle = [], "no placement was found for all machines that are to run"
    for name, target in ways:
        try:
            plan = plan_stages(situation, target, rules)
        except NoPlan as error:
            # What a heuristic or a solver proposes is taken only if it can be carried out.
            obstacle = f"no order of actions leads to a placement that was found: {error}"
            continue
        found.append((sum_cost(plan, situation.machines), name, plan, target))
    if not found:
        raise NoSwitch(obstacle)
    return min(found, key=lambda way: way[0])
