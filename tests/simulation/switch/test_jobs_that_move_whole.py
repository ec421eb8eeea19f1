"""Switches of random sites with jobs of several nodes, which are saved whole when one machine moves."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.switch.cost import longest_cost, sum_cost
from outrider.core.switch.model import (
    NOWHERE,
    Action,
    ActionKind,
    MachineStanding,
    Situation,
    SwitchNode,
    SwitchPlan,
    Target,
    VirtualMachine,
)
from outrider.core.switch.planner import NoSwitch, plan_switch
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.stages import plan_stages
from outrider.core.switch.timing import ActionPace, continuous
from outrider.sim.switch.check import faults, staged
from tests.amount import examples

BATCHES, A_BATCH = examples(60), 150
STANDINGS = (MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING)
WEIGHTS = (4, 1, 1)


def site_with_whole_jobs(random: Random) -> Situation:
    """Nodes of unlike sizes, whose memory suffices for what runs; jobs of one to three like machines,
    each on a node of its own, the first on the first."""
    count = random.randint(2, 6)
    nodes = [
        SwitchNode(name=f"n{n}", capacity=(random.randint(4, 10), random.randint(2, 5))) for n in range(count)
    ]
    left = [node.capacity[0] for node in nodes]
    machines: list[VirtualMachine] = []
    standings: list[MachineStanding] = []
    hosts: list[int] = []
    whole = set()
    for job in range(random.randint(1, 8)):
        wide = random.randint(1, min(3, count))
        demand = random.randint(1, 4), random.randint(0, 1)
        places = sorted(random.sample(range(count), wide))
        (standing,) = random.choices(STANDINGS, WEIGHTS)
        if standing is MachineStanding.RUNNING and any(left[each] < demand[0] for each in places):
            standing = MachineStanding.SLEEPING
        for number, place in enumerate(places):
            machines.append(VirtualMachine(name=f"{job}.{number + 1}", job=job, demand=demand))
            standings.append(standing)
            hosts.append(NOWHERE if standing is MachineStanding.WAITING else place)
            left[place] -= demand[0] if standing is MachineStanding.RUNNING else 0
        if wide > 1:
            whole.add(job)
    return Situation(
        nodes=tuple(nodes),
        machines=tuple(machines),
        standings=tuple(standings),
        hosts=tuple(hosts),
        whole=frozenset(whole),
    )


def rules_of(random: Random, situation: Situation) -> PlacementRules:
    nodes = range(len(situation.nodes))
    job = random.randrange(len(situation.jobs))
    keep = frozenset(situation.jobs[job]) if random.random() < 0.2 else frozenset()
    closed = frozenset({random.choice(nodes)}) if random.random() < 0.6 else frozenset()
    fenced = random.choice(range(len(situation.machines)))
    fence = {fenced: frozenset(random.sample(nodes, random.randint(1, len(nodes))))}
    return PlacementRules(keep=keep, closed=closed, fence=fence if random.random() < 0.2 else {})


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_instant_is_feasible_and_no_job_is_divided(batch: int) -> None:
    random = Random(batch)
    found = moved = paused = 0
    for _ in range(A_BATCH):
        situation = site_with_whole_jobs(random)
        rules = rules_of(random, situation) if random.random() < 0.8 else PlacementRules()
        queue = sorted(
            range(len(situation.jobs)),
            key=lambda job: situation.standings[situation.jobs[job][0]] is MachineStanding.WAITING,
        )
        try:
            switch = plan_switch(situation, queue, rules)
        except NoSwitch:
            continue
        hosts = switch.target.hosts
        found += 1
        moved += any(situation.is_whole(each.machine) for each in switch.plan.actions)
        paused += any(each.kind is ActionKind.PAUSE for each in switch.plan.actions)

        assert not faults(situation, staged(switch.plan), hosts)
        assert not faults(situation, continuous(situation, switch.plan, ActionPace()), hosts)
        assert not rules.broken(situation, hosts)
        assert switch.bound <= switch.cost
    assert found > A_BATCH // 2, "hardly any site had a switch"
    assert moved > A_BATCH // 10, "hardly any job of several machines moved"
    assert paused, "no machine stayed where it was while another of its job moved"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_any_placement_of_whole_jobs_is_reached(batch: int) -> None:
    """What runs is put anywhere that its jobs allow: jobs wait for one another in circles, too."""
    random = Random(2000 + batch)
    for _ in range(A_BATCH):
        situation = site_with_whole_jobs(random)
        hosts = moved_about(random, situation)
        plan = plan_stages(situation, Target(hosts=hosts))

        assert not faults(situation, staged(plan), hosts)
        assert not faults(situation, continuous(situation, plan, ActionPace()), hosts)


def moved_about(random: Random, situation: Situation) -> tuple[int, ...]:
    """What runs, at random where there is room in the end; all else does not run, nor what is too much."""
    hosts = list(situation.hosts)
    left = [list(node.capacity) for node in situation.nodes]

    def take(number: int, node: int, sign: int) -> None:
        for resource, amount in enumerate(situation.machines[number].demand):
            left[node][resource] -= sign * amount

    for number, standing in enumerate(situation.standings):
        if standing is MachineStanding.RUNNING:
            take(number, hosts[number], 1)
        else:
            hosts[number] = NOWHERE
    for members in situation.jobs:
        if any(hosts[each] != NOWHERE and min(left[hosts[each]]) < 0 for each in members):
            # A node has too little for what is there: this job is suspended.
            for each in members:
                take(each, hosts[each], -1)
                hosts[each] = NOWHERE
    for number in random.choices(range(len(hosts)), k=4 * len(hosts)):
        demand, to = situation.machines[number].demand, random.randrange(len(left))
        if hosts[number] == NOWHERE or any(a > b for a, b in zip(demand, left[to], strict=True)):
            continue
        if not situation.is_whole(number) or situation.suits(number, to, hosts):
            take(number, hosts[number], -1)
            take(number, to, 1)
            hosts[number] = to
    return tuple(hosts)


def pair_of(count: int, *hosts: int) -> Situation:
    nodes = tuple(SwitchNode(name=f"n{number}", capacity=(10,)) for number in range(count))
    machines = tuple(VirtualMachine(name=f"0.{n + 1}", job=0, demand=(6,)) for n in range(len(hosts)))
    running = (MachineStanding.RUNNING,) * len(hosts)
    return Situation(nodes=nodes, machines=machines, standings=running, hosts=hosts, whole=frozenset({0}))


def test_one_goes_elsewhere_and_the_others_are_saved_where_they_are() -> None:
    switch = plan_switch(pair_of(4, 0, 1, 2), [0], PlacementRules(closed=frozenset({1})))

    assert switch.plan.stages == (
        (
            Action(ActionKind.PAUSE, 0, 0, 0),
            Action(ActionKind.MIGRATE, 1, 1, 3),
            Action(ActionKind.PAUSE, 2, 2, 2),
        ),
    )
    # All three are saved and read: their sum, and the longest of them.
    machines = pair_of(4, 0, 1, 2).machines
    assert (switch.cost, sum_cost(switch.plan, machines), longest_cost(switch.plan, machines)) == (18, 18, 6)
    assert switch.bound == 18


def test_first_one_takes_the_place_of_another_that_leaves_it() -> None:
    """No node is before the second one's, which is full with it."""
    situation = pair_of(4, 0, 1, 2)
    switch = plan_switch(situation, [0], PlacementRules(closed=frozenset({0})))

    assert switch.target.hosts == (1, 3, 2)
    assert len(switch.plan.stages) == 1
    assert not faults(situation, staged(switch.plan), switch.target.hosts)


def test_two_jobs_that_change_places_are_suspended_and_moved_whole() -> None:
    one, places = pair_of(4, 0, 1), (2, 3)
    other = [VirtualMachine(name=f"1.{n + 1}", job=1, demand=(6,)) for n in range(2)]
    situation = Situation(
        nodes=one.nodes,
        machines=(*one.machines, *other),
        standings=one.standings * 2,
        hosts=(*one.hosts, *places),
        whole=frozenset({0, 1}),
    )
    hosts = (*places, *one.hosts)
    plan = plan_stages(situation, Target(hosts=hosts))

    kinds = [[(each.kind.value, each.machine) for each in stage] for stage in plan.stages]
    assert kinds == [
        [("suspend", 0), ("suspend", 1)],
        [("migrate", 2), ("migrate", 3)],
        [("resume", 0), ("resume", 1)],
    ]
    assert not faults(situation, staged(plan), hosts)


def test_job_without_other_nodes_is_suspended_whole() -> None:
    switch = plan_switch(pair_of(3, 0, 1), [0], PlacementRules(closed=frozenset({1, 2})))

    assert switch.selection.jobs == ()
    (stage,) = switch.plan.stages
    assert [(each.kind.value, each.machine) for each in stage] == [("suspend", 0), ("suspend", 1)]


@pytest.mark.parametrize(
    ("actions", "fault"),
    [
        ([Action(ActionKind.MIGRATE, 0, 0, 2)], "of job 0 machines [0] act at 0"),
        (
            [Action(ActionKind.MIGRATE, 0, 0, 1), Action(ActionKind.PAUSE, 1, 1, 1)],
            "0.1 comes to 1, where 0.2 is",
        ),
        (
            [Action(ActionKind.MIGRATE, 0, 0, 2), Action(ActionKind.MIGRATE, 1, 1, 0)],
            "0.2 comes to 0, where 0.1 is",
        ),
        ([Action(ActionKind.MIGRATE, 0, 0, 2), Action(ActionKind.PAUSE, 1, 1, 1)], "job 0 ends on [2, 1]"),
    ],
)
def test_checker_finds_a_job_that_is_divided(actions: list[Action], fault: str) -> None:
    situation = pair_of(4, 0, 1)
    hosts = list(situation.hosts)
    for each in actions:
        hosts[each.machine] = each.target

    found = faults(situation, staged(SwitchPlan(stages=(tuple(actions),))), hosts)

    assert any(each.startswith(fault) for each in found), found
