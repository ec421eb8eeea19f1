"""What a plan costs: the paper's Table 1 and its two readings.

Section 4.2 adds up, for every action, the stages before it and its own cost. The costs that Figure 11
prints are lower than that and are those of the longest action of every stage, added up. Both are here.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.switch.model import Action, ActionKind, Stage, SwitchPlan, VirtualMachine

REMOTE_FACTOR = 2
"""A state that lies on another node is moved, and then read."""


def local_cost(action: Action, machine: VirtualMachine) -> int:
    """Of one action: nothing for what depends on the software inside, else the memory that is moved."""
    if action.kind in (ActionKind.RUN, ActionKind.STOP):
        return 0
    # What is paused is saved and read as what is moved with it.
    if action.kind is ActionKind.RESUME and not action.is_local:
        return REMOTE_FACTOR * machine.memory
    return machine.memory


def stage_cost(stage: Stage, machines: Sequence[VirtualMachine]) -> int:
    """That of its most expensive action."""
    return max((local_cost(action, machines[action.machine]) for action in stage), default=0)


def sum_cost(plan: SwitchPlan, machines: Sequence[VirtualMachine]) -> int:
    """Over all actions: the stages before it, and its own cost."""
    total = before = 0
    for stage in plan.stages:
        total += sum(before + local_cost(action, machines[action.machine]) for action in stage)
        before += stage_cost(stage, machines)
    return total


def longest_cost(plan: SwitchPlan, machines: Sequence[VirtualMachine]) -> int:
    """Over all stages: the most expensive action of each."""
    return sum(stage_cost(stage, machines) for stage in plan.stages)
