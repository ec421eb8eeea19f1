"""Below what the cost of a switch cannot be, whatever the placement: what every plan has to do."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.switch.model import MachineStanding, Situation
from outrider.core.switch.rules import PlacementRules


def lower_bound(
    situation: Situation, jobs: Sequence[int], rules: PlacementRules, stopped: frozenset[int]
) -> int:
    """Suspensions, states read where they lie, and what an overloaded node has to let go of."""
    wanted = {number for job in jobs for number in situation.jobs[job]} - stopped
    total, leaving = 0, _moving_whole(situation, wanted, rules)
    running: dict[int, list[int]] = {}
    for number, standing in enumerate(situation.standings):
        memory = situation.machines[number].memory
        if standing is MachineStanding.RUNNING and number not in stopped:
            if number not in wanted or number in leaving or not rules.allows(number, situation.hosts[number]):
                total += memory
            else:
                running.setdefault(situation.hosts[number], []).append(number)
        elif standing is MachineStanding.SLEEPING and number in wanted:
            total += memory
    return total + sum(_evicted(situation, node, numbers) for node, numbers in running.items())


def _moving_whole(situation: Situation, wanted: set[int], rules: PlacementRules) -> set[int]:
    """Machines that are saved in any case, since another of their job has to leave its node."""
    found: set[int] = set()
    for job in situation.whole:
        running = [n for n in situation.jobs[job] if situation.standings[n] is MachineStanding.RUNNING]
        if any(n in wanted and not rules.allows(n, situation.hosts[n]) for n in running):
            found.update(running)
    return found


def _evicted(situation: Situation, node: int, numbers: Sequence[int]) -> int:
    """The least memory of machines that leave, for each resource by itself, so a bound for all together."""
    machines, capacity = situation.machines, situation.nodes[node].capacity
    best = 0
    for resource, size in enumerate(capacity):
        over = sum(machines[number].demand[resource] for number in numbers) - size
        if over > 0:
            best = max(best, _least_memory(situation, numbers, resource, over))
    return best


def _least_memory(situation: Situation, numbers: Sequence[int], resource: int, over: int) -> int:
    """The least memory of machines that have so much of a resource: a knapsack."""
    least = {0: 0}
    for number in numbers:
        machine = situation.machines[number]
        amount = machine.demand[resource]
        if not amount:
            continue
        for freed, memory in sorted(least.items(), reverse=True):
            key, cost = min(over, freed + amount), memory + machine.memory
            if cost < least.get(key, cost + 1):
                least[key] = cost
    return least.get(over, 0)
