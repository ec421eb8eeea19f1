"""The solver's placements: never worse than the heuristic's, with a bound that brute force confirms."""

from __future__ import annotations

import contextlib
from itertools import product
from random import Random

import pytest

from outrider.core.switch.cost import sum_cost
from outrider.core.switch.model import NOWHERE, MachineStanding, Situation, SwitchNode, Target, VirtualMachine
from outrider.core.switch.planner import plan_switch
from outrider.core.switch.stages import NoPlan, plan_stages
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.situations import MIXES, draw
from outrider.solver.placement import improver
from tests.amount import examples


def small(random: Random) -> Situation:
    """At most three nodes and six machines, so that all placements can be tried."""
    nodes = tuple(
        SwitchNode(name=f"n{n}", capacity=(random.randint(3, 6), 2)) for n in range(random.randint(2, 3))
    )
    left = [node.capacity[0] for node in nodes]
    machines: list[VirtualMachine] = []
    standings: list[MachineStanding] = []
    hosts: list[int] = []
    for number in range(random.randint(2, 6)):
        memory, host = random.randint(1, 3), random.randrange(len(nodes))
        standing = random.choice(list(MachineStanding)[:3])
        if standing is MachineStanding.RUNNING:
            if left[host] < memory:
                standing = MachineStanding.SLEEPING
            else:
                left[host] -= memory
        machines.append(VirtualMachine(name=f"m{number}", job=number, demand=(memory, random.randint(0, 1))))
        standings.append(standing)
        hosts.append(NOWHERE if standing is MachineStanding.WAITING else host)
    return Situation(nodes=nodes, machines=tuple(machines), standings=tuple(standings), hosts=tuple(hosts))


def cheapest(situation: Situation, running: set[int]) -> int:
    """Over every placement of these machines, the cost of the plan that leads there."""
    found = []
    places = [
        range(len(situation.nodes)) if n in running else (NOWHERE,) for n in range(len(situation.hosts))
    ]
    for hosts in product(*places):
        used = [[0, 0] for _ in situation.nodes]
        for number, host in enumerate(hosts):
            if host != NOWHERE:
                for resource, amount in enumerate(situation.machines[number].demand):
                    used[host][resource] += amount
        pairs = zip(used, situation.nodes, strict=True)
        if all(u <= c for row, node in pairs for u, c in zip(row, node.capacity, strict=True)):
            with contextlib.suppress(NoPlan):
                found.append(sum_cost(plan_stages(situation, Target(hosts=hosts)), situation.machines))
    return min(found)


@pytest.mark.parametrize("seed", range(examples(120)))
def test_no_placement_of_a_small_site_costs_less_than_the_bound(seed: int) -> None:
    situation = small(Random(seed))
    switch = plan_switch(situation, range(len(situation.jobs)), improve=improver())
    running = {number for number, host in enumerate(switch.target.hosts) if host != NOWHERE}
    least = cheapest(situation, running)

    assert switch.bound <= least <= switch.cost
    if switch.is_optimal:
        assert switch.cost == least
    assert not faults(situation, staged(switch.plan), switch.target.hosts)


@pytest.mark.parametrize("mix", ["thirds", "thirds-busy", "six-two-two"])
def test_solver_is_never_worse_than_the_heuristic_and_proves_what_it_finds(mix: str) -> None:
    situation = draw(100, 160, MIXES[mix], 3)
    queue = range(len(situation.jobs))
    alone, solved = plan_switch(situation, queue), plan_switch(situation, queue, improve=improver())

    assert solved.cost <= alone.cost
    assert solved.bound >= alone.bound
    assert solved.is_optimal
    assert not faults(situation, staged(solved.plan), solved.target.hosts)


def test_same_situation_gets_the_same_plan() -> None:
    situation = draw(100, 200, MIXES["thirds-busy"], 5)
    queue = range(len(situation.jobs))

    first, second = (plan_switch(situation, queue, improve=improver(effort=1)) for _ in range(2))

    assert first == second


@pytest.mark.parametrize("mix", ["six-two-two", "thirds"])
def test_patterns_alone_prove_the_optimum_of_a_large_site(mix: str) -> None:
    situation = draw(2000, 2400, MIXES[mix], 1)
    switch = plan_switch(situation, range(len(situation.jobs)), improve=improver())

    assert switch.is_optimal
    assert not faults(situation, staged(switch.plan), switch.target.hosts)
