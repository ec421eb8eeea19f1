"""Switches of random sites: every instant of every plan is feasible, and no bound is above a cost."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.switch.cost import sum_cost
from outrider.core.switch.model import (
    NOWHERE,
    MachineStanding,
    Situation,
    SwitchNode,
    SwitchPlan,
    Target,
    VirtualMachine,
)
from outrider.core.switch.planner import NoSwitch, plan_switch
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.selection import Decreasing, select
from outrider.core.switch.stages import plan_stages
from outrider.core.switch.timing import ActionPace, continuous
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.situations import MIXES, draw
from tests.amount import examples

BATCHES = examples(60)
A_BATCH = 250


def tiny(random: Random) -> Situation:
    """Nodes of unlike sizes, some overloaded; jobs of one to three machines."""
    count = random.randint(1, 6)
    nodes = [
        SwitchNode(name=f"n{n}", capacity=(random.randint(3, 9), random.randint(1, 4))) for n in range(count)
    ]
    left = [node.capacity[0] for node in nodes]
    machines: list[VirtualMachine] = []
    standings: list[MachineStanding] = []
    hosts: list[int] = []
    for job in range(random.randint(1, 9)):
        standing = random.choice((MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING))
        for _ in range(random.randint(1, 3)):
            memory, host = random.randint(1, 4), random.randrange(count)
            if standing is MachineStanding.RUNNING:
                # What runs has its memory; what it computes may be more than there is.
                if left[host] < memory:
                    standing = (
                        MachineStanding.SLEEPING if not machines or machines[-1].job != job else standing
                    )
                    if standing is MachineStanding.RUNNING:
                        break
                else:
                    left[host] -= memory
            machines.append(
                VirtualMachine(name=f"j{job}m{len(machines)}", job=job, demand=(memory, random.randint(0, 1)))
            )
            standings.append(standing)
            hosts.append(NOWHERE if standing is MachineStanding.WAITING else host)
    return Situation(
        nodes=tuple(nodes), machines=tuple(machines), standings=tuple(standings), hosts=tuple(hosts)
    )


def some_rules(random: Random, situation: Situation) -> PlacementRules:
    machines, nodes = range(len(situation.machines)), range(len(situation.nodes))

    def few() -> frozenset[int]:
        return frozenset(random.sample(machines, min(len(machines), random.randint(1, 3))))

    return PlacementRules(
        spread=(few(),) if random.random() < 0.3 else (),
        gather=(few(),) if random.random() < 0.2 else (),
        fence={random.choice(machines): frozenset(random.sample(nodes, random.randint(1, len(nodes))))}
        if random.random() < 0.3
        else {},
        ban={random.choice(machines): frozenset({random.choice(nodes)})} if random.random() < 0.3 else {},
        keep=few() if random.random() < 0.2 else frozenset(),
        closed=frozenset({random.choice(nodes)}) if random.random() < 0.2 else frozenset(),
    )


def queue_of(random: Random, situation: Situation) -> list[int]:
    queue = list(range(len(situation.jobs)))
    random.shuffle(queue)
    return queue


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_instant_of_a_switch_is_feasible(batch: int) -> None:
    random = Random(batch)
    found = 0
    for _ in range(A_BATCH):
        situation = tiny(random)
        queue, order = queue_of(random, situation), random.choice(list(Decreasing))
        rules = some_rules(random, situation) if random.random() < 0.5 else PlacementRules()
        try:
            switch = plan_switch(situation, queue, rules, order=order)
        except NoSwitch:
            continue
        hosts = switch.target.hosts
        pace = ActionPace(moves_at_once=random.randint(0, 2), saves_at_once=random.randint(0, 2))
        found += 1

        assert not faults(situation, staged(switch.plan), hosts)
        assert not faults(situation, continuous(situation, switch.plan, pace), hosts)
        assert not rules.broken(situation, hosts)
        assert switch.bound <= switch.cost
        running = {number for number, host in enumerate(hosts) if host != NOWHERE}
        assert running == {number for job in switch.selection.jobs for number in situation.jobs[job]}
    assert found > A_BATCH // 2, "hardly any site had a switch"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_any_placement_that_fits_is_reached(batch: int) -> None:
    """Machines of a random site are put anywhere: circles of every kind are among the ways."""
    random = Random(1000 + batch)
    circles = 0
    for _ in range(A_BATCH):
        situation = tiny(random)
        chosen = select(situation, queue_of(random, situation))
        hosts = shuffled(random, situation, chosen.hosts)
        plan = plan_stages(situation, Target(hosts=hosts))
        circles += len(plan.actions) > len({action.machine for action in plan.actions})

        assert not faults(situation, staged(plan), hosts)
        assert not faults(situation, continuous(situation, plan, ActionPace()), hosts)
        assert most_steps(plan) <= 3, "at most one step aside for each machine, and one suspension"
    assert circles, "no circle had to be broken"


def shuffled(random: Random, situation: Situation, hosts: tuple[int, ...]) -> tuple[int, ...]:
    """The same machines at random where there is room."""
    found = list(hosts)
    left = [list(node.capacity) for node in situation.nodes]
    for number, host in enumerate(found):
        for resource, amount in enumerate(situation.machines[number].demand):
            left[host][resource] -= amount if host != NOWHERE else 0
    for number in random.sample(range(len(found)), len(found)):
        if found[number] == NOWHERE:
            continue
        demand, to = situation.machines[number].demand, random.randrange(len(left))
        if all(amount <= room for amount, room in zip(demand, left[to], strict=True)):
            for resource, amount in enumerate(demand):
                left[found[number]][resource] += amount
                left[to][resource] -= amount
            found[number] = to
    return tuple(found)


def most_steps(plan: SwitchPlan) -> int:
    counted: dict[int, int] = {}
    for action in plan.actions:
        counted[action.machine] = counted.get(action.machine, 0) + 1
    return max(counted.values(), default=0)


@pytest.mark.parametrize("mix", MIXES)
def test_heuristic_is_far_below_first_fit_decreasing(mix: str) -> None:
    """The paper's section 5.1 in small: what stays where it is makes most of the difference."""
    situation = draw(200, 108, MIXES[mix], 1)
    switch = plan_switch(situation, range(len(situation.jobs)))
    packed = plan_stages(situation, Target(hosts=switch.selection.hosts))

    assert not faults(situation, staged(switch.plan), switch.target.hosts)
    assert sum_cost(switch.plan, situation.machines) < sum_cost(packed, situation.machines)
