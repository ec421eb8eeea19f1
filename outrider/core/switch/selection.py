"""Which jobs run: the paper's running job selection. Jobs run whole or not at all.

The queue is gone through in its order; a job is chosen if First Fit Decreasing finds a place for its
machines beside those of the jobs that are chosen already, on nodes that are taken to be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import repeat

from outrider.core.switch.model import NOWHERE, Amount, MachineStanding, Situation, fits, plus, summed
from outrider.core.switch.room import Room
from outrider.core.switch.rules import NO_RULES, PlacementRules


class Decreasing(Enum):
    """By what machines are sorted before they are packed."""

    MEMORY = "memory, then processors"
    PROCESSORS = "processors, then memory"

    def key(self, demand: Amount) -> tuple[int, ...]:
        ordered = demand if self is Decreasing.MEMORY else (*demand[1:], demand[0])
        return tuple(-amount for amount in ordered)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The jobs that run, in the queue's order, and one placement of their machines."""

    jobs: tuple[int, ...]
    hosts: tuple[int, ...]


class _Packing:
    """Machines put on nodes that are empty but for those that are never moved."""

    def __init__(
        self, situation: Situation, rules: PlacementRules, order: Decreasing, *, at_home: bool = False
    ) -> None:
        """`at_home`: what runs is put where it is, if it may stay there."""
        self._at_home = at_home
        self._situation = situation
        self._rules = rules
        self._order = order
        self.room = Room([node.capacity for node in situation.nodes], rules.closed)
        self.hosts = [NOWHERE] * len(situation.machines)

    def add(self, numbers: Iterable[int]) -> bool:
        """Put them, the largest first. False, with none of them put, if there is no room."""
        put: list[int] = []
        for unit in self._units(numbers):
            node = self._place_of(unit)
            if node == NOWHERE:
                for number in put:
                    self.room.give(self.hosts[number], self._situation.machines[number].demand)
                    self.hosts[number] = NOWHERE
                return False
            for number in unit:
                self.hosts[number] = node
                self.room.take(node, self._situation.machines[number].demand)
                put.append(number)
        return True

    def _units(self, numbers: Iterable[int]) -> list[tuple[int, ...]]:
        """Machines that go together to one node, the largest first; those that stay where they are before."""
        machines, left, units = self._situation.machines, dict.fromkeys(numbers), []
        for group in self._rules.gather:
            unit = tuple(sorted(number for number in group if number in left))
            if unit:
                units.append(unit)
                left = {number: None for number in left if number not in group}
        units += [(number,) for number in left]

        def key(unit: tuple[int, ...]) -> tuple[object, ...]:
            demand = summed((machines[number].demand for number in unit), len(machines[unit[0]].demand))
            stays = self._is_kept(unit) or (self._at_home and self._runs(unit[0]))
            return (not stays, self._order.key(demand), unit)

        return sorted(units, key=key)

    def _is_kept(self, unit: tuple[int, ...]) -> bool:
        return any(number in self._rules.keep and self._runs(number) for number in unit)

    def _runs(self, number: int) -> bool:
        return self._situation.standings[number] is MachineStanding.RUNNING

    def _place_of(self, unit: tuple[int, ...]) -> int:
        machines, rules = self._situation.machines, self._rules
        demand = machines[unit[0]].demand
        for number in unit[1:]:
            demand = plus(demand, machines[number].demand)
        if rules.is_empty and not self._situation.whole:
            return self.room.first(demand)
        kept = [number for number in unit if self._is_kept((number,))]
        fixed = {self._situation.hosts[number] for number in kept}
        fixed.update(self._gathered(unit))

        def allowed(node: int) -> bool:
            if fixed and fixed != {node}:
                return False
            return all(map(rules.allows, unit, repeat(node))) and self._is_apart(unit, node)

        if self._at_home and self._runs(unit[0]):
            home = self._situation.hosts[unit[0]]
            if self.room.has(home, demand) and allowed(home):
                return home
        return self.room.first(demand, allowed)

    def _gathered(self, unit: tuple[int, ...]) -> set[int]:
        """Where others of their group are already."""
        groups = (group for group in self._rules.gather if unit[0] in group)
        return {self.hosts[number] for group in groups for number in group} - {NOWHERE}

    def _is_apart(self, unit: tuple[int, ...], node: int) -> bool:
        situation = self._situation
        if not all(situation.suits(each, node, self.hosts) for each in unit if situation.is_whole(each)):
            return False
        groups = (group for group in self._rules.spread if not group.isdisjoint(unit))
        return not any(self.hosts[number] == node for group in groups for number in group)


def select(
    situation: Situation,
    queue: Sequence[int],
    rules: PlacementRules = NO_RULES,
    order: Decreasing = Decreasing.MEMORY,
) -> Selection:
    """The jobs of the queue that can run at the same time, chosen in its order.

    A job is first put beside what is packed already; only if that fails, all are packed anew.
    """
    resources = len(situation.nodes[0].capacity)
    open_nodes = (node for number, node in enumerate(situation.nodes) if number not in rules.closed)
    capacity = summed((node.capacity for node in open_nodes), resources)
    packing, taken = _Packing(situation, rules, order), (0,) * resources
    chosen: list[int] = []
    for job in queue:
        members = situation.jobs[job]
        wanted = plus(taken, summed((situation.machines[each].demand for each in members), resources))
        if not fits(wanted, capacity):
            continue
        if not packing.add(members):
            anew = _packed(situation, rules, order, (*chosen, job))
            if anew is None:
                continue
            packing = anew
        chosen.append(job)
        taken = wanted
    return Selection(jobs=tuple(chosen), hosts=tuple(packing.hosts))


def _packed(
    situation: Situation, rules: PlacementRules, order: Decreasing, jobs: Sequence[int]
) -> _Packing | None:
    """All of them packed anew. Jobs that move whole are more than First Fit Decreasing can always place again
    where they are, so that what runs is left there then."""
    members = [number for each in jobs for number in situation.jobs[each]]
    for at_home in (False, True) if situation.whole else (False,):
        packing = _Packing(situation, rules, order, at_home=at_home)
        if packing.add(members):
            return packing
    return None


def first_fit_decreasing(
    situation: Situation,
    jobs: Sequence[int],
    rules: PlacementRules = NO_RULES,
    order: Decreasing = Decreasing.MEMORY,
    *,
    at_home: bool = False,
) -> tuple[int, ...] | None:
    """All machines of these jobs on nodes that are taken to be empty; None if there is no room. `at_home`:
    but for what runs and may stay where it is."""
    packing = _Packing(situation, rules, order, at_home=at_home)
    members = [number for job in jobs for number in situation.jobs[job]]
    return tuple(packing.hosts) if packing.add(members) else None
