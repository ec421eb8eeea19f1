"""The context switch's paper, section 5.2: jobs that are given processors for good, or as they compute.

Eleven nodes of two processors. A queue in order gives every machine of a job a processor and its memory
until the job is over (`run_static`). Consolidation looks every so often what machines compute, and switches
to the placement in which as many jobs as possible run, in their order: machines that do not compute need no
processor (`run_consolidated`). Second by second, with the real planner; how long actions take is the paper's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.core.switch.cost import longest_cost, sum_cost
from outrider.core.switch.model import (
    NOWHERE,
    Action,
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
from outrider.core.switch.timing import ActionPace, TimedAction, continuous, duration_s, in_stages
from outrider.sim.switch.grid_jobs import MEMORIES_MB, GridJob, paper_jobs

NODES, PROCESSORS, NODE_MEMORY_MB = 11, 2, 3584
"""The paper's: 4 GB, of which 512 MB are the hypervisor's."""
EVERY_S = 30
LOCAL_SLOWDOWN, REMOTE_SLOWDOWN = 1.3, 1.5
"""So much longer takes what computes on a node where a state is written or read (section 2.3)."""
LONGEST_S = 2_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchMade:
    """A switch that was carried out: when, its cost in both readings, how long it took, and its actions."""

    at_s: int
    cost: int
    longest: int
    took_s: int
    actions: dict[str, int]
    local_resumes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidationRun:
    """What came of it. `computing` and `wanted`: processors, second by second; `spans`: when jobs ran."""

    total_s: int
    computing: tuple[float, ...]
    wanted: tuple[int, ...]
    spans: tuple[tuple[str, int, int], ...]
    switches: tuple[SwitchMade, ...] = ()

    @property
    def actions(self) -> dict[str, int]:
        """How many of each kind, over all switches."""
        return {kind.value: sum(each.actions[kind.value] for each in self.switches) for kind in ActionKind}

    @property
    def local_resumes(self) -> int:
        return sum(each.local_resumes for each in self.switches)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRuns:
    """The same jobs in both ways."""

    seed: int
    static: ConsolidationRun
    consolidated: ConsolidationRun

    @property
    def reduction_percent(self) -> float:
        """How much less time all jobs take together."""
        return 100 * (1 - self.consolidated.total_s / self.static.total_s)


@dataclass(slots=True)
class _Machine:
    job: int
    memory_mb: int
    standing: MachineStanding = MachineStanding.WAITING
    host: int = NOWHERE


@dataclass(slots=True)
class _Cluster:
    """All jobs, and where their machines are."""

    jobs: Sequence[GridJob]
    machines: list[list[_Machine]]
    launched: set[int] = field(default_factory=set)
    computing: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    _since_s: dict[int, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return all(each.standing is MachineStanding.STOPPED for every in self.machines for each in every)

    def runs(self, job: int) -> bool:
        return all(each.standing is MachineStanding.RUNNING for each in self.machines[job])

    def computes(self, job: int) -> set[int]:
        """Which machines of a job compute, or will as soon as they run."""
        return {task.machine for task in self.jobs[job].ready()}

    def pass_second(self, now_s: int, slowed: dict[int, float]) -> None:
        """Whoever computes gets its share of its node's processors."""
        load: Counter[int] = Counter()
        active = []
        for number, job in enumerate(self.jobs):
            if self.runs(number):
                self.launched.add(number)
                self._since_s.setdefault(number, now_s)
            elif number in self._since_s:
                self.spans.append((job.name, self._since_s.pop(number), now_s))
            for task in job.ready() if number in self.launched else ():
                machine = self.machines[number][task.machine]
                if machine.standing is MachineStanding.RUNNING:
                    load[machine.host] += 1
                    active.append((task, machine.host))
        self.computing.append(sum(min(PROCESSORS, count) for count in load.values()))
        self.wanted.append(sum(load.values()))
        for task, host in active:
            task.left_s -= min(1.0, PROCESSORS / load[host]) / slowed.get(host, 1.0)

    def ran(self, total_s: int, switches: Sequence[SwitchMade] = ()) -> ConsolidationRun:
        spans = (
            *self.spans,
            *((self.jobs[each].name, at_s, total_s) for each, at_s in self._since_s.items()),
        )
        return ConsolidationRun(
            total_s=total_s,
            computing=tuple(self.computing),
            wanted=tuple(self.wanted),
            spans=tuple(sorted(spans, key=lambda span: span[1:])),
            switches=tuple(switches),
        )


def compared(
    seed: int,
    *,
    memories_mb: tuple[int, ...] = MEMORIES_MB,
    stretch: float = 1.0,
    every_s: int = EVERY_S,
    is_continuous: bool = False,
) -> ComparedRuns:
    """One draw of the paper's jobs."""
    static, moved = (paper_jobs(seed, memories_mb, stretch) for _ in range(2))
    return ComparedRuns(
        seed=seed,
        static=run_static(static),
        consolidated=run_consolidated(moved, every_s=every_s, is_continuous=is_continuous),
    )


def run_static(
    jobs: Sequence[GridJob], *, nodes: int = NODES, pace: ActionPace | None = None
) -> ConsolidationRun:
    """Whoever is next has a processor for each machine from its start to its end; nobody overtakes."""
    pace, cluster = pace or ActionPace(), _cluster(jobs)
    free: list[Amount] = [(NODE_MEMORY_MB, PROCESSORS)] * nodes
    waiting = list(range(len(jobs)))
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    now_s = 0
    while waiting or begins or ends or any(cluster.runs(job) for job in range(len(jobs))):
        _check(now_s)
        for job in [job for job, at_s in ends.items() if at_s <= now_s]:
            del ends[job]
            for machine in cluster.machines[job]:
                free[machine.host] = minus(free[machine.host], (-machine.memory_mb, -1))
        while waiting and (places := _places(cluster.machines[waiting[0]], free)) is not None:
            job = waiting.pop(0)
            begins[job] = now_s + pace.boot_s
            for machine, node in zip(cluster.machines[job], places, strict=True):
                machine.host = node
                free[node] = minus(free[node], (machine.memory_mb, 1))
        if waiting and not (begins or ends or len(waiting) < len(jobs)):
            raise NoSwitch(f"job {jobs[waiting[0]].name} has no room on {nodes} empty nodes")
        for job in [job for job, at_s in begins.items() if at_s <= now_s]:
            del begins[job]
            _set(cluster.machines[job], MachineStanding.RUNNING)
        cluster.pass_second(now_s, {})
        now_s += 1
        for job in range(len(jobs)):
            if cluster.runs(job) and jobs[job].is_over:
                _set(cluster.machines[job], MachineStanding.STOPPED)
                ends[job] = now_s + pace.shutdown_s
    return cluster.ran(now_s)


def run_consolidated(
    jobs: Sequence[GridJob],
    *,
    nodes: int = NODES,
    every_s: int = EVERY_S,
    pace: ActionPace | None = None,
    is_continuous: bool = False,
) -> ConsolidationRun:
    """A switch whenever one lets more run, is needed because nodes are overloaded, or ends a job."""
    pace, cluster = pace or ActionPace(), _cluster(jobs)
    switches: list[SwitchMade] = []
    under_way: _UnderWay | None = None
    now_s = 0
    while under_way is not None or not cluster.is_over:
        _check(now_s)
        if under_way is not None:
            under_way.pass_to(now_s)
            under_way = None if under_way.is_over else under_way
        elif now_s % every_s == 0:
            under_way = _planned(cluster, nodes, pace, now_s, switches, is_continuous=is_continuous)
            if under_way is not None:
                under_way.pass_to(now_s)
        cluster.pass_second(now_s, under_way.slowed(now_s) if under_way is not None else {})
        now_s += 1
    return cluster.ran(now_s, switches)


@dataclass(slots=True)
class _UnderWay:
    """A switch that is being carried out."""

    begun_s: int
    actions: list[tuple[TimedAction, _Machine]]

    @property
    def is_over(self) -> bool:
        return not self.actions

    def pass_to(self, now_s: int) -> None:
        left = []
        for timed, machine in sorted(self.actions, key=lambda each: each[0].end_s):
            at_s, action = now_s - self.begun_s, timed.action
            if at_s >= timed.begin_s and action.kind in (ActionKind.SUSPEND, ActionKind.STOP):
                # It computes no more, and its node is the action's until that is over.
                machine.standing = _AFTER[action.kind]
            if at_s < timed.end_s:
                left.append((timed, machine))
                continue
            machine.standing = _AFTER[action.kind]
            if action.kind is not ActionKind.SUSPEND:
                machine.host = action.target
        self.actions = left

    def slowed(self, now_s: int) -> dict[int, float]:
        """How much longer takes what computes on which node."""
        found: dict[int, float] = {}
        for timed, _ in self.actions:
            action = timed.action
            if timed.begin_s <= now_s - self.begun_s and action.kind in (
                ActionKind.SUSPEND,
                ActionKind.RESUME,
            ):
                is_remote = action.kind is ActionKind.RESUME and not action.is_local
                for node in {action.source, action.target} - {NOWHERE}:
                    found[node] = max(found.get(node, 1.0), REMOTE_SLOWDOWN if is_remote else LOCAL_SLOWDOWN)
        return found


_AFTER = {
    ActionKind.RUN: MachineStanding.RUNNING,
    ActionKind.RESUME: MachineStanding.RUNNING,
    ActionKind.MIGRATE: MachineStanding.RUNNING,
    ActionKind.SUSPEND: MachineStanding.SLEEPING,
    ActionKind.STOP: MachineStanding.STOPPED,
}


def _planned(
    cluster: _Cluster,
    nodes: int,
    pace: ActionPace,
    now_s: int,
    switches: list[SwitchMade],
    *,
    is_continuous: bool,
) -> _UnderWay | None:
    """The switch that is wanted now; None if there is nothing to do."""
    there = [
        job
        for job, machines in enumerate(cluster.machines)
        if machines[0].standing is not MachineStanding.STOPPED
    ]
    members = [(place, each) for place, job in enumerate(there) for each in cluster.machines[job]]
    virtual = []
    for place, job in enumerate(there):
        computes = cluster.computes(job)
        for number, machine in enumerate(cluster.machines[job]):
            demand = (machine.memory_mb, int(number in computes))
            virtual.append(
                VirtualMachine(name=f"{cluster.jobs[job].name}-{number}", job=place, demand=demand)
            )
    situation = Situation(
        nodes=tuple(
            SwitchNode(name=f"n{number}", capacity=(NODE_MEMORY_MB, PROCESSORS)) for number in range(nodes)
        ),
        machines=tuple(virtual),
        standings=tuple(each.standing for _, each in members),
        hosts=tuple(each.host for _, each in members),
    )
    over = {place for place, job in enumerate(there) if cluster.jobs[job].is_over}
    stopped = frozenset(number for number, (place, _) in enumerate(members) if place in over)
    queue = [place for place in range(len(there)) if place not in over]
    plan = plan_switch(situation, queue, stopped=stopped).plan
    if not plan.actions:
        return None
    timed = continuous(situation, plan, pace) if is_continuous else in_stages(plan, situation.machines, pace)
    kinds = Counter(action.kind.value for action in plan.actions)
    switches.append(
        SwitchMade(
            at_s=now_s,
            cost=sum_cost(plan, situation.machines),
            longest=longest_cost(plan, situation.machines),
            took_s=duration_s(timed),
            actions={kind.value: kinds[kind.value] for kind in ActionKind},
            local_resumes=sum(_is_local_resume(each) for each in plan.actions),
        )
    )
    return _UnderWay(now_s, [(each, members[each.action.machine][1]) for each in timed])


def _is_local_resume(action: Action) -> bool:
    return action.kind is ActionKind.RESUME and action.is_local


def _cluster(jobs: Sequence[GridJob]) -> _Cluster:
    return _Cluster(
        jobs, [[_Machine(number, memory) for memory in job.memories_mb] for number, job in enumerate(jobs)]
    )


def _places(machines: Iterable[_Machine], free: Sequence[Amount]) -> list[int] | None:
    """The first node with a processor and the memory for each; None if there is none."""
    left, found = list(free), []
    for machine in machines:
        demand = (machine.memory_mb, 1)
        node = next((number for number, each in enumerate(left) if fits(demand, each)), NOWHERE)
        if node == NOWHERE:
            return None
        left[node] = minus(left[node], demand)
        found.append(node)
    return found


def _set(machines: Iterable[_Machine], standing: MachineStanding) -> None:
    for machine in machines:
        machine.standing = standing


def _check(now_s: int) -> None:
    if now_s > LONGEST_S:
        raise NoSwitch("no job goes on any more")
