"""Jobs of a batch system in simulated time, started by Outrider (`schedule`) or by that itself (`lead`).

With `schedule` the decisions are those of the service: the same walk through the same queue, over the same
forecast. With `lead` they are those of a model of the batch system's own backfill, which looks every so
often: Slurm's gives places to all that wait, Grid Engine's starts whatever it can. Jobs here have no images;
what images cost is simulated by `world`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order, OrderedJob, rank
from outrider.core.besteffort.jobs.schedule import JobSchedule, ScheduledJob, ScheduleRules, Walk
from outrider.core.model import Node, Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.timeline import mask_of


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedJob:
    """A job: what its user asks for, and how long it really works."""

    name: str
    submitted_s: int
    nodes_wanted: int
    resources: Resources
    limit_s: int
    work_s: int
    user: str = ""
    eligible: tuple[str, ...] = ()
    """The nodes on which it may run; none named means all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocked:
    """Nodes that nobody here may have for a time: a reservation, or what others do."""

    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRun:
    """What became of a job."""

    job: SimulatedJob
    start_s: int
    end_s: int
    nodes: tuple[str, ...]

    @property
    def waited_s(self) -> int:
        return self.start_s - self.job.submitted_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Starter:
    """Who decides when jobs start, and how."""

    rules: ScheduleRules
    order: Order = Order.FCFS
    every_s: int = 0
    """How often it looks; 0: whenever something happens."""


LEAD = {
    "slurm": Starter(rules=ScheduleRules(places=None), every_s=30),
    "gridengine": Starter(rules=ScheduleRules(backfilling=Backfilling.GREEDY), every_s=15),
}
"""Models of the batch systems' own ways, with the intervals that they have unless a site sets others:
SchedulerParameters=bf_interval, and schedule_interval."""


class BatchQueue:
    """Jobs that wait and run. It is told what happens, and decides when it is asked."""

    def __init__(
        self,
        nodes: Sequence[Node],
        starter: Starter,
        blocked: Iterable[Blocked] = (),
        *,
        overrun_s: int = 1,
    ) -> None:
        """Whoever runs is taken to go on for `overrun_s` at least."""
        self._names = [node.name for node in nodes]
        self._number_of = {name: number for number, name in enumerate(self._names)}
        self._layout = ResourceLayout.of_nodes(nodes)
        self._everyone = (1 << len(nodes)) - 1
        self._forecast = BusyForecast(self._layout, [self._layout.pack(node.capacity) for node in nodes])
        self._starter = starter
        self._schedule = JobSchedule(self._forecast, starter.rules)
        self._overrun_s = overrun_s
        self._jobs: dict[str, SimulatedJob] = {}
        self._ends: dict[str, int] = {}
        self._taken: dict[str, Taken] = {}
        for each in blocked:
            self.block(each)

    @property
    def waiting(self) -> int:
        return self._schedule.waiting

    def waits(self, name: str) -> bool:
        return self._schedule.has(name)

    def job(self, name: str) -> SimulatedJob:
        return self._jobs[name]

    def block(self, blocked: Blocked) -> None:
        """These nodes are somebody else's for a time; what was blocked under that name is free."""
        taken = self._on(blocked.nodes, blocked.start_s, blocked.end_s, None)
        self._forecast.know(f"reservation {blocked.name}", (taken,))

    def unblock(self, name: str) -> None:
        self._forecast.know(f"reservation {name}", ())

    def submit(self, job: SimulatedJob, now_s: int) -> None:
        self._jobs[job.name] = job
        self._put(job, now_s)

    def begin(self, name: str, nodes: Iterable[str], start_s: int) -> None:
        """A job is seen to run."""
        job = self._jobs[name]
        self._schedule.remove(name)
        need = self._layout.pack(job.resources)
        self._ends[name] = start_s + job.limit_s
        self._taken[name] = self._on(tuple(nodes), 0, self._ends[name], need)
        self._forecast.know(f"job {name}", (self._taken[name],))

    def end(self, name: str) -> None:
        """A job is over, whether it ran or waited."""
        self._schedule.remove(name)
        self._forecast.know(f"job {name}", ())
        for known in (self._jobs, self._ends, self._taken):
            known.pop(name, None)

    def seen(self, now_s: int) -> None:
        """All that was told is so now: whoever runs is taken to go on for a while."""
        for name, end_s in self._ends.items():
            until_s = now_s + self._overrun_s
            if end_s < until_s:
                longer = self._taken[name]._replace(start_s=0, end_s=until_s)
                self._forecast.know(f"job {name}", (longer,))

    def decide(self, now_s: int) -> Walk:
        """Who starts now, and who has a place for later."""
        if self._starter.order is Order.AGE:
            for job in self._jobs.values():
                if self._schedule.has(job.name):
                    self._put(job, now_s)
        return self._schedule.walk(now_s, self._everyone)

    def names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._names[node] for node in sorted(nodes))

    def _put(self, job: SimulatedJob, now_s: int) -> None:
        eligible = self._everyone
        if job.eligible:
            eligible = mask_of((self._number_of[name] for name in job.eligible), len(self._names))
        candidate = OrderedJob(
            key=job.name,
            submitted_s=job.submitted_s,
            nodes_wanted=job.nodes_wanted,
            limit_s=job.limit_s,
            user=job.user,
        )
        scheduled = ScheduledJob(
            name=job.name,
            nodes_wanted=job.nodes_wanted,
            need=self._layout.pack(job.resources),
            limit_s=job.limit_s,
            eligible=eligible,
        )
        self._schedule.put(scheduled, rank(self._starter.order, candidate, now_s))

    def _on(self, nodes: Iterable[str], start_s: int, end_s: int, amount: int | None) -> Taken:
        numbers = tuple(self._number_of[name] for name in nodes)
        return Taken(nodes=numbers, start_s=start_s, end_s=end_s, amount=amount)


def run_batch(
    nodes: Sequence[Node], jobs: Iterable[SimulatedJob], starter: Starter, blocked: Iterable[Blocked] = ()
) -> list[BatchRun]:
    """Let all jobs come, start and end; what became of each, in the order of their starts. What fits nowhere
    is left out."""
    queue = BatchQueue(nodes, starter, blocked := tuple(blocked))
    coming = sorted(jobs, key=lambda job: (job.submitted_s, len(job.name), job.name), reverse=True)
    ends: list[tuple[int, str]] = []
    edges = sorted({at_s for each in blocked for at_s in (each.start_s, each.end_s)}, reverse=True)
    running: dict[str, BatchRun] = {}
    done: list[BatchRun] = []
    planned: list[int] = []
    last_s = 0
    while coming or ends or planned or (edges and queue.waiting):
        instants = [*([coming[-1].submitted_s] if coming else []), *([ends[0][0]] if ends else [])]
        instants += planned[:1] + edges[-1:]
        now_s = look_s(max(last_s, min(instants)), starter.every_s)
        while ends and ends[0][0] <= now_s:
            _, name = heappop(ends)
            done.append(running.pop(name))
            queue.end(name)
        while edges and edges[-1] <= now_s:
            edges.pop()
        while coming and coming[-1].submitted_s <= now_s:
            queue.submit(coming.pop(), now_s)
        queue.seen(now_s)
        walk = queue.decide(now_s)
        for name, place in walk.starts.items():
            job = queue.job(name)
            names = queue.names(place.nodes)
            run = BatchRun(job=job, start_s=now_s, end_s=now_s + min(job.work_s, job.limit_s), nodes=names)
            queue.begin(name, names, now_s)
            running[name] = run
            heappush(ends, (run.end_s, name))
        planned = sorted({place.start_s for place in walk.planned.values()})[:1]
        last_s = now_s + 1
    return sorted(done, key=lambda run: (run.start_s, len(run.job.name), run.job.name))


def look_s(at_s: int, every_s: int) -> int:
    """The next look from an instant on."""
    return -(-at_s // every_s) * every_s if every_s else at_s
