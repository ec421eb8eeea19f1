"""From where machines are to where they are to be: actions in stages, each feasible when it begins.

An action may begin when the node that it needs has room. What leaves a node gives its room back at the
end of its stage. Where migrations wait for one another in a circle, one goes by a third node; where no
third node has room, one is suspended and resumed. Neither happens to a machine more than once, so that
the stages come to an end. Jobs that move whole begin each action with all of their machines, hold the nodes
that they leave until it is over, and are suspended rather than sent by a third node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.core.switch.model import (
    NOWHERE,
    Action,
    ActionKind,
    MachineStanding,
    Situation,
    Stage,
    SwitchPlan,
    Target,
    fits,
    plus,
)
from outrider.core.switch.room import Room
from outrider.core.switch.rules import NO_RULES, PlacementRules


class NoPlan(Exception):
    """There is no order of actions: the target has more on a node than fits."""


def actions_between(situation: Situation, target: Target) -> list[Action]:
    """One action for each machine that changes its standing or its node."""
    found = []
    for number, standing in enumerate(situation.standings):
        at, to = situation.hosts[number], target.hosts[number]
        if number in target.stopped:
            if standing is not MachineStanding.STOPPED:
                found.append(Action(ActionKind.STOP, number, at))
        elif standing is MachineStanding.RUNNING:
            if to == NOWHERE:
                found.append(Action(ActionKind.SUSPEND, number, at))
            elif to != at:
                found.append(Action(ActionKind.MIGRATE, number, at, to))
        elif to != NOWHERE:
            kind = ActionKind.RUN if standing is MachineStanding.WAITING else ActionKind.RESUME
            found.append(Action(kind, number, at, to))
    return found + _pauses(situation, found)


def _pauses(situation: Situation, actions: Iterable[Action]) -> list[Action]:
    """Of machines that stay, and are saved because others of their job move."""
    moved = {action.machine for action in actions if action.kind is ActionKind.MIGRATE}
    return [
        Action(ActionKind.PAUSE, number, situation.hosts[number], situation.hosts[number])
        for job in sorted({situation.machines[number].job for number in moved} & situation.whole)
        for number in situation.jobs[job]
        if number not in moved and situation.standings[number] is MachineStanding.RUNNING
    ]


def plan_stages(situation: Situation, target: Target, rules: PlacementRules = NO_RULES) -> SwitchPlan:
    """Stages that lead from one to the other. Raises NoPlan if the target does not fit."""
    return _Stages(situation, target, rules).plan()


class _Stages:
    def __init__(self, situation: Situation, target: Target, rules: PlacementRules) -> None:
        self._situation = situation
        self._machines = situation.machines
        self._nodes = situation.nodes
        self._rules = rules
        self._room = Room(situation.free, rules.closed)
        self._left = {action.machine: action for action in actions_between(situation, target)}
        self._target = target
        self._bypassed: set[int] = set()
        self._alone: set[int] = set()
        """Machines that are suspended to break a circle: they come back without their job."""

    def plan(self) -> SwitchPlan:
        stages: list[Stage] = []
        while self._left:
            stage = self._feasible() or self._break_circle()
            for action in stage:
                self._finish(action)
            stages.append(tuple(sorted(stage, key=lambda action: action.machine)))
        return SwitchPlan(stages=tuple(stages))

    def _feasible(self) -> Stage:
        """All that can begin now together; their room is taken."""
        left = self._left.values()
        begun = [action for action in left if action.takes == NOWHERE and action.kind is not ActionKind.PAUSE]
        for moves in sorted(self._moves(), key=self._size_of):
            begun += self._begin(moves)
        for gang in self._gangs():
            begun += self._begin(gang)
        runs = [action for action in left if action.kind is ActionKind.RUN]
        for action in sorted(runs, key=self._size):
            begun += self._begin((action,))
        return tuple(begun)

    def _moves(self) -> list[Stage]:
        """Migrations that begin together: each alone, but for those of jobs that move whole."""
        found: dict[tuple[int, int], list[Action]] = {}
        for action in self._left.values():
            if action.kind in (ActionKind.MIGRATE, ActionKind.PAUSE):
                alone = NOWHERE if self._situation.is_whole(action.machine) else action.machine
                found.setdefault((self._machines[action.machine].job, alone), []).append(action)
        return [tuple(each) for each in found.values()]

    def _size_of(self, moves: Stage) -> tuple[int, int]:
        return sum(self._machines[each.machine].memory for each in moves), moves[0].machine

    def _gangs(self) -> list[tuple[Action, ...]]:
        """Resumptions of one job begin together, so that its machines' connections outlive them."""
        found: dict[tuple[int, int], list[Action]] = {}
        for action in self._left.values():
            if action.kind is ActionKind.RESUME:
                alone = action.machine if action.machine in self._alone else NOWHERE
                found.setdefault((self._machines[action.machine].job, alone), []).append(action)
        return [tuple(each) for each in found.values()]

    def _size(self, action: Action) -> tuple[int, int]:
        return self._machines[action.machine].memory, action.machine

    def _begin(self, gang: Sequence[Action]) -> tuple[Action, ...]:
        """Take room for all of them; nothing if one of them has none."""
        taken: list[Action] = []
        staying = [action for action in gang if action.takes == NOWHERE]
        for action in gang:
            if action.takes == NOWHERE:
                continue
            demand = self._machines[action.machine].demand
            free = self._room.free[action.takes]
            for each in gang:
                # What is saved with it leaves its room to it.
                if each.leaves == action.takes:
                    free = plus(free, self._machines[each.machine].demand)
            # A target may be on a closed node only by mistake: its room is looked at all the same.
            if not fits(demand, free):
                for each in taken:
                    self._room.give(each.takes, self._machines[each.machine].demand)
                return ()
            self._room.take(action.takes, demand)
            taken.append(action)
        return (*taken, *staying)

    def _finish(self, action: Action) -> None:
        """What is so when its stage is over."""
        number = action.machine
        if action.frees != NOWHERE:
            self._room.give(action.frees, self._machines[number].demand)
        final = self._left.pop(number)
        if final == action:
            return
        if action.kind is ActionKind.SUSPEND:
            self._left[number] = Action(ActionKind.RESUME, number, action.source, final.target)
        else:
            self._left[number] = Action(ActionKind.MIGRATE, number, action.target, final.target)

    def _break_circle(self) -> Stage:
        """A step aside of one migration, so that another action can begin; of a job that moves whole, its
        suspension."""
        found = sorted(self._moves(), key=lambda moves: (not self._helps(moves), *self._size_of(moves)))
        for moves in found:
            action = moves[0]
            is_whole = self._situation.is_whole(action.machine)
            if is_whole or action.machine in self._bypassed or action.machine in self._rules.keep:
                continue
            pivot = self._pivot(action)
            if pivot != NOWHERE:
                self._bypassed.add(action.machine)
                self._room.take(pivot, self._machines[action.machine].demand)
                return (Action(ActionKind.MIGRATE, action.machine, action.source, pivot),)
        if not found:
            raise NoPlan(self._obstacle())
        if not self._situation.is_whole(found[0][0].machine):
            self._alone.add(found[0][0].machine)
        return tuple(Action(ActionKind.SUSPEND, each.machine, each.source) for each in found[0])

    def _pivot(self, action: Action) -> int:
        """A third node that has room for it; NOWHERE if none has."""

        def allowed(node: int) -> bool:
            is_other = node not in (action.source, action.target)
            return is_other and self._rules.allows(action.machine, node)

        return self._room.tightest(self._machines[action.machine].demand, allowed)

    def _helps(self, leaving: Stage) -> bool:
        """Whether something that waits for their nodes has room there when they have left."""
        room, left = self._room, [each for each in leaving if each.kind is ActionKind.MIGRATE]
        for each in left:
            room.give(each.source, self._machines[each.machine].demand)
        sources = {each.source for each in left}
        waiting = (action for action in self._left.values() if action.takes in sources)
        found = any(fits(self._machines[each.machine].demand, room.free[each.takes]) for each in waiting)
        for each in left:
            room.take(each.source, self._machines[each.machine].demand)
        return found

    def _obstacle(self) -> str:
        action = min(self._left.values(), key=lambda each: each.machine)
        machine, node = self._machines[action.machine], self._nodes[action.target]
        free = self._room.free[action.target]
        return f"machine {machine.name} needs {machine.demand} on node {node.name}, where {free} are left"
