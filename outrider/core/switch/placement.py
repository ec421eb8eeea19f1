"""Where machines run so that getting there costs little: a heuristic that is fast at any size.

Machines stay where they are; nodes that are overloaded let go of what is cheapest to move; states are
read where they lie; all else goes to the node on which the least is left afterwards, if possible
where there is room before anything has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from outrider.core.switch.cost import REMOTE_FACTOR
from outrider.core.switch.model import (
    NOWHERE,
    Amount,
    MachineStanding,
    Situation,
    Target,
    fits,
    plus,
    summed,
)
from outrider.core.switch.room import Allowed, Room
from outrider.core.switch.rules import NO_RULES, PlacementRules

MOST_EXACT = 10
"""Of so many machines on a node the cheapest to evict are found by trying all sets."""
MOST_TRIED = 40
"""So many nodes are looked at when room has to be made for a machine."""


def stopped_in(situation: Situation) -> frozenset[int]:
    return frozenset(
        number for number, standing in enumerate(situation.standings) if standing is MachineStanding.STOPPED
    )


def place(
    situation: Situation,
    jobs: Sequence[int],
    rules: PlacementRules = NO_RULES,
    *,
    stopped: frozenset[int] = frozenset(),
) -> Target | None:
    """A placement of the machines of these jobs; None if the heuristic finds none."""
    return _Placer(situation, jobs, rules, stopped).place()


class _Placer:
    def __init__(
        self, situation: Situation, jobs: Sequence[int], rules: PlacementRules, stopped: frozenset[int]
    ) -> None:
        self._situation = situation
        self._machines = situation.machines
        self._rules = rules
        self._stopped = stopped | stopped_in(situation)
        self._jobs = jobs
        members = (number for job in jobs for number in situation.jobs[job])
        self._wanted = frozenset(number for number in members if number not in self._stopped)
        self._resources = len(situation.nodes[0].capacity)
        self._hosts = [NOWHERE] * len(self._machines)
        self._on: list[set[int]] = [set() for _ in situation.nodes]
        """By node, what is to run there."""
        self._now = Room(situation.free, rules.closed)
        """Room before anything has left."""
        self._end = Room([node.capacity for node in situation.nodes], rules.closed)
        self._delay = 0
        """What it costs an action to wait for the first stage."""

    def place(self) -> Target | None:
        movers = self._stay()
        meant = self._wanted | self._stopped
        leaving = [
            number
            for number, standing in enumerate(self._situation.standings)
            if standing is MachineStanding.RUNNING and number not in meant
        ]
        self._delay = max((self._machines[number].memory for number in (*movers, *leaving)), default=0)
        units = self._gathered()
        together = {number for unit in units for number in unit}
        for unit in units:
            if not self._put_together(unit):
                return None
        for members in self._sleepers(together):
            if not self._resume(members):
                return None
        for leaving_together in self._leaving_whole(movers):
            if not self._put_whole(leaving_together):
                return None
        rest = [number for number in movers if number not in together and self._hosts[number] == NOWHERE]
        rest.sort(key=self._largest_first)
        waiting = [number for number in self._wanted - together if self._is(number, MachineStanding.WAITING)]
        waiting.sort(key=self._largest_first)
        if not all(self._put_anywhere(number) for number in (*rest, *waiting)):
            return None
        return Target(hosts=tuple(self._hosts), stopped=self._stopped)

    def _is(self, number: int, standing: MachineStanding) -> bool:
        return self._situation.standings[number] is standing

    def _largest_first(self, number: int) -> tuple[object, ...]:
        return (*(-amount for amount in self._machines[number].demand), number)

    def _stay(self) -> list[int]:
        """Leave what runs where it is, if nodes bear it and rules allow it. What has to move is returned."""
        movers: list[int] = []
        by_node: dict[int, list[int]] = {}
        for number in sorted(self._wanted):
            if self._is(number, MachineStanding.RUNNING):
                node = self._situation.hosts[number]
                if self._rules.allows(number, node):
                    by_node.setdefault(node, []).append(number)
                else:
                    movers.append(number)
        apart = self._too_close()
        for node, numbers in by_node.items():
            evicted = [number for number in numbers if number in apart]
            staying = [number for number in numbers if number not in apart]
            evicted += self._cheapest_out(node, staying, (0,) * self._resources)
            movers += evicted
            for number in numbers:
                if number not in evicted:
                    self._settle(number, node)
        return movers

    def _too_close(self) -> set[int]:
        """Machines that run beside others of their group, which are to be apart: all but the costliest."""
        found: set[int] = set()
        for group in self._rules.spread:
            first: dict[int, int] = {}
            running = [n for n in group if n in self._wanted and self._is(n, MachineStanding.RUNNING)]
            for number in sorted(running, key=lambda n: (n not in self._rules.keep, self._largest_first(n))):
                node = self._situation.hosts[number]
                if node in first:
                    found.add(number)
                first.setdefault(node, number)
        return found

    def _cheapest_out(self, node: int, numbers: Sequence[int], more: Amount) -> list[int]:
        """Machines of the least memory without which the others, and `more` beside them, fit on a node."""
        capacity = self._situation.nodes[node].capacity
        total = plus(more, summed((self._machines[number].demand for number in numbers), self._resources))
        over = tuple(max(0, used - size) for used, size in zip(total, capacity, strict=True))
        if not any(over):
            return []
        movable = [number for number in numbers if number not in self._rules.keep]
        movable.sort(key=lambda number: (self._moved_memory(number), number))
        if len(movable) > MOST_EXACT:
            return self._greedily_out(movable, over)
        best: tuple[int, tuple[int, ...]] | None = None
        for count in range(1, len(movable) + 1):
            for chosen in combinations(movable, count):
                cost = sum(self._moved_memory(number) for number in chosen)
                is_cheaper = best is None or cost < best[0]
                if is_cheaper and self._frees(chosen, over):
                    best = (cost, chosen)
        return list(movable if best is None else best[1])

    def _moved_memory(self, number: int) -> int:
        """What is saved and read if it goes: of a job that moves whole, all machines."""
        if not self._situation.is_whole(number):
            return self._machines[number].memory
        members = self._situation.jobs[self._machines[number].job]
        return sum(self._machines[each].memory for each in members)

    def _leaving_whole(self, movers: Iterable[int]) -> list[tuple[int, ...]]:
        """By job that moves whole, its machines that have to leave their nodes; the largest jobs first."""
        found: dict[int, list[int]] = {}
        for number in movers:
            if self._situation.is_whole(number):
                found.setdefault(self._machines[number].job, []).append(number)
        groups = [tuple(sorted(each)) for each in found.values()]
        return sorted(groups, key=lambda group: (-self._moved_memory(group[0]), group))

    def _put_whole(self, leaving: Sequence[int]) -> bool:
        """Put those that have to leave; if that cannot be, those that could stay leave with them, one after
        the other. What stays costs as much as what moves, but for what is carried."""
        members = self._situation.jobs[self._machines[leaving[0]].job]
        out, staying = list(leaving), [each for each in members if self._hosts[each] != NOWHERE]
        while True:
            for room in (self._now, self._end):
                if self._try(sorted(out), room) or self._try(sorted(out), room, first=True):
                    return True
            going = next((each for each in staying if each not in self._rules.keep), None)
            if going is None:
                break
            staying.remove(going)
            self._unsettle(going)
            out.append(going)
        return all(map(self._put_anywhere, sorted(out)))

    def _greedily_out(self, movable: Sequence[int], over: Amount) -> list[int]:
        """One after the other, the smallest first, and then back what need not have gone."""
        out: list[int] = []
        for number in movable:
            demand = self._machines[number].demand
            if any(amount and wanted for amount, wanted in zip(demand, over, strict=True)):
                out.append(number)
            if self._frees(out, over):
                break
        for number in reversed(out[:]):
            rest = [each for each in out if each != number]
            if self._frees(rest, over):
                out = rest
        return out

    def _frees(self, numbers: Iterable[int], over: Amount) -> bool:
        freed = summed((self._machines[number].demand for number in numbers), self._resources)
        return all(amount >= wanted for amount, wanted in zip(freed, over, strict=True))

    def _settle(self, number: int, node: int) -> None:
        """It runs there in the end; its room there is its own already if it runs there now."""
        demand = self._machines[number].demand
        self._hosts[number] = node
        self._on[node].add(number)
        self._end.take(node, demand)
        if not (self._is(number, MachineStanding.RUNNING) and self._situation.hosts[number] == node):
            self._now.take(node, demand)

    def _unsettle(self, number: int) -> None:
        node, demand = self._hosts[number], self._machines[number].demand
        self._hosts[number] = NOWHERE
        self._on[node].discard(number)
        self._end.give(node, demand)
        if not (self._is(number, MachineStanding.RUNNING) and self._situation.hosts[number] == node):
            self._now.give(node, demand)

    def _allowed(self, number: int) -> Allowed | None:
        rules, situation, hosts = self._rules, self._situation, self._hosts
        is_whole = situation.is_whole(number)
        if rules.is_empty and not is_whole:
            return None
        near = {hosts[each] for group in rules.spread if number in group for each in group if each != number}

        def allowed(node: int) -> bool:
            is_apart = node not in near and rules.allows(number, node)
            return is_apart and (not is_whole or situation.suits(number, node, hosts))

        return allowed

    def _may(self, number: int, node: int) -> bool:
        allowed = self._allowed(number)
        return node not in self._rules.closed and (allowed is None or allowed(node))

    def _sleepers(self, together: set[int]) -> list[list[int]]:
        """By job, the machines that are resumed; jobs with the most memory first."""
        found = []
        for job in self._jobs:
            members = [
                number
                for number in self._situation.jobs[job]
                if number in self._wanted
                and self._is(number, MachineStanding.SLEEPING)
                and number not in together
            ]
            if members:
                found.append(sorted(members, key=self._largest_first))
        found.sort(key=lambda members: -sum(self._machines[number].memory for number in members))
        return found

    def _resume(self, members: Sequence[int]) -> bool:
        """A job's machines: at once, if what that costs in states that are moved is less than to wait."""
        at_once = self._try(members, self._now)
        moved = self._moved(members) if at_once else 0
        if at_once and not moved:
            return True
        hosts = [self._hosts[number] for number in members]
        for number in members if at_once else ():
            self._unsettle(number)
        if self._try(members, self._end):
            if not at_once or self._moved(members) + self._delay * len(members) < moved:
                return True
            for number in members:
                self._unsettle(number)
        if at_once:
            for number, node in zip(members, hosts, strict=True):
                self._settle(number, node)
            return True
        return all(self._put_anywhere(number) for number in members)

    def _moved(self, members: Iterable[int]) -> int:
        """What it costs beyond reading every state where it lies."""
        return sum(
            (REMOTE_FACTOR - 1) * self._machines[number].memory
            for number in members
            if self._hosts[number] != self._situation.hosts[number]
        )

    def _try(self, members: Iterable[int], room: Room, *, first: bool = False) -> bool:
        """Each where its state lies or where it fits best, or on the first node, in this room; or none."""
        put: list[int] = []
        for number in members:
            demand, home = self._machines[number].demand, self._situation.hosts[number]
            is_asleep = self._is(number, MachineStanding.SLEEPING)
            is_home = is_asleep and all(each.has(home, demand) for each in (room, self._end))
            if is_home and self._may(number, home):
                node = home
            else:
                node = room.first(demand, self._suitable(number, room)) if first else self._best(number, room)
            if node == NOWHERE:
                for each in put:
                    self._unsettle(each)
                return False
            self._settle(number, node)
            put.append(number)
        return True

    def _best(self, number: int, room: Room) -> int:
        """The node with room on which the least is left; one that has its image before all others."""
        machine, allowed = self._machines[number], self._suitable(number, room)
        if machine.image:
            has_image = self._both(allowed, lambda node: self._will_have(node, machine.image))
            node = room.tightest(machine.demand, has_image)
            if node != NOWHERE:
                return node
        return room.tightest(machine.demand, allowed)

    def _suitable(self, number: int, room: Room) -> Allowed | None:
        allowed, demand = self._allowed(number), self._machines[number].demand
        if room is not self._now:
            return allowed
        # What has room now has it in the end, but for what settled where others leave.
        return self._both(allowed, lambda node: self._end.has(node, demand))

    def _will_have(self, node: int, image: str) -> bool:
        """Whether an image is there, or comes for another machine of the plan."""
        there = image in self._situation.nodes[node].images
        return there or any(self._machines[number].image == image for number in self._on[node])

    @staticmethod
    def _both(one: Allowed | None, other: Allowed) -> Allowed:
        return other if one is None else lambda node: one(node) and other(node)

    def _put_anywhere(self, number: int) -> bool:
        """Where there is room now, or in the end, or can be made."""
        for room in (self._now, self._end):
            node = self._best(number, room)
            if node != NOWHERE:
                self._settle(number, node)
                return True
        return self._make_room(number)

    def _make_room(self, number: int) -> bool:
        """Move others away from a node, the cheapest first, so that it fits there."""
        demand = self._machines[number].demand
        open_nodes = [node for node in range(len(self._on)) if self._may(number, node)]
        missing = {
            node: sum(max(0, want - left) for want, left in zip(demand, self._end.free[node], strict=True))
            for node in open_nodes
            if fits(demand, self._situation.nodes[node].capacity)
        }
        for node in sorted(missing, key=lambda node: (missing[node], node))[:MOST_TRIED]:
            out = self._cheapest_out(node, sorted(self._on[node]), demand)
            for each in out:
                self._unsettle(each)
            if self._end.has(node, demand):
                self._settle(number, node)
                if self._put_out(out):
                    return True
                self._unsettle(number)
            for each in out:
                self._settle(each, node)
        return False

    def _put_out(self, numbers: Sequence[int]) -> bool:
        """Those that were moved away, elsewhere; or none of them."""
        put: list[int] = []
        for number in sorted(numbers, key=self._largest_first):
            node = self._best(number, self._end)
            if node == NOWHERE:
                for each in put:
                    self._unsettle(each)
                return False
            self._settle(number, node)
            put.append(number)
        return True

    def _gathered(self) -> list[tuple[int, ...]]:
        """Machines that are to be on one node and are not: all of them are put anew."""
        found = []
        for group in self._rules.gather:
            unit = tuple(sorted(number for number in group if number in self._wanted))
            places = {self._hosts[number] for number in unit}
            if unit and (len(places) > 1 or NOWHERE in places):
                found.append(unit)
        return found

    def _put_together(self, unit: Sequence[int]) -> bool:
        """On the node where most of their memory is already, or the first that takes them."""
        at = {number: self._hosts[number] for number in unit if self._hosts[number] != NOWHERE}
        kept = {node for number, node in at.items() if number in self._rules.keep}
        for number in at:
            self._unsettle(number)
        demand = summed((self._machines[number].demand for number in unit), self._resources)
        weight: dict[int, int] = {}
        for number, node in at.items():
            weight[node] = weight.get(node, 0) + self._machines[number].memory
        nodes = sorted(range(len(self._on)), key=lambda node: (-weight.get(node, 0), node))
        for node in nodes:
            is_allowed = (not kept or kept == {node}) and all(self._may(number, node) for number in unit)
            if is_allowed and self._end.has(node, demand):
                for number in unit:
                    self._settle(number, node)
                return True
        return False
