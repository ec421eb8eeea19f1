"""Switches that can be worked out by hand: sequences, circles, rules, and sites that are too full."""

from __future__ import annotations

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
from outrider.core.switch.placement import place
from outrider.core.switch.planner import NoSwitch, Switch, plan_switch
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.selection import select
from outrider.core.switch.stages import NoPlan, plan_stages
from outrider.core.switch.timing import ActionPace, continuous, duration_s, in_stages
from outrider.sim.switch.check import faults, staged

RUNNING, SLEEPING, WAITING = MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING
RUN, MIGRATE, SUSPEND, RESUME = ActionKind.RUN, ActionKind.MIGRATE, ActionKind.SUSPEND, ActionKind.RESUME


def situation(nodes: list[int], *machines: tuple[int, MachineStanding, int]) -> Situation:
    """Nodes by their memory; machines by memory, standing and node, each a job of its own."""
    return Situation(
        nodes=tuple(SwitchNode(name=f"n{number}", capacity=(size, 9)) for number, size in enumerate(nodes)),
        machines=tuple(
            VirtualMachine(name=f"m{number}", job=number, demand=(memory, 0))
            for number, (memory, _, _) in enumerate(machines)
        ),
        standings=tuple(standing for _, standing, _ in machines),
        hosts=tuple(host for _, _, host in machines),
    )


def planned(before: Situation, hosts: tuple[int, ...]) -> SwitchPlan:
    """Stages to a placement; every instant of them is feasible."""
    plan = plan_stages(before, Target(hosts=hosts))
    assert not faults(before, staged(plan), hosts)
    assert not faults(before, continuous(before, plan, ActionPace()), hosts)
    return plan


def switched(before: Situation, rules: PlacementRules) -> Switch:
    """A switch with all jobs in the queue; feasible, and by the rules."""
    found = plan_switch(before, range(len(before.jobs)), rules)
    assert not faults(before, staged(found.plan), found.target.hosts)
    assert not rules.broken(before, found.target.hosts)
    return found


def test_what_needs_room_waits_for_what_leaves() -> None:
    """Figure 7 of the paper in form: a migration to where another is suspended."""
    before = situation([4, 4], (3, RUNNING, 0), (3, RUNNING, 1))

    plan = planned(before, (1, NOWHERE))

    assert plan.stages == ((Action(SUSPEND, 1, 1),), (Action(MIGRATE, 0, 0, 1),))
    # The suspension costs 3; the migration waits for it and costs 3 itself.
    assert sum_cost(plan, before.machines) == 3 + (3 + 3)
    assert longest_cost(plan, before.machines) == 3 + 3


def test_swap_goes_by_a_third_node() -> None:
    before = situation([4, 4, 4], (3, RUNNING, 0), (3, RUNNING, 1))

    plan = planned(before, (1, 0, NOWHERE)[:2])

    kinds = [action.kind for action in plan.actions]
    assert kinds == [MIGRATE] * 3
    assert plan.stages[0][0].target == 2


def test_swap_without_a_third_node_is_a_suspension_and_a_resumption() -> None:
    before = situation([4, 4], (3, RUNNING, 0), (2, RUNNING, 1), (2, RUNNING, 1))

    plan = planned(before, (1, 0, 0))

    assert {action.kind for action in plan.actions} == {SUSPEND, MIGRATE, RESUME}


def test_long_circle_is_broken_once() -> None:
    before = situation([4] * 6, *((3, RUNNING, node) for node in range(5)))

    plan = planned(before, (1, 2, 3, 4, 0))

    assert len(plan.actions) == 6, "five migrations and one step aside"


def test_circles_that_do_not_touch_are_broken_one_by_one() -> None:
    before = situation([4] * 5, *((3, RUNNING, node) for node in range(4)))

    plan = planned(before, (1, 0, 3, 2))

    assert len(plan.actions) == 6
    assert [action.kind for action in plan.actions] == [MIGRATE] * 6


def test_chain_goes_from_its_free_end() -> None:
    before = situation([4] * 4, *((3, RUNNING, node) for node in range(3)))

    plan = planned(before, (1, 2, 3))

    assert [stage[0].machine for stage in plan.stages] == [2, 1, 0]


def test_target_that_does_not_fit_has_no_plan() -> None:
    before = situation([4], (3, RUNNING, 0), (2, WAITING, NOWHERE))

    with pytest.raises(NoPlan, match="machine m1 needs"):
        plan_stages(before, Target(hosts=(0, 0)))


def test_machine_larger_than_any_node_stays_out() -> None:
    before = situation([4, 4], (5, WAITING, NOWHERE), (3, WAITING, NOWHERE))

    assert select(before, (0, 1)).jobs == (1,)


def test_first_of_the_queue_runs_and_the_last_is_suspended() -> None:
    """Everything is full: who is first in the queue runs, and what has to make way is the cheapest."""
    before = situation([4, 4], (4, WAITING, NOWHERE), (4, RUNNING, 0), (3, RUNNING, 1))

    found = plan_switch(before, (0, 1, 2))

    assert found.selection.jobs == (0, 1)
    assert [action.kind for action in found.plan.actions] == [SUSPEND, RUN]
    assert found.plan.actions[0].machine == 2
    assert found.cost == 3 + (3 + 0)


def test_state_is_read_where_it_lies() -> None:
    before = situation([4, 4], (3, SLEEPING, 1), (1, RUNNING, 1))

    found = plan_switch(before, (0, 1))

    assert found.plan.stages == ((Action(RESUME, 0, 1, 1),),)
    assert found.is_optimal


def test_overloaded_node_lets_go_of_the_cheapest() -> None:
    before = Situation(
        nodes=(SwitchNode(name="n0", capacity=(8, 1)), SwitchNode(name="n1", capacity=(8, 1))),
        machines=tuple(
            VirtualMachine(name=f"m{number}", job=number, demand=(memory, 1))
            for number, memory in enumerate((3, 2))
        ),
        standings=(RUNNING, RUNNING),
        hosts=(0, 0),
    )

    found = plan_switch(before, (0, 1))

    assert found.plan.stages == ((Action(MIGRATE, 1, 0, 1),),)
    assert (found.cost, found.bound) == (2, 2)


def test_resumptions_of_a_job_begin_together() -> None:
    """Its second machine has room only when another has left: the first one waits for it."""
    before = Situation(
        nodes=(SwitchNode(name="n0", capacity=(4, 9)), SwitchNode(name="n1", capacity=(4, 9))),
        machines=(
            VirtualMachine(name="a", job=0, demand=(3, 0)),
            VirtualMachine(name="b", job=0, demand=(3, 0)),
            VirtualMachine(name="c", job=1, demand=(3, 0)),
        ),
        standings=(SLEEPING, SLEEPING, RUNNING),
        hosts=(0, 1, 1),
    )

    plan = planned(before, (0, 1, NOWHERE))

    assert [len(stage) for stage in plan.stages] == [1, 2]


def test_nodes_in_maintenance_are_emptied() -> None:
    before = situation([4, 4], (2, RUNNING, 0), (2, RUNNING, 1))

    found = switched(before, PlacementRules(closed=frozenset({0})))

    assert found.target.hosts == (1, 1)
    assert found.cost == 2


@pytest.mark.parametrize(
    ("rules", "hosts", "cost"),
    [
        (PlacementRules(spread=(frozenset({0, 1}),)), (0, 1), 2),
        (PlacementRules(fence={0: frozenset({1})}), (1, 0), 3),
        (PlacementRules(ban={1: frozenset({0})}), (0, 1), 2),
        (PlacementRules(keep=frozenset({1}), closed=frozenset({1})), (0, 0), 0),
    ],
)
def test_rule_that_is_broken_now_is_kept_afterwards_at_the_least_cost(
    rules: PlacementRules, hosts: tuple[int, ...], cost: int
) -> None:
    before = situation([8, 8], (3, RUNNING, 0), (2, RUNNING, 0))

    found = switched(before, rules)

    assert (found.target.hosts, found.cost) == (hosts, cost)


def test_machines_that_belong_together_meet_where_most_of_them_is() -> None:
    before = situation([8, 8], (3, RUNNING, 0), (2, RUNNING, 1))

    found = switched(before, PlacementRules(gather=(frozenset({0, 1}),)))

    assert found.target.hosts == (0, 0)
    assert found.cost == 2


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (PlacementRules(fence={0: frozenset({1})}, ban={0: frozenset({1})}), "machine m0 may run on no node"),
        (
            PlacementRules(keep=frozenset({0}), closed=frozenset({0})),
            "machine m0 is never moved, and may not stay on n0",
        ),
        (
            PlacementRules(spread=(frozenset({0, 1}),), gather=(frozenset({0, 1}),)),
            "m0, m1 are to be on one node",
        ),
    ],
)
def test_rules_that_contradict_one_another_are_named(rules: PlacementRules, words: str) -> None:
    before = situation([8, 8], (3, RUNNING, 0), (2, RUNNING, 0))

    with pytest.raises(NoSwitch, match=words):
        plan_switch(before, (0, 1), rules)


def test_job_that_rules_leave_no_room_for_does_not_run() -> None:
    before = situation([8, 8], (3, RUNNING, 0), (8, WAITING, NOWHERE))

    found = switched(before, PlacementRules(ban={1: frozenset({1})}, keep=frozenset({0})))

    assert found.selection.jobs == (0,)


def test_continuous_plan_does_not_wait_for_the_slowest_of_a_stage() -> None:
    before = situation([4, 4, 40], (4, RUNNING, 0), (40, RUNNING, 2), (4, SLEEPING, 0))
    pace = ActionPace(migrate_mb_per_s=1, suspend_mb_per_s=1, resume_mb_per_s=1, copy_mb_per_s=1)

    plan = planned(before, (1, NOWHERE, 0))

    assert [len(stage) for stage in plan.stages] == [2, 1]
    # 40 s for the large suspension and 4 for the resumption; or the resumption within the suspension.
    assert duration_s(in_stages(plan, before.machines, pace)) == 44
    assert duration_s(continuous(before, plan, pace)) == 40


def test_disk_takes_one_state_after_the_other() -> None:
    before = situation([8], (4, RUNNING, 0), (4, RUNNING, 0))
    pace = ActionPace(suspend_mb_per_s=1, saves_at_once=1)

    plan = planned(before, (NOWHERE, NOWHERE))

    assert duration_s(in_stages(plan, before.machines, pace)) == 8
    assert duration_s(continuous(before, plan, pace)) == 8


def test_node_that_has_the_image_is_preferred() -> None:
    before = Situation(
        nodes=(
            SwitchNode(name="n0", capacity=(8, 9)),
            SwitchNode(name="n1", capacity=(8, 9), images=frozenset({"a.img"})),
        ),
        machines=(VirtualMachine(name="m0", job=0, demand=(3, 0), image="a.img"),),
        standings=(WAITING,),
        hosts=(NOWHERE,),
    )

    assert plan_switch(before, (0,)).target.hosts == (1,)


def test_machines_of_one_image_go_where_it_comes_anyway() -> None:
    """The first brings the image to the larger node; the second, smaller one would fit best on the other."""
    before = Situation(
        nodes=(SwitchNode(name="n0", capacity=(8, 9)), SwitchNode(name="n1", capacity=(3, 9))),
        machines=tuple(
            VirtualMachine(name=f"m{n}", job=n, demand=(memory, 0), image="a.img")
            for n, memory in enumerate((5, 3))
        ),
        standings=(WAITING, WAITING),
        hosts=(NOWHERE, NOWHERE),
    )

    assert place(before, (0, 1)) == Target(hosts=(0, 0))


def test_check_finds_what_is_planted() -> None:
    before = situation([4, 4], (3, RUNNING, 0), (3, RUNNING, 1), (2, SLEEPING, 0))

    too_early = SwitchPlan(stages=((Action(MIGRATE, 0, 0, 1), Action(SUSPEND, 1, 1)),))
    from_elsewhere = SwitchPlan(stages=((Action(SUSPEND, 1, 0),),))
    twice = SwitchPlan(stages=((Action(SUSPEND, 1, 1), Action(SUSPEND, 1, 1)),))
    asleep = SwitchPlan(stages=((Action(SUSPEND, 2, 0),),))

    assert any("are taken then" in each for each in faults(before, staged(too_early), (1, NOWHERE, NOWHERE)))
    assert any("not 0" in each for each in faults(before, staged(from_elsewhere), (0, NOWHERE, NOWHERE)))
    assert any("within another" in each for each in faults(before, staged(twice), (0, NOWHERE, NOWHERE)))
    assert any("is sleeping" in each for each in faults(before, staged(asleep), (0, 1, NOWHERE)))
    assert faults(before, (), (0, NOWHERE, NOWHERE)) == ["m1 ends on 1 and was wanted on -1"]
