"""When each action of a plan begins and ends: in stages, or each as soon as its room is there.

A stage waits for its slowest action. In the continuous form an action begins when its node has room
for it beside what earlier stages still want to put there; so whatever begins early stands in nobody's
way, and the plan ends as the stages would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from outrider.core.switch.model import (
    NOWHERE,
    Action,
    ActionKind,
    Amount,
    Situation,
    SwitchPlan,
    VirtualMachine,
    fits,
    minus,
    plus,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionPace:
    """How long actions take. Memory is in MB. The defaults are the paper's, section 2.3, for 2,048 MB."""

    boot_s: int = 6
    shutdown_s: int = 25
    migrate_mb_per_s: int = 79
    suspend_mb_per_s: int = 23
    resume_mb_per_s: int = 23
    copy_mb_per_s: int = 23
    moves_at_once: int = 0
    """Over the whole network; 0: as many as there are."""
    saves_at_once: int = 0
    """States written to or read from one node's disk at a time; 0: as many as there are."""

    def __post_init__(self) -> None:
        rates = (self.migrate_mb_per_s, self.suspend_mb_per_s, self.resume_mb_per_s, self.copy_mb_per_s)
        if min(rates) < 1 or min(self.boot_s, self.shutdown_s, self.moves_at_once, self.saves_at_once) < 0:
            raise ValueError("rates are 1 MB/s or more, and no time or number is below 0")

    def duration_s(self, action: Action, machine: VirtualMachine) -> int:
        if action.kind is ActionKind.RUN:
            return self.boot_s
        if action.kind is ActionKind.STOP:
            return self.shutdown_s if action.source != NOWHERE else 0
        if action.kind is ActionKind.MIGRATE:
            return _seconds(machine.memory, self.migrate_mb_per_s)
        if action.kind is ActionKind.PAUSE:
            seconds = (self.suspend_mb_per_s, self.resume_mb_per_s)
            return sum(_seconds(machine.memory, rate) for rate in seconds)
        if action.kind is ActionKind.SUSPEND:
            return _seconds(machine.memory, self.suspend_mb_per_s)
        moved_s = 0 if action.is_local else _seconds(machine.memory, self.copy_mb_per_s)
        return moved_s + _seconds(machine.memory, self.resume_mb_per_s)


@dataclass(frozen=True, slots=True)
class TimedAction:
    """When an action begins and ends."""

    begin_s: int
    end_s: int
    action: Action


def _seconds(memory_mb: int, rate_mb_per_s: int) -> int:
    return -(-memory_mb // rate_mb_per_s)


def in_stages(
    plan: SwitchPlan, machines: Sequence[VirtualMachine], pace: ActionPace
) -> tuple[TimedAction, ...]:
    """Every stage begins when the one before it is over; within one, what may not go on together waits."""
    found: list[TimedAction] = []
    at_s = 0
    for stage in plan.stages:
        users = _Users(pace)
        ended_s = at_s
        for action in stage:
            duration_s = pace.duration_s(action, machines[action.machine])
            begin_s = users.earliest(action, at_s)
            users.use(action, begin_s + duration_s)
            found.append(TimedAction(begin_s, begin_s + duration_s, action))
            ended_s = max(ended_s, begin_s + duration_s)
        at_s = ended_s
    return tuple(found)


def continuous(situation: Situation, plan: SwitchPlan, pace: ActionPace) -> tuple[TimedAction, ...]:
    """Every action, and every job's resumptions together, as early as its room is there."""
    return _Continuous(situation, plan, pace).timed()


def duration_s(timed: Sequence[TimedAction]) -> int:
    return max((each.end_s for each in timed), default=0)


def places_of(action: Action) -> tuple[int, ...]:
    """The nodes whose disks an action uses."""
    if action.kind in (ActionKind.SUSPEND, ActionKind.PAUSE):
        return (action.source,)
    if action.kind is ActionKind.RESUME:
        return tuple(sorted({action.source, action.target}))
    return ()


def is_move(action: Action) -> bool:
    """Whether it goes over the network."""
    return action.kind is ActionKind.MIGRATE or (action.kind is ActionKind.RESUME and not action.is_local)


class _Users:
    """Who uses the network and the disks, and until when: the ends of those that do, the earliest first."""

    def __init__(self, pace: ActionPace) -> None:
        self._pace = pace
        self._moves: list[int] = []
        self._saves: dict[int, list[int]] = {}

    def earliest(self, action: Action, at_s: int) -> int:
        pace = self._pace
        if pace.moves_at_once and is_move(action):
            at_s = max(at_s, _free_at(self._moves, pace.moves_at_once))
        for node in places_of(action) if pace.saves_at_once else ():
            at_s = max(at_s, _free_at(self._saves.get(node, []), pace.saves_at_once))
        return at_s

    def use(self, action: Action, until_s: int) -> None:
        if is_move(action):
            self._moves = sorted([*self._moves, until_s])
        for node in places_of(action):
            self._saves[node] = sorted([*self._saves.get(node, []), until_s])


def _free_at(ends: Sequence[int], most: int) -> int:
    """When one more may begin: `ends` are in order."""
    return ends[-most] if len(ends) >= most else 0


class _Continuous:
    def __init__(self, situation: Situation, plan: SwitchPlan, pace: ActionPace) -> None:
        self._machines = situation.machines
        self._pace = pace
        self._free = situation.free
        self._users = _Users(pace)
        self._gangs = _gangs(plan, situation)
        self._before: dict[int, int] = {}
        """By machine that has several actions, how many of them are over."""

    def timed(self) -> tuple[TimedAction, ...]:
        found: list[TimedAction] = []
        waiting, ends, now_s = list(self._gangs), list[tuple[int, int, Action]](), 0
        done: dict[int, int] = {}
        while waiting or ends:
            rest: list[_Gang] = []
            wanted: dict[int, Amount] = {}
            for gang in waiting:
                if self._may_begin(gang, wanted, done, now_s):
                    for action in gang.actions:
                        end_s = now_s + self._pace.duration_s(action, self._machines[action.machine])
                        self._users.use(action, end_s)
                        self._take(action)
                        found.append(TimedAction(now_s, end_s, action))
                        heappush(ends, (end_s, len(found), action))
                else:
                    rest.append(gang)
                    self._want(gang, wanted)
            waiting = rest
            if not ends:
                raise ValueError("a plan whose stages are not feasible")
            now_s = ends[0][0]
            while ends and ends[0][0] == now_s:
                action = heappop(ends)[2]
                done[action.machine] = done.get(action.machine, 0) + 1
                if action.frees != NOWHERE:
                    node = action.frees
                    self._free[node] = plus(self._free[node], self._machines[action.machine].demand)
        return tuple(found)

    def _may_begin(self, gang: _Gang, wanted: dict[int, Amount], done: dict[int, int], now_s: int) -> bool:
        extra: dict[int, Amount] = {}
        for action, before in zip(gang.actions, gang.before, strict=True):
            if done.get(action.machine, 0) < before or self._users.earliest(action, now_s) > now_s:
                return False
            node = action.takes
            if node == NOWHERE:
                continue
            demand = self._machines[action.machine].demand
            free = self._free[node]
            for each in gang.actions:
                # What is saved with it leaves its room to it.
                if each.leaves == node:
                    free = plus(free, self._machines[each.machine].demand)
            for taken in (wanted.get(node), extra.get(node)):
                free = free if taken is None else minus(free, taken)
            if not fits(demand, free):
                return False
            extra[node] = demand if node not in extra else plus(extra[node], demand)
        return True

    def _take(self, action: Action) -> None:
        if action.takes != NOWHERE:
            node = action.takes
            self._free[node] = minus(self._free[node], self._machines[action.machine].demand)

    def _want(self, gang: _Gang, wanted: dict[int, Amount]) -> None:
        for action in gang.actions:
            if action.takes != NOWHERE:
                demand = self._machines[action.machine].demand
                before = wanted.get(action.takes)
                wanted[action.takes] = demand if before is None else plus(before, demand)


@dataclass(frozen=True, slots=True)
class _Gang:
    """Actions that begin together; `before`: how many of each machine's own actions come first."""

    actions: tuple[Action, ...]
    before: tuple[int, ...]


def _gangs(plan: SwitchPlan, situation: Situation) -> list[_Gang]:
    """A job's resumptions within a stage are one, and all that jobs do that move whole; other actions are
    alone; in the order of the stages."""
    found: list[_Gang] = []
    counted: dict[int, int] = {}
    for stage in plan.stages:
        jobs: dict[int, list[Action]] = {}
        alone: list[Action] = []
        for action in stage:
            is_together = situation.is_whole(action.machine) and action.kind is not ActionKind.RUN
            if action.kind is ActionKind.RESUME or is_together:
                jobs.setdefault(situation.machines[action.machine].job, []).append(action)
            else:
                alone.append(action)
        for actions in (*([each] for each in alone), *jobs.values()):
            before = tuple(counted.get(action.machine, 0) for action in actions)
            found.append(_Gang(tuple(actions), before))
        for action in stage:
            counted[action.machine] = counted.get(action.machine, 0) + 1
    return found
