"""Jobs that run and have said that they can be requeued for a reservation, and on which nodes they are.

What a job has declared counts from the start of its run: its user cannot take it back while a reservation
counts on it. Nothing is known here of a job that has not declared itself so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from outrider.core.besteffort.jobs.requeueing import PreemptibleRun, RequeueTerms
from outrider.core.leases.preemption import Candidate, PreemptionOrder
from outrider.core.model import LeaseOwner
from outrider.metadata.errors import TextError
from outrider.metadata.joblines import GRACE_S, JobLines, parse_job_lines
from outrider.metadata.notation.durations import format_duration
from outrider.rms.base import RmsJob
from outrider.service.desk.state.site import Site
from outrider.service.settings import Settings

SAVING_SPARE_S = 5
"""To tell a machine that it is to be saved, and for what it does beside writing its memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreemptibleJob:
    """One of them."""

    key: str
    uid: int
    user: str
    run: PreemptibleRun
    checkpoint: str
    """The signal by which it is told; none if empty."""
    nodes: tuple[str, ...]
    memory_bytes: int | None = None
    """Of its machine, which is saved; None if it runs in none, or is not to be saved."""

    @property
    def is_told(self) -> bool:
        """Whether it hears beforehand that it has to go."""
        return bool(self.checkpoint) or self.memory_bytes is not None


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a job has said of the run that began then; None: that it may not be requeued."""

    start_s: int
    terms: RequeueTerms | None
    checkpoint: str = ""
    is_saved: bool = False


class PreemptibleJobs:
    """All of them, kept up to date by whoever compares one look with the next."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._declared: dict[str, _Declared] = {}
        self.all: dict[str, PreemptibleJob] = {}
        self.on: dict[str, dict[str, PreemptibleJob]] = {}
        """By node and key."""
        self.order: PreemptionOrder | None = None
        """The site's: who yields first, and who never does; None: whoever loses least."""

    def runs(self) -> tuple[PreemptibleRun, ...]:
        return tuple(job.run for job in self.all.values())

    def places(self, now_s: int) -> dict[str, int] | None:
        """Each job's place in the site's order, if it has one."""
        if self.order is None:
            return None
        found = [
            Candidate(
                name=job.key,
                order=(job.run.start_s,),
                duration_s=job.run.end_s - job.run.start_s,
                instances=len(job.nodes),
                owner=LeaseOwner(user=job.user),
                done_s=max(0, now_s - job.run.start_s),
                keeps_work=job.run.keeps_work,
            )
            for job in self.all.values()
        ]
        places = {each.name: place for place, each in enumerate(self.order.sort(found))}
        # Whom a newer policy spares may yield still: last of all.
        return dict.fromkeys(self.all, len(places)) | places

    def begin(self, job: RmsJob, end_s: int, nodes: Collection[str]) -> bool:
        """A job runs on these nodes until then; whether it is one of those that can be requeued."""
        declared = self._declared_by(job)
        if declared is None or declared.terms is None or not nodes:
            return False
        if self.order is not None and self.order.spares(LeaseOwner(user=job.user)):
            return False
        found = self._of(job, declared, declared.terms, self._end_s(job, end_s), nodes)
        self._enter(found)
        self._share_disks(found.nodes)
        return True

    def _end_s(self, job: RmsJob, end_s: int) -> int:
        """When a job's time is over: until then it need not be told to go. One that goes on has to be."""
        if job.start_s is None or job.limit_s is None:
            return end_s
        limit_s = job.start_s + job.limit_s
        return limit_s if limit_s >= self._site.now_s else end_s

    def until(self, job: RmsJob, end_s: int) -> PreemptibleJob | None:
        """A job in a reservation that has its nodes until then, if it can be requeued; it makes way for
        nobody else, so it is not among the others."""
        declared = self._declared_by(job)
        if declared is None or declared.terms is None or declared.is_saved or not job.nodes:
            return None
        return self._of(job, declared, declared.terms, end_s, job.nodes)

    def _of(
        self, job: RmsJob, declared: _Declared, terms: RequeueTerms, end_s: int, nodes: Collection[str]
    ) -> PreemptibleJob:
        number_of = self._site.book.timeline.number_of
        return PreemptibleJob(
            key=job.key,
            uid=job.uid,
            user=job.user,
            run=PreemptibleRun(
                name=job.key,
                nodes=tuple(sorted(number_of[name] for name in nodes if name in number_of)),
                start_s=declared.start_s,
                end_s=end_s,
                terms=terms,
                keeps_work=bool(declared.checkpoint) or declared.is_saved,
            ),
            checkpoint=declared.checkpoint,
            nodes=tuple(sorted(nodes)),
            memory_bytes=machine_memory_bytes(job) if declared.is_saved else None,
        )

    def notice_s(self, job: RmsJob) -> int | None:
        """How long a job that is about to run will need to go when it is told; None: it will stay."""
        if job.metadata is None or (self.order is not None and self.order.spares(LeaseOwner(user=job.user))):
            return None
        terms = _declared(self._site.settings, job, 0).terms
        return None if terms is None else terms.notice_s

    def leave(self, key: str) -> None:
        """It has these nodes no more."""
        found = self.all.pop(key, None)
        for name in () if found is None else found.nodes:
            self.on[name].pop(key)
            if not self.on[name]:
                del self.on[name]
        self._share_disks(() if found is None else found.nodes)

    def _enter(self, found: PreemptibleJob) -> None:
        self.all[found.key] = found
        for name in found.nodes:
            self.on.setdefault(name, {})[found.key] = found

    def _share_disks(self, nodes: Iterable[str]) -> None:
        """Machines on one node are saved to one disk: each may have to wait for all of them. A job's machines
        are saved together, so that its fullest node counts."""
        there = {job.key: job for name in nodes for job in self.on.get(name, {}).values()}
        for job in there.values():
            if job.memory_bytes is not None:
                grace_s = max(saving_s(self._site.settings, self._saved_bytes(name)) for name in job.nodes)
                terms = replace(job.run.terms, grace_s=grace_s)
                self._enter(replace(job, run=replace(job.run, terms=terms)))

    def _saved_bytes(self, node: str) -> int:
        return sum(job.memory_bytes or 0 for job in self.on.get(node, {}).values())

    def forget(self, key: str) -> None:
        """Its run is over."""
        self._declared.pop(key, None)

    def _declared_by(self, job: RmsJob) -> _Declared | None:
        if job.start_s is None or job.metadata is None:
            return None
        known = self._declared.get(job.key)
        if known is None or known.start_s != job.start_s:
            known = self._declared[job.key] = _declared(self._site.settings, job, job.start_s)
        return known


def _declared(settings: Settings, job: RmsJob, start_s: int) -> _Declared:
    try:
        lines = parse_job_lines(job.metadata or "")
    except TextError:
        return _Declared(start_s, None)
    if not lines.is_preemptible or refusal_of(settings, lines, job):
        return _Declared(start_s, None)
    return _Declared(start_s, terms_of(settings, lines), lines.checkpoint, is_saved=lines.is_suspendable)


def terms_of(settings: Settings, lines: JobLines) -> RequeueTerms:
    """How a job goes that may be requeued."""
    grace_s = 0
    if lines.is_suspendable:
        # Its time is known once it is known what else is saved on its node.
        return RequeueTerms(grace_s=SAVING_SPARE_S, margin_s=settings.requeue_margin_s, goes_by_itself=True)
    if lines.checkpoint:
        grace_s = min(GRACE_S, settings.most_requeue_grace_s) if lines.grace_s is None else lines.grace_s
    return RequeueTerms(grace_s=grace_s, margin_s=settings.requeue_margin_s)


def saving_s(settings: Settings, memory_bytes: int) -> int:
    """How long it takes to save machines with so much memory on one disk, at most."""
    return SAVING_SPARE_S + math.ceil(memory_bytes / settings.saving_rate_bytes_per_s)


def machine_memory_bytes(job: RmsJob) -> int:
    return job.machine_bytes or dict(job.resources.amounts).get("memory_mib", 0) << 20


def refusal_of(settings: Settings, lines: JobLines, job: RmsJob) -> str:
    """Why this site does not take a job that says that it can be requeued; nothing if it does."""
    if lines.is_machine and (words := _no_machine(settings)):
        return words
    if not lines.is_preemptible:
        return ""
    kind = "suspend" if lines.is_suspendable else "requeue"
    if not settings.allows_preemptible:
        return f"preemptible is {kind}, and this site requeues no jobs (jobs.preemptible): leave it out"
    if lines.is_suspendable and not job.can_save:
        return (
            "preemptible is suspend, and the batch system cannot have this job's machine saved: leave it out"
        )
    if lines.is_suspendable and not machine_memory_bytes(job):
        return "preemptible is suspend, and it is not known how much memory the machine has: ask for memory"
    most_s = settings.most_requeue_grace_s
    if lines.grace_s is not None and lines.grace_s > most_s:
        return (
            f"grace is {format_duration(lines.grace_s)}, and this site waits for at most "
            f"{format_duration(most_s)} (jobs.most_grace): ask for less"
        )
    if not job.can_requeue:
        return (
            f"preemptible is {kind}, and the batch system cannot requeue this job: it is interactive, may "
            "not be run again, or is an array of Grid Engine's; leave it out"
        )
    if lines.checkpoint and not job.can_be_signalled:
        return f"checkpoint is {lines.checkpoint}, and the batch system sends none: leave it and grace out"
    return ""


def _no_machine(settings: Settings) -> str:
    """Why a job cannot run in a virtual machine here; nothing if it can."""
    if not settings.allows_machines:
        return "run is vm, and this site runs no jobs in virtual machines (jobs.machines): leave it out"
    return ""
