"""What the last look has shown: what the service is told, and what a change has to know of a job."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from outrider.metadata.errors import TextError
from outrider.rms.base import JobState, RmsJob, RmsNode, Sight, Unknown
from outrider.rms.slurm.booking import Booking
from outrider.rms.slurm.commands import SlurmCommands, json_option, version_in
from outrider.rms.slurm.jobs import SlurmJob, in_holders
from outrider.rms.slurm.nodes import SlurmNode
from outrider.rms.slurm.placing import Places, sharing_in, unknown
from outrider.rms.slurm.reading import JobReader, NodeReader

SHARING_S = 600
"""So long it is believed in which partitions jobs share processors."""
JobsReader = Callable[[int], tuple[tuple[SlurmJob, ...], tuple[str, ...]]]
"""Reads the jobs that have not ended, given the time, and what was odd."""


class WarningLog(Protocol):
    def warning(self, event: str, **fields: object) -> None: ...


class SlurmSnapshot:
    """One look, kept up to date with our own changes until the next."""

    def __init__(
        self,
        commands: SlurmCommands,
        booking: Booking,
        *,
        now_s: Callable[[], int],
        log: WarningLog,
        read_jobs: JobsReader | None = None,
        shown: Collection[str] = (),
    ) -> None:
        """`shown` are the nodes of which the service is told; empty means all."""
        self._only = frozenset(shown)
        self.places = Places(())
        self._commands = commands
        self._booking = booking
        self._now_s = now_s
        self._log = log
        self._present: set[str] = set()
        """Jobs that have not ended, and their arrays."""
        self._jobs: dict[str, SlurmJob] = {}
        self._job_reader = JobReader()
        self._node_reader = NodeReader()
        self._nodes: tuple[SlurmNode, ...] = ()
        self._shown_nodes: tuple[RmsNode, ...] = ()
        self._numbered: tuple[str, ...] = ()
        self._shown_jobs: dict[str, tuple[SlurmJob, RmsJob]] = {}
        """As they were told at the last look."""
        self._reported: frozenset[str] = frozenset()
        self._json = ""
        self._sharing: tuple[tuple[str, int], ...] = ()
        self._sharing_s: int | None = None
        self._read_jobs = read_jobs or self._ask_for_jobs

    def look(self) -> Sight:
        commands = self._commands
        jobs, odd_jobs = self._read_jobs(self._now_s())
        reservations, odd_reservations = self._booking.all()
        nodes, odd_nodes = self._node_reader.read(
            commands.ask("scontrol", "--oneliner", "--all", "show", "node")
        )
        at_s, jobs = self._now_s(), in_holders(jobs)
        if nodes is not self._nodes:
            self._nodes, self.places = nodes, Places(nodes, self._node_reader.order)
            self._shown_nodes = tuple(
                each.node for each in nodes if not self._only or each.node.name in self._only
            )
            by_name = tuple(each.name for each in self._shown_nodes)
            in_order = self.places.in_order(by_name)
            self._numbered = () if in_order == by_name else in_order
        self._jobs = {job.key: job for job in jobs}
        self._report(*odd_nodes, *odd_jobs, *odd_reservations)
        self._present = {job.key for job in jobs} | {job.array for job in jobs}
        reservations = tuple(self._booking.told(each) for each in reservations)
        names = {each.name for each in reservations}
        shown = [(job, self._shown(job, names)) for job in jobs]
        self._shown_jobs = {job.key: (job, told) for job, told in shown}
        return Sight(
            at_s=at_s,
            nodes=self._shown_nodes,
            jobs=tuple(told for _, told in shown),
            reservations=reservations,
            queues=self.places.partitions,
            numbered=self._numbered,
            sharing=self._shared(at_s),
        )

    def _shared(self, now_s: int) -> tuple[tuple[str, int], ...]:
        """That is changed by hand, and rarely."""
        if self._sharing_s is None or not 0 <= now_s - self._sharing_s < SHARING_S:
            self._sharing = sharing_in(
                self._commands.ask("scontrol", "--oneliner", "--all", "show", "partition")
            )
            self._sharing_s = now_s
        return self._sharing

    def job(self, key: str) -> SlurmJob:
        """The job as it was last seen; one that is new is looked for."""
        if key not in self._jobs:
            self.look()
        if key not in self._jobs:
            raise Unknown(f"there is no job {key} in what squeue shows")
        return self._jobs[key]

    def keep(self, job: SlurmJob) -> None:
        """The job as we have changed it."""
        self._jobs[job.key] = job

    def check_nodes(self, nodes: tuple[str, ...]) -> None:
        """Raises Unknown if any is."""
        if unknown(nodes, self.places.names):
            self.look()
            missing = unknown(nodes, self.places.names)
            if missing:
                raise Unknown(f"there is no node {', '.join(missing)}")

    def _ask_for_jobs(self, now_s: int) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
        if not self._json:
            self._json = json_option(version_in(self._commands.ask("squeue", "--version")))
        return self._job_reader.read(self._commands.ask("squeue", "--all", self._json), now_s)

    def _shown(self, job: SlurmJob, reservations: set[str]) -> RmsJob:
        try:
            eligible = self.places.eligible(job)
        except TextError:
            eligible = ()
        reservation = job.reservation if job.reservation in reservations else None
        waits = job.state in (JobState.HELD, JobState.PENDING)
        is_blocked = waits and (
            job.is_blocked
            or job.record.begin_s > self._now_s()
            or not self._present.isdisjoint(job.waits_for)
        )
        before = self._shown_jobs.get(job.key)
        if before is not None and before[0] is job:
            told = before[1]
            is_same = told.reservation == reservation and told.is_blocked == is_blocked
            if is_same and (told.eligible is eligible or told.eligible == eligible):
                return told
        return RmsJob(
            key=job.key,
            user=job.user,
            uid=job.uid,
            state=job.state,
            nodes_wanted=job.nodes_wanted,
            resources=job.resources,
            limit_s=job.limit_s,
            submitted_s=job.submitted_s,
            nodes=self.places.in_order(job.nodes),
            start_s=job.start_s,
            metadata=job.hint or job.record.metadata,
            is_hint=bool(job.hint),
            reservation=reservation,
            account=job.account,
            is_held_by_us=job.is_held_by_us,
            tag=job.record.tag,
            eligible=eligible,
            can_requeue=job.is_batch,
            can_be_signalled=job.is_batch,
            can_save=job.is_batch,
            saved_on=() if job.record.saved is None or job.nodes else job.record.saved.nodes,
            elsewhere=self.places.elsewhere(job),
            tasks=job.tasks,
            is_blocked=is_blocked,
            queue=job.partitions[0] if job.partitions else "",
            option=job.record.option,
            stands_for=job.stands_for,
            payer=job.payer,
        )

    def _report(self, *findings: str) -> None:
        for words in findings:
            if words not in self._reported:
                self._log.warning("slurm shows something odd", words=words)
        self._reported = frozenset(findings)
