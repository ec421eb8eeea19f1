"""Virtual jobs in turns on a few nodes: where their machines start they stay, or they are moved together.

Both ways start jobs in the order in which they were submitted, as they fit. The second looks every so often
whether a switch would let more run, as the service does, with the same planner and the same patience. What
a start, an end and a move take is given: it is measured on the site that this is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.switch.model import (
    NOWHERE,
    ActionKind,
    Amount,
    MachineStanding,
    Situation,
    SwitchNode,
    VirtualMachine,
    fits,
    minus,
)
from outrider.core.switch.planner import NoSwitch, plan_switch

CALM_LOOKS, CALM_FACTOR = 2, 10
"""As the service: so many looks have to agree, and so many intervals it rests after a switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnsJob:
    """Virtual machines that are submitted together; each computes for its own time and is then over."""

    name: str
    demand: Amount
    works_s: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnsPace:
    """In seconds: from room on a node to the machine's work, from its end to room, and from a move being
    begun until its old node is left, and until it works again."""

    start_s: int
    end_s: int
    leave_s: int
    move_s: int
    every_s: int = 30
    crowd_s: int = 0
    """A start takes so much longer for each other machine that starts with it: guests share processors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnsRun:
    """What came of it. `busy_s`: over all nodes, how long each had a machine."""

    total_s: int
    busy_s: int
    moves: int


@dataclass(slots=True)
class _Machine:
    number: int
    demand: Amount
    left_s: int
    node: int = NOWHERE
    leaves: int = NOWHERE
    """The node that it still has while it moves."""
    idle_s: int = 0
    """So long it does not work yet."""
    leaving_s: int = 0
    ending_s: int = -1
    is_over: bool = False


@dataclass(slots=True)
class _Site:
    capacities: Sequence[Amount]
    machines: list[_Machine]
    free: list[Amount] = field(default_factory=list)

    def count(self) -> None:
        """What is left of each node."""
        self.free = list(self.capacities)
        for each in self.machines:
            for node in (each.node, each.leaves):
                if node != NOWHERE:
                    self.free[node] = minus(self.free[node], each.demand)

    @property
    def busy(self) -> int:
        return len({node for each in self.machines for node in (each.node, each.leaves)} - {NOWHERE})


def run_turns(
    nodes: Sequence[Amount], jobs: Sequence[TurnsJob], pace: TurnsPace, *, consolidates: bool
) -> TurnsRun:
    """All jobs, second by second."""
    machines = [
        _Machine(number=0, demand=job.demand, left_s=work_s) for job in jobs for work_s in job.works_s
    ]
    for number, machine in enumerate(machines):
        machine.number = number
    site = _Site(nodes, machines)
    switcher = _Switcher(site, pace) if consolidates else None
    now_s = busy_s = 0
    if not all(any(fits(each.demand, capacity) for capacity in nodes) for each in machines):
        raise ValueError("a machine needs more than any node has")
    while not all(each.is_over for each in machines):
        site.count()
        _start(site, pace)
        if switcher is not None:
            switcher.look(now_s)
        busy_s += site.busy
        for each in machines:
            _pass(each, pace)
        now_s += 1
    return TurnsRun(total_s=now_s, busy_s=busy_s, moves=0 if switcher is None else switcher.moves)


def _start(site: _Site, pace: TurnsPace) -> None:
    """Whoever is next and has room, in the order of submission; nobody overtakes."""
    begun = []
    for each in site.machines:
        if each.is_over or each.node != NOWHERE:
            continue
        node = next((n for n, free in enumerate(site.free) if fits(each.demand, free)), NOWHERE)
        if node == NOWHERE:
            break
        each.node = node
        site.free[node] = minus(site.free[node], each.demand)
        begun.append(each)
    for each in begun:
        each.idle_s = pace.start_s + pace.crowd_s * (len(begun) - 1)


def _pass(machine: _Machine, pace: TurnsPace) -> None:
    """A second."""
    if machine.node == NOWHERE:
        return
    if machine.leaves != NOWHERE:
        machine.leaving_s -= 1
        if machine.leaving_s <= 0:
            machine.leaves = NOWHERE
    if machine.idle_s > 0:
        machine.idle_s -= 1
    elif machine.left_s > 0:
        machine.left_s -= 1
        if machine.left_s == 0:
            machine.ending_s = pace.end_s
    else:
        machine.ending_s -= 1
    if machine.left_s == 0 and machine.ending_s <= 0:
        machine.node, machine.is_over = NOWHERE, True


class _Switcher:
    """Looks whether a switch would let something run that waits."""

    def __init__(self, site: _Site, pace: TurnsPace) -> None:
        self._site = site
        self._pace = pace
        self._calm = 0
        self._helped: tuple[int, ...] = ()
        self._rests_until_s = 0
        self.moves = 0

    def look(self, now_s: int) -> None:
        if now_s % self._pace.every_s or now_s < self._rests_until_s:
            return
        there = [each for each in self._site.machines if not each.is_over]
        if any(each.leaves != NOWHERE or (each.idle_s and each.left_s == 0) for each in there):
            return
        moves, helped = self._planned(there)
        if not moves or not helped:
            self._calm, self._helped = 0, ()
            return
        self._calm = self._calm + 1 if helped == self._helped else 1
        self._helped = helped
        if self._calm < CALM_LOOKS:
            return
        self._calm, self._helped = 0, ()
        for machine, target in moves:
            machine.leaves, machine.leaving_s = machine.node, self._pace.leave_s
            machine.node, machine.idle_s = target, self._pace.move_s
            self.moves += 1
        self._rests_until_s = now_s + self._pace.move_s + CALM_FACTOR * self._pace.every_s

    def _planned(self, there: list[_Machine]) -> tuple[list[tuple[_Machine, int]], tuple[int, ...]]:
        """Who moves to where, and who would start then."""
        there = sorted(there, key=lambda each: (each.node == NOWHERE, each.number))
        situation = Situation(
            nodes=tuple(
                SwitchNode(name=f"n{n}", capacity=each) for n, each in enumerate(self._site.capacities, 1)
            ),
            machines=tuple(
                VirtualMachine(name=f"vm{each.number}", job=job, demand=each.demand)
                for job, each in enumerate(there)
            ),
            standings=tuple(
                MachineStanding.WAITING if each.node == NOWHERE else MachineStanding.RUNNING for each in there
            ),
            hosts=tuple(each.node for each in there),
        )
        try:
            actions = plan_switch(situation, range(len(there))).plan.actions
        except NoSwitch:
            return [], ()
        moves = [(there[a.machine], a.target) for a in actions if a.kind is ActionKind.MIGRATE]
        helped = tuple(there[a.machine].number for a in actions if a.kind is ActionKind.RUN)
        return moves, helped
