"""Jobs that run and have said that they can be requeued for a reservation, and on which nodes they are.

What a job has declared counts from the start of its run: its user cannot take it back while a reservation
counts on it. Nothing is known here of a job that has not declared itself so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from outrider.core.besteffort.jobs.requeueing import PreemptibleRun, RequeueTerms
from outrider.metadata.errors import TextError
from outrider.metadata.joblines import GRACE_S, JobLines, parse_job_lines
from outrider.metadata.notation.durations import format_duration
from outrider.rms.base import RmsJob
from outrider.service.desk.state.site import Site
from outrider.service.settings import Settings


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


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a job has said of the run that began then; None: that it may not be requeued."""

    start_s: int
    terms: RequeueTerms | None
    checkpoint: str = ""


class PreemptibleJobs:
    """All of them, kept up to date by whoever compares one look with the next."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._declared: dict[str, _Declared] = {}
        self.all: dict[str, PreemptibleJob] = {}
        self.on: dict[str, dict[str, PreemptibleJob]] = {}
        """By node and key."""

    def runs(self) -> tuple[PreemptibleRun, ...]:
        return tuple(job.run for job in self.all.values())

    def begin(self, job: RmsJob, end_s: int, nodes: Collection[str]) -> bool:
        """A job runs on these nodes until then; whether it is one of those that can be requeued."""
        declared = self._declared_by(job)
        if declared is None or declared.terms is None or not nodes:
            return False
        number_of = self._site.book.timeline.number_of
        found = PreemptibleJob(
            key=job.key,
            uid=job.uid,
            user=job.user,
            run=PreemptibleRun(
                name=job.key,
                nodes=tuple(sorted(number_of[name] for name in nodes)),
                start_s=declared.start_s,
                end_s=end_s,
                terms=declared.terms,
                keeps_work=bool(declared.checkpoint),
            ),
            checkpoint=declared.checkpoint,
            nodes=tuple(sorted(nodes)),
        )
        self.all[job.key] = found
        for name in found.nodes:
            self.on.setdefault(name, {})[job.key] = found
        return True

    def leave(self, key: str) -> None:
        """It has these nodes no more."""
        found = self.all.pop(key, None)
        for name in () if found is None else found.nodes:
            self.on[name].pop(key)
            if not self.on[name]:
                del self.on[name]

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
    return _Declared(start_s, terms_of(settings, lines), lines.checkpoint)


def terms_of(settings: Settings, lines: JobLines) -> RequeueTerms:
    """How a job goes that may be requeued."""
    grace_s = 0
    if lines.checkpoint:
        grace_s = min(GRACE_S, settings.most_requeue_grace_s) if lines.grace_s is None else lines.grace_s
    return RequeueTerms(grace_s=grace_s, margin_s=settings.requeue_margin_s)


def refusal_of(settings: Settings, lines: JobLines, job: RmsJob) -> str:
    """Why this site does not take a job that says that it can be requeued; nothing if it does."""
    if not lines.is_preemptible:
        return ""
    if not settings.allows_preemptible:
        return "preemptible is requeue, and this site requeues no jobs (jobs.preemptible): leave it out"
    most_s = settings.most_requeue_grace_s
    if lines.grace_s is not None and lines.grace_s > most_s:
        return (
            f"grace is {format_duration(lines.grace_s)}, and this site waits for at most "
            f"{format_duration(most_s)} (jobs.most_grace): ask for less"
        )
    if not job.can_requeue:
        return (
            "preemptible is requeue, and the batch system cannot requeue this job: it is interactive, may "
            "not be run again, or is an array of Grid Engine's; leave it out"
        )
    if lines.checkpoint and not job.can_be_signalled:
        return f"checkpoint is {lines.checkpoint}, and the batch system sends none: leave it and grace out"
    return ""
