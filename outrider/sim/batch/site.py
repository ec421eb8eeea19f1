"""A site whose best effort is a batch system's, in simulated time: reservations of all kinds beside jobs.

Reservations are decided as in every simulated world, by the core's scheduler. Jobs are decided by a
`BatchQueue`, as the service decides (`schedule`) or as the batch system itself would (`lead`). As in the
service, a job that runs is in the book as others' use of its whole nodes: until its limit, or, if it may be
requeued, for as long as it needs to go. Such jobs make way by the service's own rules, and come back.

What a batch system takes for itself is given as `Delays`. Images cost nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core.besteffort.jobs.requeueing import PreemptibleRun, RequeueTerms, fewest_lost
from outrider.core.besteffort.suspension import Segment, SegmentShare
from outrider.core.model import Node, NodeSlot, Reservation, Resources
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.occupation import Occupation, Occupied, occupy, vacate
from outrider.sim.batch.turns import BatchQueue, Blocked, SimulatedJob, Starter, look_s
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import EventOrder, FinishedRun, Simulation

SPARE_S = 10
"""The service takes preemptible jobs to stay for so much longer than they need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delays:
    """What a batch system takes for itself, in seconds. With jobs of hours none of it matters."""

    start_s: int = 0
    """From the decision that a job starts until it does."""
    end_s: int = 0
    """From a job's end until its nodes are known to be free."""
    margin_s: int = 0
    """So long before a reservation starts, a job that makes way is sent back."""
    back_s: int = 0
    """So long a job that was sent back waits at least."""


@dataclass(slots=True)
class RunningJob:
    """A job that has nodes."""

    job: SimulatedJob
    nodes: tuple[str, ...]
    start_s: int

    @property
    def limit_end_s(self) -> int:
        return self.start_s + self.job.limit_s


class BatchSite(Simulation):
    """A world whose best effort runs as a batch system's jobs: one node an instance, nothing suspended."""

    def __init__(
        self,
        setup: Setup,
        nodes: tuple[Node, ...],
        trace: Trace,
        starter: Starter,
        delays: Delays | None = None,
    ) -> None:
        self._starter = starter
        self._delays = delays or Delays()
        self._queue = BatchQueue(nodes, starter)
        self._running: dict[str, RunningJob] = {}
        self._seen: dict[str, Blocked] = {}
        self._came = 0
        self.requeued: dict[str, int] = {}
        """How often each job was sent back."""
        super().__init__(replace(setup, has_images=False, slowdown_percent=0), nodes, trace)
        self.scheduler.choice = self._fewest_lost

    def _submit(self, submission: TraceSubmission) -> None:
        if submission.workspace.is_best_effort:
            self._hand_in(submission)
            return
        with_jobs = self._enter_jobs()
        super()._submit(submission)
        self._decided(with_jobs)

    def _submit_bundle(self, parts: tuple[TraceSubmission, ...], is_one_start: bool) -> None:
        with_jobs = self._enter_jobs()
        super()._submit_bundle(parts, is_one_start)
        self._decided(with_jobs)

    def _submit_open(self, submission: TraceSubmission) -> None:
        with_jobs = self._enter_jobs()
        super()._submit_open(submission)
        self._decided(with_jobs)

    def _hand_in(self, submission: TraceSubmission) -> None:
        """A job: as many of its instances on a node as there is room for, as batch systems pack them."""
        workspace, timeline = submission.workspace, self.scheduler.book.timeline
        need, count = timeline.layout.pack(workspace.resources), workspace.instances
        rooms = [timeline.layout.most(need, row.capacity, count) for row in timeline.rows]
        on_each = max(rooms)
        nodes_wanted = -(-count // on_each) if on_each else len(rooms) + 1
        if sum(room >= on_each for room in rooms) < nodes_wanted:
            self.outcome.impossible.append(submission)
            return
        amounts = {name: amount * on_each for name, amount in workspace.resources.amounts}
        job = SimulatedJob(
            name=workspace.name,
            submitted_s=submission.at_s,
            nodes_wanted=nodes_wanted,
            resources=Resources.from_mapping(amounts),
            limit_s=workspace.duration_s,
            work_s=submission.run_s,
            user=submission.user,
        )
        self._waiting_again(job)

    def _waiting_again(self, job: SimulatedJob) -> None:
        self._queue.submit(job, self.now_s)
        self._came += 1
        self.scheduler.watch(self._queue.waiting, self._came, self.now_s)
        self._wake()

    def _cancel(self, submission: TraceSubmission) -> None:
        name = submission.workspace.name
        if not submission.workspace.is_best_effort:
            super()._cancel(submission)
        elif self._running.pop(name, None) is not None or self._queue.waits(name):
            self.outcome.cancelled.append(submission)
            self._nodes_are_free(name)

    def _queue_again(self, again: TraceSubmission) -> None:
        """A reservation that has yielded is over, as in the service."""

    def _wake(self) -> None:
        """At its next look, or at once, whoever starts jobs thinks about them."""
        self._wake_at(self.now_s)

    def _wake_at(self, at_s: int) -> None:
        tick_s = look_s(at_s, self._starter.every_s)
        if self._scheduled_at_s is None or tick_s < self._scheduled_at_s:
            self._scheduled_at_s = tick_s
            self._at(tick_s, EventOrder.SCHEDULE, self._schedule)

    def _schedule(self) -> None:
        if self._scheduled_at_s != self.now_s:
            return
        self._scheduled_at_s = None
        self._see_reservations()
        self._queue.seen(self.now_s)
        walk = self._queue.decide(self.now_s)
        self.scheduler.watch(self._queue.waiting, self._came, self.now_s)
        for name, place in walk.starts.items():
            job, nodes = self._queue.job(name), self._queue.names(place.nodes)
            start_s = self.now_s + self._delays.start_s
            self._queue.begin(name, nodes, start_s)
            run = self._running[name] = RunningJob(job=job, nodes=nodes, start_s=start_s)
            self._at(start_s + min(job.work_s, job.limit_s), EventOrder.END, self._job_ends, run)
        if walk.planned:
            self._wake_at(max(self.now_s + 1, min(place.start_s for place in walk.planned.values())))

    def _job_ends(self, run: RunningJob) -> None:
        if self._running.get(run.job.name) is not run:
            return
        name = run.job.name
        del self._running[name]
        number_of, left = self.scheduler.book.timeline.number_of, self._submissions[name].workspace.instances
        on_each = -(-left // run.job.nodes_wanted)
        shares = []
        for node in run.nodes:
            shares.append(SegmentShare(number_of[node], min(on_each, left), 0))
            left -= min(on_each, left)
        segment = Segment(run.start_s, self.now_s, tuple(shares))
        submit_s = self._submissions[name].at_s
        self.outcome.done.append(
            FinishedRun(
                workspace=name,
                index=0,
                submit_s=submit_s,
                placed_s=run.start_s,
                ready_s=submit_s,
                segments=(segment,),
            )
        )
        self._at(self.now_s + self._delays.end_s, EventOrder.END, self._nodes_are_free, name)

    def _nodes_are_free(self, name: str, again: SimulatedJob | None = None) -> None:
        self._queue.end(name)
        self._wake()
        if again is not None:
            at_s = self.now_s + max(0, self._delays.back_s - self._delays.end_s)
            self._at(at_s, EventOrder.SUBMIT, self._waiting_again, again)

    def _see_reservations(self) -> None:
        """Let the queue know of the reservations that there are now: their nodes as a whole."""
        there = {
            name: Blocked(
                name=name,
                nodes=entry.reservation.nodes,
                start_s=entry.reservation.start_s,
                end_s=entry.end_s,
            )
            for name, entry in self.scheduler.book.entries.items()
        }
        for name in [name for name in self._seen if name not in there]:
            self._queue.unblock(name)
        for name, blocked in there.items():
            if self._seen.get(name) != blocked:
                self._queue.block(blocked)
        self._seen = there

    def _enter_jobs(self) -> list[Occupied]:
        """What the book has to know of jobs before anything is promised."""
        book, found = self.scheduler.book, []
        ends_s: dict[str, int] = {}
        for run in self._running.values():
            until_s = run.limit_end_s
            if self._may_go(run):
                until_s = min(until_s, self.now_s + self._delays.margin_s + SPARE_S)
            for node in run.nodes:
                ends_s[node] = max(ends_s.get(node, 0), until_s)
        for node, end_s in sorted(ends_s.items()):
            capacity = book.timeline.nodes[book.timeline.number_of[node]].capacity
            slot = NodeSlot(node=node, resources=capacity, start_s=self.now_s, end_s=end_s)
            found.append(occupy(book, Occupation(name=f"jobs on {node}", slots=(slot,)), self.now_s))
        return found

    def _decided(self, entered: list[Occupied]) -> None:
        """After an answer: jobs are in the book no more, and those in the way are told when they go."""
        book = self.scheduler.book
        for each in entered:
            vacate(book, each, self.now_s)
        for entry in book.entries.values():
            start_s = entry.reservation.start_s
            for run in self._running.values():
                is_there = not set(run.nodes).isdisjoint(entry.reservation.nodes)
                if is_there and self.now_s <= start_s < run.limit_end_s and self._may_go(run):
                    at_s = max(self.now_s, start_s - self._delays.margin_s)
                    self._at(at_s, EventOrder.FAULT, self._make_way, run, entry.reservation)
        self._wake()

    def _make_way(self, run: RunningJob, reservation: Reservation) -> None:
        name = run.job.name
        if self._running.get(name) is not run or self._entry(reservation) is None:
            return
        del self._running[name]
        self.requeued[name] = self.requeued.get(name, 0) + 1
        self._at(self.now_s + self._delays.end_s, EventOrder.END, self._nodes_are_free, name, run.job)

    def _may_go(self, run: RunningJob) -> bool:
        return self._submissions[run.job.name].workspace.is_preemptible

    def _fewest_lost(self, plan: ReservationPlan, now_s: int) -> ReservationPlan:
        """The nodes on which jobs that may go lose least."""
        book = self.scheduler.book
        terms = RequeueTerms(margin_s=self._delays.margin_s)
        runs = [
            PreemptibleRun(
                name=name,
                nodes=tuple(sorted(book.timeline.number_of[node] for node in run.nodes)),
                start_s=run.start_s,
                end_s=run.limit_end_s,
                terms=terms,
            )
            for name, run in self._running.items()
            if self._may_go(run)
        ]
        return fewest_lost(book, plan, runs, now_s)
