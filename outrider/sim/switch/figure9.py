"""The example of the paper's figure 9: four actions, of which two have to wait for the other two.

Its text names machines, actions and pools; where they run and how large they are stands in a picture that is
not there. So nodes and sizes here are our own, such that what waits in the text has to wait.
"""

from __future__ import annotations

from outrider.core.switch.model import (
    NOWHERE,
    ActionKind,
    MachineStanding,
    Situation,
    SwitchNode,
    SwitchPlan,
    Target,
    VirtualMachine,
)

NODES = ("N1", "N2", "N3")
CAPACITY = (4096, 2)
_RUNNING, _SLEEPING, _WAITING = MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING
# By name: memory, what it does, where it runs or its state lies, and where it is to run.
_MACHINES = {
    "VM1": (1024, _RUNNING, 0, 2),
    "VM2": (2048, _RUNNING, 0, 0),
    "VM3": (2048, _RUNNING, 1, NOWHERE),
    "VM4": (2048, _RUNNING, 1, 1),
    "VM5": (2048, _SLEEPING, 1, 1),
    "VM6": (1024, _WAITING, NOWHERE, 0),
}


def figure_9() -> tuple[Situation, Target]:
    """Where it begins, and where it is to end."""
    rows = _MACHINES.values()
    situation = Situation(
        nodes=tuple(SwitchNode(name=name, capacity=CAPACITY) for name in NODES),
        machines=tuple(
            VirtualMachine(name=name, job=number, demand=(memory, 1))
            for number, (name, (memory, *_)) in enumerate(_MACHINES.items())
        ),
        standings=tuple(standing for _, standing, _, _ in rows),
        hosts=tuple(host for _, _, host, _ in rows),
    )
    return situation, Target(hosts=tuple(host for _, _, _, host in rows))


def told(situation: Situation, plan: SwitchPlan) -> list[list[str]]:
    """By stage, its actions in the words of the paper, and where."""
    found = []
    for stage in plan.stages:
        words = []
        for action in stage:
            nodes = [situation.nodes[each].name for each in (action.source, action.target) if each != NOWHERE]
            is_move = action.kind is ActionKind.MIGRATE
            where = f"from {nodes[0]} to {nodes[1]}" if is_move else f"on {nodes[-1]}"
            words.append(f"{action.kind.value}({situation.machines[action.machine].name}) {where}")
        found.append(words)
    return found
