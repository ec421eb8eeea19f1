"""Better placements for a switch by OR-tools: first by patterns, then by CP-SAT where a gap is left.

Machines that have to go somewhere are not told apart by node: what counts is how many of each size a
node takes. Each machine of the model is only said to stay, to be moved at once, or to be moved when
others have left; what waits costs as much as the first stage takes. The loose form lets it go wherever
there is room in the end: where a plan then needs three stages, or a step aside, its cost is higher than
the model's, never lower, so that its bound holds for every plan in which each machine does no more than
its own action. The strict form is for what the loose one finds and nobody can carry out at that cost:
what waits has to fit when only the first stage is over.

The effort is counted in the solver's own deterministic units, so that the same situation gives the
same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from outrider.core.switch.cost import REMOTE_FACTOR, sum_cost
from outrider.core.switch.model import NOWHERE, Amount, MachineStanding, Situation, Target, fits
from outrider.core.switch.placement import stopped_in
from outrider.core.switch.planner import Improve, Improved
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.stages import plan_stages
from outrider.solver.patterns import by_patterns

DEFAULT_EFFORT = 10.0
"""Deterministic time: about as many seconds on a machine of today."""

MOST_NODES = 1500
"""On more of them the model would not be solved in the time; patterns are what there is."""
AT_ONCE, LATER = 0, 1


def improver(effort: float = DEFAULT_EFFORT, seconds: float | None = None, workers: int = 1) -> Improve:
    """A solver with this effort. `seconds` ends it by the clock, too; then answers are not repeatable."""

    def improve(situation: Situation, jobs: Sequence[int], rules: PlacementRules, hint: Target) -> Improved:
        if not rules.is_empty or situation.whole:
            # What the model does not know could not be kept.
            return Improved(target=None, bound=0)
        bound, targets = by_patterns(situation, jobs, hint.stopped)
        best = min((hint, *targets), key=lambda target: _cost(situation, target))
        if _cost(situation, best) <= bound or len(situation.nodes) > MOST_NODES:
            return Improved(target=best, bound=bound)
        found = [best]
        for is_strict in (False, True):
            solved = _Model(situation, jobs, best, is_strict=is_strict).solve(effort, seconds, workers)
            # What the strict form proves holds for plans of two stages alone.
            bound = bound if is_strict else max(bound, solved.bound)
            found += [] if solved.target is None else [solved.target]
            best = min(found, key=lambda target: _cost(situation, target))
            if solved.target is None or _cost(situation, best) <= bound:
                break
        return Improved(target=best, bound=bound)

    return improve


@dataclass(frozen=True, slots=True)
class _Ways:
    """What one machine may do. `stay`: go on where it is, or be read where it lies."""

    stay: tuple[cp_model.IntVar, cp_model.IntVar | None]
    move: tuple[cp_model.IntVar, cp_model.IntVar]


class _Model:
    def __init__(
        self, situation: Situation, jobs: Sequence[int], hint: Target, *, is_strict: bool = False
    ) -> None:
        self._is_strict = is_strict
        self._situation = situation
        self._machines = situation.machines
        self._jobs = jobs
        self._hint = hint
        self._stopped = hint.stopped | stopped_in(situation)
        self._model = cp_model.CpModel()
        members = [number for job in jobs for number in situation.jobs[job] if number not in self._stopped]
        self._running = [n for n in members if situation.standings[n] is MachineStanding.RUNNING]
        self._sleeping = [n for n in members if situation.standings[n] is MachineStanding.SLEEPING]
        self._waiting = [n for n in members if situation.standings[n] is MachineStanding.WAITING]
        wanted = set(members)
        self._suspended = [
            number
            for number, standing in enumerate(situation.standings)
            if standing is MachineStanding.RUNNING and number not in wanted | self._stopped
        ]
        self._ways: dict[int, _Ways] = {}
        self._into: dict[tuple[int, Amount, int], cp_model.IntVar] = {}
        """By node, size and when: how many machines that were elsewhere come."""
        self._free = situation.free
        self._build()

    def _build(self) -> None:
        self._add_machines()
        self._add_arrivals()
        self._add_rooms()
        self._add_costs()
        self._add_hint()

    def _bool(self, name: str) -> cp_model.IntVar:
        return self._model.new_bool_var(name)

    def _add_machines(self) -> None:
        model = self._model
        for number in self._running:
            ways = _Ways(
                (self._bool(f"stay{number}"), None), (self._bool(f"a{number}"), self._bool(f"b{number}"))
            )
            self._ways[number] = ways
            model.add_exactly_one(ways.stay[0], *ways.move)
        for job in self._jobs:
            members = [number for number in self._situation.jobs[job] if number in set(self._sleeping)]
            late = self._bool(f"late{job}") if members else None
            for number in members:
                stay = (self._bool(f"home{number}"), self._bool(f"homelater{number}"))
                move = (self._bool(f"a{number}"), self._bool(f"b{number}"))
                self._ways[number] = _Ways(stay, move)
                model.add_exactly_one(*stay, *move)
                assert late is not None
                model.add(stay[1] + move[1] == late)

    def _sizes(self) -> list[Amount]:
        numbers = (*self._running, *self._sleeping, *self._waiting)
        return sorted({self._machines[number].demand for number in numbers})

    def _add_arrivals(self) -> None:
        model = self._model
        waiting: dict[Amount, int] = {}
        for number in self._waiting:
            demand = self._machines[number].demand
            waiting[demand] = waiting.get(demand, 0) + 1
        self._begun = {
            size: (model.new_int_var(0, count, f"run{size}"), count) for size, count in waiting.items()
        }
        for size in self._sizes():
            for when in (AT_ONCE, LATER):
                came = []
                for node, capacity in enumerate(each.capacity for each in self._situation.nodes):
                    room = self._free[node] if when == AT_ONCE else capacity
                    most = _most(size, room)
                    if most:
                        count = model.new_int_var(0, most, f"in{node},{size},{when}")
                        self._into[node, size, when] = count
                        came.append(count)
                moved = [
                    self._ways[number].move[when]
                    for number in (*self._running, *self._sleeping)
                    if self._machines[number].demand == size
                ]
                run: list[cp_model.LinearExprT] = []
                if size in self._begun:
                    begun, waiting_count = self._begun[size]
                    run = [begun if when == AT_ONCE else waiting_count - begun]
                model.add(_sum(came) == _sum([*moved, *run]))

    def _add_rooms(self) -> None:
        """Every node has room for what comes at once beside all that is there, and in the end for all.

        In the strict form it has room for all while what leaves in the second stage is still there.
        """
        nodes = self._situation.nodes
        for resource in range(len(nodes[0].capacity)):
            early: list[list[cp_model.LinearExprT]] = [[] for _ in nodes]
            final: list[list[cp_model.LinearExprT]] = [[] for _ in nodes]
            for number, ways in self._ways.items():
                amount = self._machines[number].demand[resource]
                if not amount:
                    continue
                home = self._situation.hosts[number]
                final[home].append(amount * ways.stay[0])
                if ways.stay[1] is not None:
                    final[home].append(amount * ways.stay[1])
                    early[home].append(amount * ways.stay[0])
                elif self._is_strict:
                    final[home].append(amount * ways.move[LATER])
            for (node, size, when), count in self._into.items():
                if size[resource]:
                    final[node].append(size[resource] * count)
                    if when == AT_ONCE:
                        early[node].append(size[resource] * count)
            for node, each in enumerate(nodes):
                if early[node]:
                    self._model.add(_sum(early[node]) <= max(0, self._free[node][resource]))
                if final[node]:
                    self._model.add(_sum(final[node]) <= each.capacity[resource])

    def _add_costs(self) -> None:
        """Each machine's own cost, and that of the first stage for each that waits for its end."""
        model, own, first = self._model, [], []
        fixed = sum(self._machines[number].memory for number in self._suspended)
        longest = max((self._machines[number].memory for number in self._suspended), default=0)
        late: list[cp_model.LinearExprT] = []
        for number, ways in self._ways.items():
            memory = self._machines[number].memory
            is_asleep = ways.stay[1] is not None
            factor = REMOTE_FACTOR if is_asleep else 1
            own += [factor * memory * each for each in ways.move]
            first.append((factor * memory, ways.move[AT_ONCE]))
            late.append(ways.move[LATER])
            if is_asleep:
                own += [memory * each for each in ways.stay if each is not None]
                first.append((memory, ways.stay[0]))
                late.append(ways.stay[1])  # type: ignore[arg-type]
        late += [count - at_once for at_once, count in self._begun.values()]
        if not self._suspended:
            # If nothing leaves in the first stage, all that is feasible later is feasible at once.
            leaves = [self._ways[number].move[AT_ONCE] for number in self._running]
            waits_any = self._bool("waits_any")
            model.add(_sum(late) == 0).only_enforce_if(waits_any.negated())
            model.add_bool_or(*leaves, waits_any.negated())
        most_late = len(self._ways) + len(self._waiting)
        costs = sorted({longest, *(cost for cost, _ in first if cost > longest)})
        levels = [self._bool(f"longest{cost}") for cost in costs]
        model.add_exactly_one(levels)
        for cost, way in first:
            if cost > longest:
                # What costs that much is in the first stage only if that is said to take as long.
                allowed = [level for level, each in zip(levels, costs, strict=True) if each >= cost]
                model.add_bool_or(*allowed, way.negated())
        waits = model.new_int_var(0, costs[-1] * most_late, "waits")
        for level, cost in zip(levels, costs, strict=True):
            model.add(waits >= cost * _sum(late)).only_enforce_if(level)
        model.minimize(_sum([fixed, *own, waits]))

    def _add_hint(self) -> None:
        model, hosts = self._model, self._hint.hosts
        for number, ways in self._ways.items():
            is_home = hosts[number] == self._situation.hosts[number]
            model.add_hint(ways.stay[0], is_home)
            if not is_home:
                model.add_hint(
                    ways.move[AT_ONCE], fits(self._machines[number].demand, self._free[hosts[number]])
                )

    def solve(self, effort: float, seconds: float | None, workers: int) -> Improved:
        solver = cp_model.CpSolver()
        solver.parameters.max_deterministic_time = effort
        solver.parameters.num_workers = workers
        # Without the linear relaxation of everything, what machines share is seen much too late.
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = 1
        if seconds is not None:
            solver.parameters.max_time_in_seconds = seconds
        status = solver.solve(self._model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Improved(target=None, bound=0)
        bound = int(solver.best_objective_bound + 1 - 1e-6)
        return Improved(target=self._target(solver), bound=bound)

    def _target(self, solver: cp_model.CpSolver) -> Target:
        """Which machine of a size goes to which of the nodes that take some: one that was there, if any."""
        hosts = [NOWHERE] * len(self._machines)
        places: dict[tuple[Amount, int], list[int]] = {}
        for (node, size, when), count in self._into.items():
            places.setdefault((size, when), []).extend([node] * solver.value(count))
        coming: list[tuple[int, int]] = []
        for number, ways in self._ways.items():
            if any(each is not None and solver.value(each) for each in ways.stay):
                hosts[number] = self._situation.hosts[number]
            else:
                coming.append((number, AT_ONCE if solver.value(ways.move[AT_ONCE]) else LATER))
        started = {size: solver.value(at_once) for size, (at_once, _) in self._begun.items()}
        for number in self._waiting:
            size = self._machines[number].demand
            started[size] -= 1
            coming.append((number, AT_ONCE if started[size] >= 0 else LATER))
        for number, when in coming:
            nodes, home = places[self._machines[number].demand, when], self._situation.hosts[number]
            if home in nodes:
                nodes.remove(home)
                hosts[number] = home
        for number, when in coming:
            if hosts[number] == NOWHERE:
                hosts[number] = places[self._machines[number].demand, when].pop()
        return Target(hosts=tuple(hosts), stopped=self._stopped)


def _sum(terms: Sequence[cp_model.LinearExprT]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.sum(terms)


def _most(size: Amount, room: Amount) -> int:
    """How many of a size there is room for."""
    counts = [max(0, left) // amount for amount, left in zip(size, room, strict=True) if amount]
    return min(counts, default=0)


def _cost(situation: Situation, target: Target) -> int:
    return sum_cost(plan_stages(situation, target), situation.machines)
