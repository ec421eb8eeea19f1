"""One instance solved, and how near that is to what every plan has to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from outrider.core.switch.explanation import explain
from outrider.core.switch.model import NOWHERE, ActionKind, MachineStanding, SwitchPlan
from outrider.core.switch.planner import Improve, Switch, plan_selected
from outrider.core.switch.timing import ActionPace, continuous, duration_s, in_stages
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.instances import SwitchInstance


@dataclass(frozen=True, kw_only=True, slots=True)
class SolvedInstance:
    """Costs and memory are in the instance's own unit. `least_moves`: what no placement can do with fewer."""

    nodes: int
    machines: int
    actions: dict[str, int]
    moves: int
    least_moves: int
    cost: int
    bound: int
    stages: int
    in_stages_s: int
    continuous_s: int
    by: str
    breaches: tuple[str, ...]
    """Machines that are to be apart throughout, and are not on the way."""


def solve(instance: SwitchInstance, improve: Improve | None = None) -> tuple[SolvedInstance, Switch]:
    """Raises NoSwitch; a plan that the check finds fault with is a fault of the planner's."""
    situation = instance.situation
    switch = plan_selected(
        situation, instance.selection, instance.rules, stopped=instance.stopped, improve=improve
    )
    pace = ActionPace()
    timed = continuous(situation, switch.plan, pace)
    for plan in (staged(switch.plan), timed):
        if found := faults(situation, plan, switch.target.hosts):
            raise AssertionError(f"a plan that cannot be carried out: {found[0]}")
    kinds = Counter(action.kind.value for action in switch.plan.actions)
    moved = {each.machine for each in switch.plan.actions if each.kind is ActionKind.MIGRATE}
    return SolvedInstance(
        nodes=len(situation.nodes),
        machines=len(situation.machines),
        actions={kind.value: kinds[kind.value] for kind in ActionKind},
        moves=len(moved),
        least_moves=least_moves(instance),
        cost=switch.cost,
        bound=switch.bound,
        stages=len(switch.plan.stages),
        in_stages_s=duration_s(in_stages(switch.plan, situation.machines, pace)),
        continuous_s=duration_s(timed),
        by=switch.by,
        breaches=tuple(_breaches(instance, switch.plan)),
    ), switch


def explained(instance: SwitchInstance, switch: Switch, name: str) -> tuple[str, ...] | None:
    """Why the machine of that name is moved or not; None if there is none."""
    names = [each.name for each in instance.situation.machines]
    if name not in names:
        return None
    queue = switch.selection.jobs
    return explain(instance.situation, switch, instance.rules, names.index(name), queue)


def least_moves(instance: SwitchInstance) -> int:
    """Node by node, how many machines leave at least: those that have most of what there is too little of,
    for each resource by itself, and all that may not stay."""
    situation, rules = instance.situation, instance.rules
    wanted = set(instance.selection.jobs) - instance.stopped
    staying: dict[int, list[int]] = {}
    total = 0
    for number in wanted:
        if situation.standings[number] is not MachineStanding.RUNNING:
            continue
        node = situation.hosts[number]
        if rules.allows(number, node):
            staying.setdefault(node, []).append(number)
        else:
            total += 1
    return total + sum(
        max(
            _fewest((situation.machines[number].demand[resource] for number in numbers), capacity)
            for resource, capacity in enumerate(situation.nodes[node].capacity)
        )
        for node, numbers in staying.items()
    )


def _fewest(amounts: Iterable[int], capacity: int) -> int:
    ordered = sorted(amounts, reverse=True)
    left, count = sum(ordered), 0
    while left > capacity:
        left -= ordered[count]
        count += 1
    return count


def _breaches(instance: SwitchInstance, plan: SwitchPlan) -> Iterable[str]:
    """While an action goes on its machine is on both of its nodes."""
    machines, hosts = instance.situation.machines, list(instance.situation.hosts)
    running = [each is MachineStanding.RUNNING for each in instance.situation.standings]
    groups: dict[int, list[frozenset[int]]] = {}
    for group in instance.apart_throughout:
        for number in group:
            groups.setdefault(number, []).append(group)
    for count, stage in enumerate(plan.stages):
        at = {number: {hosts[number]} if running[number] else set() for number in groups}
        for action in stage:
            if action.machine in at and action.takes != NOWHERE:
                at[action.machine].add(action.takes)
        for action in stage:
            for group in groups.get(action.machine, ()):
                near = [each for each in sorted(group - {action.machine}) if action.takes in at[each]]
                if action.takes != NOWHERE and near:
                    names = f"{machines[action.machine].name} and {machines[near[0]].name}"
                    yield f"stage {count + 1}: {names} are on {instance.situation.nodes[action.takes].name}"
        for action in stage:
            running[action.machine] = action.takes != NOWHERE
            if action.takes != NOWHERE:
                hosts[action.machine] = action.takes
