"""The world behind the twin: nodes, jobs and reservations, and what the passing of time does to them.

Nothing here asks whether somebody may do something; `system` and `outside` do. A job changes
its state in `_move` alone, which keeps to `base.STEPS`. Instants are derived from the state
each time rather than kept in a heap, where what was cancelled would have to be found again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cachemgr.base.steady import STEP_S
from outrider.rms.base import STEPS, JobState, NodeState, RmsNode, RmsReservation, Submission
from outrider.rms.twin.faults import Faults
from outrider.rms.twin.jobs import OCCUPYING, Holder, Leaving, TwinJob
from outrider.rms.twin.placing import NodesAtInstant
from outrider.rms.twin.rules import Hooks, TwinRules

MOST_HAPPENINGS = 100_000
MOST_ENDED = 10_000
"""How many ended jobs are remembered; older ones are unknown, as on a real system."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the log: what happened to which job, node or reservation, and why."""

    at_s: int
    what: str
    subject: str
    why: str = ""


class TwinCluster:
    """What goes on whether or not anybody asks."""

    def __init__(
        self, nodes: Iterable[RmsNode], *, now_s: int, rules: TwinRules, hooks: Hooks, faults: Faults
    ) -> None:
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self.silent: set[str] = set()
        """Nodes whose daemon does not answer, without that being seen in their state."""
        self.jobs: dict[str, TwinJob] = {}
        self.ended: dict[str, str] = {}
        """Why each ended job did, the oldest first."""
        self.reservations: dict[str, RmsReservation] = {}
        self.log: deque[Happening] = deque(maxlen=MOST_HAPPENINGS)
        self.now_s = now_s
        self.rules = rules
        self.hooks = hooks
        self.faults = faults
        self._is_stepping = False
        self._has_changed = False
        self._last_number = 0

    @property
    def last_number(self) -> int:
        """The number of the job that was submitted last."""
        return self._last_number

    def restore(
        self,
        *,
        jobs: Iterable[TwinJob],
        ended: dict[str, str],
        reservations: Iterable[RmsReservation],
        last_number: int,
    ) -> None:
        """Puts what an earlier world knew into this one, which is new. Time has not passed for it."""
        self.jobs = {job.key: job for job in sorted(jobs, key=lambda job: job.number)}
        self.ended = dict(ended)
        self.reservations = {each.name: each for each in reservations}
        self._last_number = last_number
        self._has_changed = True

    def advance(self, now_s: int) -> None:
        """Lets time pass until then. A hook that asks for it in the middle of a step gets no more.

        It does not go back, but for a clock that was far ahead and has been set right.
        """
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while (at_s := self._next_instant()) is not None and at_s <= now_s:
                self._step(at_s)
            is_set_back = self.now_s - now_s > STEP_S
            self.now_s = now_s if is_set_back else max(self.now_s, now_s)
        finally:
            self._is_stepping = False

    def _next_instant(self) -> int | None:
        """The next at which anything happens; what is overdue does so in the next second."""
        return min((max(at_s, self.now_s + 1) for at_s in self._instants()), default=None)

    def _instants(self) -> Iterator[int]:
        if self._has_changed:
            yield up_to_multiple(self.now_s + 1, self.rules.pass_every_s)
        for reservation in self.reservations.values():
            if reservation.start_s > self.now_s:
                yield reservation.start_s
            yield self._swept(reservation.end_s)
        for job in self.jobs.values():
            if job.leaving is not None:
                yield job.leaving.at_s
            elif job.state in OCCUPYING:
                yield from self._instants_on_nodes(job)
            elif job.state is JobState.PENDING and job.eligible_s > self.now_s:
                yield job.eligible_s

    def _instants_on_nodes(self, job: TwinJob) -> Iterator[int]:
        limit_end_s, work_end_s = job.limit_end_s(), job.work_end_s()
        if limit_end_s is not None:
            yield self._swept(limit_end_s)
        if job.state is JobState.STARTING:
            yield job.ready_s
        elif work_end_s is not None:
            yield work_end_s

    def _swept(self, at_s: int) -> int:
        return up_to_multiple(at_s, self.rules.sweep_every_s)

    def _step(self, at_s: int) -> None:
        """Ends before starts, so that what becomes free is taken in the same second."""
        self.now_s = at_s
        for job in self.all_jobs():
            self._bring_up_to_date(job)
        for reservation in self.all_reservations():
            if self._swept(reservation.end_s) <= at_s:
                self.close_reservation(reservation.name, f"reservation {reservation.name} has ended")
        self._has_changed = at_s % self.rules.pass_every_s != 0
        if not self._has_changed:
            self._start_jobs()

    def _bring_up_to_date(self, job: TwinJob) -> None:
        now_s = self.now_s
        if job.leaving is not None:
            if job.leaving.at_s <= now_s:
                self._leave_now(job)
            return
        if job.state is JobState.STARTING and job.ready_s <= now_s:
            self._move(job, JobState.RUNNING)
        if job.state not in OCCUPYING:
            return
        work_end_s, limit_end_s = job.work_end_s(), job.limit_end_s()
        if job.state is JobState.RUNNING and work_end_s is not None and work_end_s <= now_s:
            job.leaving = Leaving(now_s, JobState.ENDED, "done")
            self._leave_now(job)
        elif limit_end_s is not None and self._swept(limit_end_s) <= now_s:
            self.leave(job, JobState.ENDED, "limit reached")

    def _start_jobs(self) -> None:
        """In order of submission, those in a reservation first; none waits for an earlier one.

        So a wide job may starve, which real schedulers prevent in ways of their own.
        """
        waiting = [job for job in self.all_jobs() if job.state is JobState.PENDING]
        if not waiting:
            return
        board = self._board()
        for job in sorted(waiting, key=lambda job: (job.reservation is None, job.number)):
            # A hook that was called for an earlier one may have changed this one.
            if job.state is JobState.PENDING and job.eligible_s <= self.now_s:
                nodes = board.nodes_for(job)
                if nodes is not None:
                    self._start(job, nodes)
                    board = self._board()

    def has_room(self, job: TwinJob, node: str) -> bool:
        """Whether a job that runs could run on that node, too."""
        wanted = replace(job, wanted_nodes=(node,))
        return self._board().nodes_for(wanted) == (node,)

    def _board(self) -> NodesAtInstant:
        return NodesAtInstant(
            self.now_s,
            nodes=self.nodes.values(),
            jobs=self.jobs.values(),
            reservations=self.reservations,
            rules=self.rules,
        )

    def _start(self, job: TwinJob, nodes: tuple[str, ...]) -> None:
        job.nodes, job.start_s, job.starts = nodes, self.now_s, job.starts + 1
        job.ready_s = self.now_s + self.rules.prolog_s
        self._move(job, JobState.STARTING, ",".join(nodes))
        for node in nodes if self.rules.is_prolog_on_every_node else nodes[:1]:
            answer = self.hooks.prolog(job.seen(), node)
            if job.state is not JobState.STARTING or job.leaving is not None:
                return
            if answer is not None:
                self._hold_back(job, answer.reason)
                return
        if self.rules.prolog_s == 0:
            self._move(job, JobState.RUNNING)

    def _hold_back(self, job: TwinJob, reason: str) -> None:
        """Takes a job that was starting off its nodes and holds it."""
        job.holders.add(Holder.SYSTEM)
        job.shown = reason
        job.leaving = Leaving(self.now_s, JobState.HELD, reason)
        self._leave_now(job)

    def leave(self, job: TwinJob, to: JobState, why: str, *, is_saved: bool = False) -> None:
        """Sends a job off its nodes, as soon as the rules let it. What ends a job overrides the rest. One
        that is saved or suspended goes on with its work later, in the time that is left."""
        if job.leaving is not None and job.leaving.to is JobState.ENDED:
            return
        is_saved = is_saved or to is JobState.SUSPENDED
        delay_s = self.rules.leaving_s(is_saved=is_saved, is_machine=bool(job.submission.machine))
        kept_s = max(0, self.now_s - job.ready_s) if is_saved else None
        job.leaving = Leaving(self.now_s + delay_s, to, why, kept_s)
        self.log_change("leaving", job.key, why)
        if delay_s == 0:
            self._leave_now(job)

    def _leave_now(self, job: TwinJob) -> None:
        leaving, before = job.leaving, job.seen()
        assert leaving is not None
        assert job.start_s is not None
        if leaving.kept_s is not None:
            job.done_s += leaving.kept_s
            job.used_s += leaving.kept_s + max(0, job.ready_s - job.start_s)
        job.leaving, job.nodes, job.start_s = None, (), None
        to = leaving.to
        if to is JobState.PENDING and job.holders:
            to = JobState.HELD
        if to in (JobState.PENDING, JobState.HELD):
            job.eligible_s = self.now_s + self.rules.requeue_delay_s
            # Both Slurm and Grid Engine forget since when it has been there.
            job.submitted_s = self.now_s
        self._move(job, to, leaving.why)
        if to is JobState.SUSPENDED and job.wants_to_go_on:
            self.go_on(job)
        for node in before.nodes if self.rules.is_prolog_on_every_node else before.nodes[:1]:
            if self.nodes[node].state is not NodeState.DOWN:
                for _ in range(self.faults.epilog_runs()):
                    self.hooks.epilog(before, node)

    def go_on(self, job: TwinJob) -> None:
        """Lets a suspended job wait for nodes; one that is still being saved does so afterwards."""
        job.wants_to_go_on = job.state is not JobState.SUSPENDED
        if job.state is JobState.SUSPENDED:
            # One that was saved is released by whoever leads it to where its machine and its image are.
            self._move(job, JobState.HELD if job.holders else JobState.PENDING, "resumed")

    def add_job(self, submission: Submission) -> TwinJob:
        self._last_number += 1
        job = TwinJob(
            number=self._last_number,
            submission=submission,
            submitted_s=self.now_s,
            work_s=self.hooks.work_s(submission),
            reservation=submission.reservation,
        )
        self.jobs[job.key] = job
        self.log_change("submitted", job.key, submission.user)
        return job

    def hold(self, job: TwinJob, holder: Holder, reason: str) -> None:
        """Keeps a waiting or suspended job from starting."""
        job.holders.add(holder)
        job.shown = reason
        if job.state is JobState.HELD:
            self.log_change("held", job.key, reason)
        else:
            self._move(job, JobState.HELD, reason)

    def lift(self, job: TwinJob, holders: Iterable[Holder]) -> None:
        """Ends holds; without any left, the job may start."""
        job.holders.difference_update(holders)
        if job.state is JobState.HELD and not job.holders:
            self._move(job, JobState.PENDING, "released")
        self._has_changed = True

    def end(self, job: TwinJob, why: str) -> None:
        """Ends a job: at once if it has no nodes."""
        if job.state in OCCUPYING:
            self.leave(job, JobState.ENDED, why)
        else:
            self._move(job, JobState.ENDED, why)

    def put_reservation(self, reservation: RmsReservation, why: str = "") -> None:
        self.reservations[reservation.name] = reservation
        self.log_change("reserved", reservation.name, why)

    def drop_reservation(self, name: str, holder: Holder, why: str) -> None:
        """Takes a reservation away; jobs bound to it that have no nodes are unbound and held."""
        del self.reservations[name]
        self.log_change("reservation gone", name, why)
        for job in self.bound_to(name):
            job.reservation = None
            if job.state not in OCCUPYING:
                wanted = job.submission
                is_ours = wanted.metadata is not None or wanted.tag or Holder.OURS in job.holders
                # What is none of ours nobody here would ever release: its user can.
                self.hold(job, Holder.OTHER if holder is Holder.OURS and not is_ours else holder, why)

    def close_reservation(self, name: str, why: str) -> None:
        """A reservation is over: what runs in it ends, and the rules say what becomes of the rest."""
        for job in self.bound_to(name):
            if job.state in OCCUPYING or self.rules.unstarted_at_end is JobState.ENDED:
                self.end(job, why)
        self.drop_reservation(name, Holder.SYSTEM, why)

    def set_node(self, name: str, state: NodeState, why: str) -> None:
        """Lets a node be so. What runs on one that goes down loses all its nodes at once."""
        self.nodes[name] = replace(self.nodes[name], state=state)
        self.log_change(f"node {state.value}", name, why)
        if state is not NodeState.DOWN:
            return
        for job in self.all_jobs():
            if name in job.nodes:
                to = JobState.PENDING if self.rules.reruns_after_failure else JobState.ENDED
                # What ran there is lost: it starts from its beginning, where it may.
                job.saved_nodes = ()
                if job.leaving is not None and job.leaving.to is JobState.ENDED:
                    to = JobState.ENDED
                job.leaving = Leaving(self.now_s, to, f"node {name} failed")
                self._leave_now(job)

    def bound_to(self, reservation: str) -> list[TwinJob]:
        return [job for job in self.all_jobs() if job.reservation == reservation]

    def all_jobs(self) -> list[TwinJob]:
        """By number, as they were submitted; a copy, since what is done to them may end them."""
        return list(self.jobs.values())

    def all_reservations(self) -> list[RmsReservation]:
        return sorted(self.reservations.values(), key=lambda each: (each.start_s, each.name))

    def log_change(self, what: str, subject: str, why: str = "") -> None:
        """Writes down what changed, and that jobs may start because of it."""
        self.log.append(Happening(self.now_s, what, subject, why))
        self._has_changed = True

    def _move(self, job: TwinJob, to: JobState, why: str = "") -> None:
        if to not in STEPS[job.state]:
            raise AssertionError(f"job {job.key} cannot go from {job.state.value} to {to.value}: {why}")
        job.state = to
        self.log_change(to.value, job.key, why)
        if to is JobState.ENDED:
            del self.jobs[job.key]
            self.ended[job.key] = why
            if len(self.ended) > MOST_ENDED:
                del self.ended[next(iter(self.ended))]


def up_to_multiple(at_s: int, every_s: int) -> int:
    """The first multiple from that instant on."""
    return -(-at_s // every_s) * every_s
