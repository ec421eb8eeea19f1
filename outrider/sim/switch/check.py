"""Whether a plan is one: it is carried out instant by instant, and every fault is a sentence.

This shares nothing with the planner but the values: it keeps its own account of who is where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.core.switch.model import NOWHERE, Action, ActionKind, MachineStanding, Situation, SwitchPlan
from outrider.core.switch.timing import TimedAction

_FROM = {
    ActionKind.RUN: (MachineStanding.WAITING,),
    ActionKind.STOP: (MachineStanding.WAITING, MachineStanding.RUNNING, MachineStanding.SLEEPING),
    ActionKind.MIGRATE: (MachineStanding.RUNNING,),
    ActionKind.PAUSE: (MachineStanding.RUNNING,),
    ActionKind.SUSPEND: (MachineStanding.RUNNING,),
    ActionKind.RESUME: (MachineStanding.SLEEPING,),
}


def staged(plan: SwitchPlan) -> tuple[TimedAction, ...]:
    """Stages as if every action took one second."""
    stages = enumerate(plan.stages)
    return tuple(TimedAction(number, number + 1, action) for number, stage in stages for action in stage)


def faults(situation: Situation, timed: Sequence[TimedAction], wanted: Sequence[int]) -> list[str]:
    """What is wrong with carrying them out; nothing if every instant is feasible and the end is as wanted.

    `wanted`: by machine, the node where it runs in the end, or NOWHERE.
    """
    leaving = {
        (each.begin_s, each.action.machine)
        for each in timed
        if each.action.kind in (ActionKind.MIGRATE, ActionKind.RESUME) and not each.action.is_local
    }
    run = _Run(situation, leaving)
    events = [(each.begin_s, 1, number) for number, each in enumerate(timed)]
    # What ends at an instant has ended before anything begins.
    events += [(each.end_s, 0, number) for number, each in enumerate(timed)]
    # An action that takes no time begins before it ends.
    events = [
        (at, 2 if timed[n].begin_s == timed[n].end_s and not kind else kind, n) for at, kind, n in events
    ]
    for _, kind, number in sorted(events):
        if kind == 1:
            run.begin(timed[number].action, timed[number].begin_s)
        else:
            run.end(timed[number].action)
    split = (*_split_gangs(situation, timed), *_split_jobs(situation, timed))
    return [*run.found, *run.end_faults(wanted), *split]


class _Run:
    def __init__(self, situation: Situation, leaving: set[tuple[int, int]]) -> None:
        self._leaving = leaving
        """When which machines begin to leave their nodes."""
        self._handed: set[int] = set()
        """Machines whose room another of their job has, with which they are saved."""
        self._situation = situation
        self.found: list[str] = []
        self._used = [[0] * len(node.capacity) for node in situation.nodes]
        self._standing = dict(enumerate(situation.standings))
        self._at = dict(enumerate(situation.hosts))
        self._busy: set[int] = set()
        for number in self._standing:
            if self._standing[number] is MachineStanding.RUNNING:
                self._add(number, self._at[number], 1)

    def begin(self, action: Action, at_s: int) -> None:
        number = action.machine
        name = self._situation.machines[number].name
        if number in self._busy:
            self.found.append(f"{name} begins to {action.kind.value} within another action")
        self._busy.add(number)
        if self._standing[number] not in _FROM[action.kind]:
            self.found.append(f"{name} is {self._standing[number].value} and is to {action.kind.value}")
        if self._at[number] != action.source:
            self.found.append(f"{name} is at {self._at[number]}, not {action.source}")
        if action.kind in (ActionKind.RUN, ActionKind.MIGRATE, ActionKind.RESUME):
            self._hand_over(action, at_s)
            self._add(number, action.target, 1)
            self._look_at(action)
        if action.kind is ActionKind.PAUSE and action.target != action.source:
            self.found.append(f"{name} is paused, and goes to {action.target}")

    def _look_at(self, action: Action) -> None:
        machine, node = self._situation.machines[action.machine], self._situation.nodes[action.target]
        for wanted, used, size in zip(machine.demand, self._used[action.target], node.capacity, strict=True):
            if wanted and used > size:
                self.found.append(
                    f"{machine.name} comes to {node.name}, where {used} of {size} are taken then"
                )

    def _hand_over(self, action: Action, at_s: int) -> None:
        """Those of a job that moves whole are on different nodes; only the first one comes to the node of
        another, if that leaves it at the same time. Until all are saved the room there is that one's."""
        machine = self._situation.machines[action.machine]
        if machine.job not in self._situation.whole:
            return
        members = [n for n, each in enumerate(self._situation.machines) if each.job == machine.job]
        for number in members:
            if number == action.machine or self._at[number] != action.target:
                continue
            if action.machine != members[0] or (at_s, number) not in self._leaving:
                other = self._situation.machines[number]
                self.found.append(f"{machine.name} comes to {action.target}, where {other.name} is")
            elif self._standing[number] is MachineStanding.RUNNING:
                self._handed.add(number)
                self._add(number, action.target, -1)

    def end(self, action: Action) -> None:
        number = action.machine
        self._busy.discard(number)
        was_running = self._standing[number] is MachineStanding.RUNNING
        leaves = action.kind in (ActionKind.MIGRATE, ActionKind.SUSPEND)
        if number in self._handed:
            self._handed.discard(number)
        elif leaves or (action.kind is ActionKind.STOP and was_running):
            self._add(number, action.source, -1)
        if action.kind is ActionKind.SUSPEND:
            self._standing[number] = MachineStanding.SLEEPING
        elif action.kind is ActionKind.STOP:
            self._standing[number], self._at[number] = MachineStanding.STOPPED, NOWHERE
        else:
            self._standing[number], self._at[number] = MachineStanding.RUNNING, action.target

    def _add(self, number: int, node: int, sign: int) -> None:
        for resource, amount in enumerate(self._situation.machines[number].demand):
            self._used[node][resource] += sign * amount

    def end_faults(self, wanted: Sequence[int]) -> Iterable[str]:
        for number, machine in enumerate(self._situation.machines):
            is_running = self._standing[number] is MachineStanding.RUNNING
            at = self._at[number] if is_running else NOWHERE
            if at != wanted[number]:
                yield f"{machine.name} ends on {at} and was wanted on {wanted[number]}"
            if is_running and self._standing[number] is not self._situation.standings[number]:
                continue
        for job in sorted(self._situation.whole):
            members = [n for n, each in enumerate(self._situation.machines) if each.job == job]
            places = [self._at[n] for n in members if self._standing[n] is MachineStanding.RUNNING]
            if len(set(places)) < len(places) or any(each < places[0] for each in places):
                yield f"job {job} ends on {places}"
        for used, node in zip(self._used, self._situation.nodes, strict=True):
            if any(each > size for each, size in zip(used, node.capacity, strict=True)):
                yield f"{node.name} ends with {used} of {node.capacity}"


def _split_gangs(situation: Situation, timed: Sequence[TimedAction]) -> Iterable[str]:
    """Machines of a job that slept before the switch come back at the same time."""
    begun: dict[int, set[int]] = {}
    for each in timed:
        number = each.action.machine
        slept = situation.standings[number] is MachineStanding.SLEEPING
        if each.action.kind is ActionKind.RESUME and slept:
            begun.setdefault(situation.machines[number].job, set()).add(each.begin_s)
    for job, starts in begun.items():
        if len(starts) > 1:
            yield f"job {job} is resumed at {sorted(starts)}"


def _split_jobs(situation: Situation, timed: Sequence[TimedAction]) -> Iterable[str]:
    """Machines of a job that moves whole are saved together and go on together."""
    together: dict[tuple[int, int, bool], list[int]] = {}
    for each in timed:
        kind, job = each.action.kind, situation.machines[each.action.machine].job
        if job in situation.whole and kind not in (ActionKind.RUN, ActionKind.STOP):
            word = kind in (ActionKind.MIGRATE, ActionKind.PAUSE)
            kinds = together.setdefault((job, each.begin_s, word), [])
            kinds.append(each.action.machine)
    for (job, begin_s, _), machines in together.items():
        members = [n for n, each in enumerate(situation.machines) if each.job == job]
        if sorted(machines) != members:
            yield f"of job {job} machines {sorted(machines)} act at {begin_s}, and not {members}"
