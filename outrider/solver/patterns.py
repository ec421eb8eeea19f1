"""Placements of thousands of nodes by patterns, and below what no placement's cost can be.

Nodes on which the same sizes of machines run and sleep, with the same room, are of one kind. A pattern
says of one node of a kind what becomes of its own machines and how many of each size come. Which
patterns are worth having is found by their prices: a linear programme shares the nodes of each kind
among the patterns known so far, its dual values are what a machine's place is worth, and each kind's
best pattern at these prices joins. At any prices the best patterns together are a lower bound.

Costs are those of `placement`. What waits for the end of the first stage pays what that takes, which is
the cost of its longest action: so every such cost is tried, with no longer action in the first stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd

import numpy as np
import numpy.typing as npt
from ortools.linear_solver import pywraplp

from outrider.core.switch.cost import REMOTE_FACTOR
from outrider.core.switch.model import (
    NOWHERE,
    Amount,
    MachineStanding,
    Situation,
    Target,
    fits,
    minus,
    plus,
)
from outrider.core.switch.placement import stopped_in
from outrider.core.switch.room import Room

MOST_ROUNDS = 60
CLOSE = 1e-4
"""The prices are good enough when the bound is so near to the programme's value, as a part of it."""
DEAR = 1e6
"""What a place costs that no pattern gives: more than any, and not so much that sums lose digits."""

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What nodes have in common: capacity, what is free, and sizes of machines that run or sleep there."""

    capacity: Amount
    free: Amount
    running: tuple[Amount, ...]
    sleeping: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of a node's own machines. Of each size: how many are read where they lie, at once and
    later; stay; leave at once; leave later."""

    home: tuple[tuple[Amount, int, int], ...]
    stay: tuple[tuple[Amount, int], ...]
    cost: int
    away: tuple[int, ...]
    away_later: tuple[int, ...]
    early: Amount
    final: Amount


@dataclass(frozen=True, slots=True)
class Pattern:
    """A choice, and how many of each size come at once and later."""

    choice: Choice
    come: tuple[int, ...]
    come_later: tuple[int, ...]


def by_patterns(
    situation: Situation, jobs: Sequence[int], stopped: frozenset[int]
) -> tuple[int, list[Target]]:
    """A bound on the cost of every placement of these jobs' machines, and placements near it."""
    members = {n for job in jobs for n in situation.jobs[job]} - stopped - stopped_in(situation)
    machines, standings = situation.machines, situation.standings
    longest, costs = 0, set[int]()
    for number, standing in enumerate(standings):
        memory = machines[number].memory
        if standing is MachineStanding.RUNNING and number not in stopped:
            longest = longest if number in members else max(longest, memory)
            costs.add(memory)
        elif standing is MachineStanding.SLEEPING and number in members:
            costs |= {memory, REMOTE_FACTOR * memory}
    levels = sorted({longest, *(cost for cost in costs if cost > longest)} - {0}) or [0]
    found = [Patterns(situation, jobs, stopped, level).solve() for level in levels]
    return min(bound for bound, _ in found), [target for _, target in found if target is not None]


class Patterns:
    """One situation's nodes by kind, and the search for patterns and prices, if no action of the first
    stage costs more than `longest`."""

    def __init__(
        self, situation: Situation, jobs: Sequence[int], stopped: frozenset[int], longest: int
    ) -> None:
        self._delay = longest
        self._situation = situation
        self._stopped = stopped | stopped_in(situation)
        members = {n for job in jobs for n in situation.jobs[job]} - self._stopped
        self._wanted = members
        self._sizes = sorted({situation.machines[n].demand for n in members})
        self._number = {size: number for number, size in enumerate(self._sizes)}
        self._waiting = [n for n in sorted(members) if self._is(n, MachineStanding.WAITING)]
        counted = Counter(situation.machines[n].demand for n in self._waiting)
        self._waits = np.array([counted[size] for size in self._sizes], dtype=np.float64)
        leaving = [
            situation.machines[n].memory
            for n, standing in enumerate(situation.standings)
            if standing is MachineStanding.RUNNING and n not in members | self._stopped
        ]
        self._suspended = sum(leaving)
        self._by_kind = self._kinds()
        self._choices = [list(self._choices_of(kind)) for kind in self._by_kind]
        self._tables()

    def _is(self, number: int, standing: MachineStanding) -> bool:
        return self._situation.standings[number] is standing

    def _kinds(self) -> dict[NodeKind, list[int]]:
        nodes = self._situation.nodes
        running: list[list[Amount]] = [[] for _ in nodes]
        sleeping: list[list[Amount]] = [[] for _ in nodes]
        for number in sorted(self._wanted):
            host, demand = self._situation.hosts[number], self._situation.machines[number].demand
            if self._is(number, MachineStanding.RUNNING):
                running[host].append(demand)
            elif self._is(number, MachineStanding.SLEEPING):
                sleeping[host].append(demand)
        found: dict[NodeKind, list[int]] = {}
        free = self._situation.free
        for node, each in enumerate(nodes):
            room = tuple(max(0, left) for left in free[node])
            own = (tuple(sorted(running[node])), tuple(sorted(sleeping[node])))
            found.setdefault(NodeKind(each.capacity, room, *own), []).append(node)
        return found

    def _choices_of(self, kind: NodeKind) -> Iterator[Choice]:
        """Every way for a node's own machines that fits."""
        groups: list[list[tuple[bool, Amount, int, int, int, int]]] = []
        for size, count in Counter(kind.sleeping).items():
            # At home at once, at home later, away at once; the rest is away later.
            groups.append([(True, size, count, *each) for each in _shares(count)])
        for size, count in Counter(kind.running).items():
            groups.append([(False, size, count, *each) for each in _shares(count) if not each[2]])
        zero = (0,) * len(kind.capacity)
        for ways in product(*groups):
            early, final, cost = zero, zero, 0
            away, later = [0] * len(self._sizes), [0] * len(self._sizes)
            home: list[tuple[Amount, int, int]] = []
            stay: list[tuple[Amount, int]] = []
            for is_asleep, size, count, first, second, third in ways:
                number, memory = self._number[size], size[0]
                if is_asleep:
                    rest = count - first - second - third
                    if (first and memory > self._delay) or (third and REMOTE_FACTOR * memory > self._delay):
                        break
                    home.append((size, first, second))
                    early, final = _more(early, size, first), _more(final, size, first + second)
                    away[number] += third
                    later[number] += rest
                    cost += memory * (first + second + REMOTE_FACTOR * (third + rest))
                    cost += self._delay * (second + rest)
                else:
                    rest = count - first - second
                    if second and memory > self._delay:
                        break
                    stay.append((size, first))
                    final = _more(final, size, first)
                    away[number] += second
                    later[number] += rest
                    cost += memory * (second + rest) + self._delay * rest
            else:
                if fits(early, kind.free) and fits(final, kind.capacity):
                    yield Choice(
                        tuple(home), tuple(stay), cost, tuple(away), tuple(later),
                        minus(kind.free, early), minus(kind.capacity, final),
                    )  # fmt: skip

    def _tables(self) -> None:
        """All choices as arrays, so that a round looks at them at once."""
        rows = [choice for choices in self._choices for choice in choices]
        rooms = {(choice.early, choice.final): 0 for choice in rows}
        self._rooms = list(rooms)
        place = {room: number for number, room in enumerate(self._rooms)}
        self._cost = np.array([choice.cost for choice in rows], dtype=np.float64)
        self._away = np.array([choice.away for choice in rows], dtype=np.float64)
        self._later = np.array([choice.away_later for choice in rows], dtype=np.float64)
        self._room_of = np.array([place[choice.early, choice.final] for choice in rows], dtype=np.int64)
        counts = [len(choices) for choices in self._choices]
        self._first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
        self._count = np.array([len(nodes) for nodes in self._by_kind.values()], dtype=np.float64)
        self._units = tuple(
            gcd(
                *(size[resource] for size in self._sizes),
                *(kind.capacity[resource] for kind in self._by_kind),
            )
            or 1
            for resource in range(len(self._situation.nodes[0].capacity))
        )

    def solve(self) -> tuple[int, Target | None]:
        """A bound on the cost of every placement, and a placement near it."""
        master = _Master(self._count, self._waits, self._delay)
        kinds = range(len(self._by_kind))
        best = 0.0
        for _ in range(MOST_ROUNDS):
            found = master.solve()
            if found is None:
                break
            value, prices, later_prices = found
            chosen, worths, arrivals = self._best_at(prices, later_prices)
            waits = self._waits @ np.minimum(prices, later_prices + self._delay)
            best = max(best, float(self._count @ worths + waits))
            if value - best <= CLOSE * max(1.0, value):
                break
            for kind in kinds:
                choice = self._choices[kind][chosen[kind]]
                come, come_later = arrivals[self._room_of[self._first[kind] + chosen[kind]]]
                master.add(kind, Pattern(choice, come, come_later))
        return self._suspended + int(np.ceil(best - 1e-6)), self._target(master.shares())

    def _best_at(
        self, prices: Floats, later_prices: Floats
    ) -> tuple[list[int], Floats, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
        """Of each kind the cheapest choice, what it costs, and by room what comes into it."""
        earned, arrivals = self._arrivals(prices, later_prices)
        worth = self._cost + self._away @ prices + self._later @ later_prices - earned[self._room_of]
        chosen, worths = [], []
        for kind, first in enumerate(self._first):
            own = worth[first : first + len(self._choices[kind])]
            number = int(np.argmin(own))
            chosen.append(number)
            worths.append(own[number])
        return chosen, np.array(worths), arrivals

    def _arrivals(
        self, prices: Floats, later_prices: Floats
    ) -> tuple[Floats, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
        """By pair of rooms, at once and in the end, what fills them best."""
        now, later = self._knapsack(prices), self._knapsack(later_prices)
        earned, arrivals = [], []
        for early, final in self._rooms:
            most = tuple(min(one, other) for one, other in zip(early, final, strict=True))
            best = (-1.0, (0,) * len(final))
            for used in product(
                *(range(0, size + 1, unit) for size, unit in zip(most, self._units, strict=True))
            ):
                value = now[used][0] + later[self._grid(minus(final, used))][0]
                if value > best[0] + 1e-9:
                    best = (value, used)
            earned.append(best[0])
            arrivals.append((now[best[1]][1], later[self._grid(minus(final, best[1]))][1]))
        return np.array(earned), arrivals

    def _grid(self, room: Amount) -> Amount:
        return tuple(left - left % unit for left, unit in zip(room, self._units, strict=True))

    def _knapsack(self, prices: Floats) -> dict[Amount, tuple[float, tuple[int, ...]]]:
        """By room, the most that machines in it are worth, and how many of each size those are."""
        resources = range(len(self._units))
        most = [max(kind.capacity[resource] for kind in self._by_kind) for resource in resources]
        nothing = (0.0, (0,) * len(self._sizes))
        found: dict[Amount, tuple[float, tuple[int, ...]]] = {}
        worth = [(float(price), size) for price, size in zip(prices, self._sizes, strict=True)]
        for room in product(*(range(0, most[resource] + 1, self._units[resource]) for resource in resources)):
            best = nothing
            for number, (price, size) in enumerate(worth):
                if price <= 0 or not all(amount <= left for amount, left in zip(size, room, strict=True)):
                    continue
                value, counts = found[minus(room, size)]
                if value + price > best[0] + 1e-9:
                    best = (
                        value + price,
                        (*counts[:number], counts[number] + 1, *counts[number + 1 :]),
                    )
            found[room] = best
        return found

    def _target(self, shares: Sequence[Sequence[tuple[Pattern, float]]]) -> Target | None:
        """Whole nodes for the patterns, and then a place for everybody."""
        hosts = [NOWHERE] * len(self._situation.machines)
        places: dict[tuple[int, bool], list[int]] = {}
        own = self._own()
        for nodes, patterns in zip(self._by_kind.values(), shares, strict=True):
            for node, pattern in zip(nodes, _rounded(patterns, len(nodes)), strict=False):
                for is_late, come in ((False, pattern.come), (True, pattern.come_later)):
                    for number, count in enumerate(come):
                        places.setdefault((number, is_late), []).extend([node] * count)
                kept = [(MachineStanding.SLEEPING, size, one + two) for size, one, two in pattern.choice.home]
                kept += [(MachineStanding.RUNNING, size, count) for size, count in pattern.choice.stay]
                for standing, size, count in kept:
                    for machine in own[node, standing, size][:count]:
                        hosts[machine] = node
        return self._settled(hosts, places)

    def _own(self) -> dict[tuple[int, MachineStanding, Amount], list[int]]:
        found: dict[tuple[int, MachineStanding, Amount], list[int]] = {}
        for number in sorted(self._wanted):
            key = (self._situation.hosts[number], self._situation.standings[number])
            found.setdefault((*key, self._situation.machines[number].demand), []).append(number)
        return found

    def _settled(self, hosts: list[int], places: dict[tuple[int, bool], list[int]]) -> Target | None:
        """The others where patterns have a place for their size, or where they fit best."""
        machines = self._situation.machines
        end = Room(node.capacity for node in self._situation.nodes)
        now = Room(self._situation.free)
        for number, host in enumerate(hosts):
            if host != NOWHERE:
                end.take(host, machines[number].demand)
                if not self._is(number, MachineStanding.RUNNING):
                    now.take(host, machines[number].demand)
        rest = [number for number in sorted(self._wanted) if hosts[number] == NOWHERE]
        rest.sort(key=lambda number: tuple(-amount for amount in machines[number].demand))
        for is_planned in (True, False):
            for number in rest:
                demand = machines[number].demand
                if hosts[number] != NOWHERE:
                    continue
                if is_planned:
                    node = _next(places, self._number[demand], end, demand)
                else:
                    node = now.tightest(demand, lambda each, demand=demand: end.has(each, demand))  # type: ignore[misc]
                    node = end.tightest(demand) if node == NOWHERE else node
                    if node == NOWHERE:
                        return None
                if node != NOWHERE:
                    hosts[number] = node
                    end.take(node, demand)
                    now.take(node, demand)
        return Target(hosts=tuple(hosts), stopped=self._stopped)


class _Master:
    """The linear programme: nodes of each kind are shared among patterns, and who leaves has a place."""

    def __init__(self, counts: Floats, waits: Floats, delay: int) -> None:
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._waits, self._delay = waits, delay
        infinity = self._solver.infinity()
        self._objective = self._solver.Objective()
        self._kinds = [self._solver.Constraint(float(count), float(count)) for count in counts]
        # What comes is at least what leaves elsewhere and what is started.
        self._now = [self._solver.Constraint(0.0, infinity) for _ in waits]
        self._later = [self._solver.Constraint(float(count), infinity) for count in waits]
        for number, count in enumerate(waits):
            started = self._solver.NumVar(0.0, float(count), "")
            self._now[number].SetCoefficient(started, -1.0)
            self._later[number].SetCoefficient(started, 1.0)
            self._objective.SetCoefficient(started, -float(delay))
        for row in (*self._kinds, *self._now, *self._later):
            missing = self._solver.NumVar(0.0, infinity, "")
            row.SetCoefficient(missing, 1.0)
            self._objective.SetCoefficient(missing, DEAR)
        self._objective.SetMinimization()
        self._columns: list[tuple[int, Pattern, pywraplp.Variable]] = []
        self._known: set[tuple[int, Pattern]] = set()

    def add(self, kind: int, pattern: Pattern) -> None:
        if (kind, pattern) in self._known:
            return
        self._known.add((kind, pattern))
        column = self._solver.NumVar(0.0, self._solver.infinity(), "")
        choice = pattern.choice
        self._kinds[kind].SetCoefficient(column, 1.0)
        self._objective.SetCoefficient(column, float(choice.cost))
        for rows, come, away in (
            (self._now, pattern.come, choice.away),
            (self._later, pattern.come_later, choice.away_later),
        ):
            for row, arriving, leaving in zip(rows, come, away, strict=True):
                if arriving != leaving:
                    row.SetCoefficient(column, float(arriving - leaving))
        self._columns.append((kind, pattern, column))

    def solve(self) -> tuple[float, Floats, Floats] | None:
        """The value, and what a place of each size is worth, at once and later; None if it found none."""
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            self._is_solved = False
            return None
        self._is_solved = True
        value = self._objective.Value() + self._delay * float(self._waits.sum())
        prices = np.array([max(0.0, row.dual_value()) for row in self._now])
        return value, prices, np.array([max(0.0, row.dual_value()) for row in self._later])

    def shares(self) -> list[list[tuple[Pattern, float]]]:
        found: list[list[tuple[Pattern, float]]] = [[] for _ in self._kinds]
        for kind, pattern, column in self._columns if self._is_solved else ():
            if column.solution_value() > 1e-9:
                found[kind].append((pattern, column.solution_value()))
        return found


def _next(places: dict[tuple[int, bool], list[int]], number: int, end: Room, demand: Amount) -> int:
    """A node where a pattern has a place for this size; places at once first."""
    for is_late in (False, True):
        nodes = places.get((number, is_late), [])
        while nodes:
            node = nodes.pop()
            if end.has(node, demand):
                return node
    return NOWHERE


def _rounded(patterns: Sequence[tuple[Pattern, float]], count: int) -> list[Pattern]:
    """So many patterns, by their shares: whole parts first, then the largest rests."""
    found = [pattern for pattern, share in patterns for _ in range(int(share + 1e-9))]
    rests = sorted(patterns, key=lambda each: each[1] - int(each[1] + 1e-9), reverse=True)
    return [*found, *(pattern for pattern, _ in rests)][:count]


def _shares(count: int) -> Iterator[tuple[int, int, int]]:
    """Every way to give at most `count` to three parts."""
    for first in range(count + 1):
        for second in range(count + 1 - first):
            for third in range(count + 1 - first - second):
                yield first, second, third


def _more(amount: Amount, size: Amount, count: int) -> Amount:
    return plus(amount, tuple(each * count for each in size))
