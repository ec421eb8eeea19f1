"""Machines of jobs that somebody wants suspended, or to go on: their owners, and administrators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from outrider.rms.base import JobState
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.job_effects import RESUME, machine_of, resume_effect, suspend_effect
from outrider.service.desk.jobs.interruption.machine_moves import order_move
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.state.site import Site
from outrider.service.requests import Caller, MigrateJob, ResumeJob, SuspendJob
from outrider.store.records import Effect


def order(
    site: Site,
    orders: JobOrders,
    entries: Mapping[str, JobEntry],
    request: SuspendJob | ResumeJob | MigrateJob,
    caller: Caller,
) -> Trouble | str:
    """Have it done; why not, if it is not to be done; of a machine that moves, what is done. What is so
    already is no error."""
    entry = entries.get(request.job)
    if entry is None:
        words = f"job {request.job[:40]} neither waits for an image nor runs with one"
        return Trouble(code="not-found", message=words)
    if not caller.is_admin and entry.job.uid != caller.uid:
        return Trouble(code="not-allowed", message=f"job {entry.key} is somebody else's")
    if isinstance(request, MigrateJob):
        return order_move(site, entry, entries.values(), request.node, caller.user)
    if isinstance(request, SuspendJob):
        return _suspend(site, orders, entry, caller) or ""
    return _resume(site, entry, caller) or ""


def _suspend(site: Site, orders: JobOrders, entry: JobEntry, caller: Caller) -> Trouble | None:
    job = entry.job
    if not orders.take_back(machine_of(job.key), RESUME):
        # Which run of it would be suspended is known when it runs.
        return Trouble(code="conflict", message=f"job {job.key} is about to go on: suspend it when it runs")
    if job.state is JobState.SUSPENDED:
        return None
    if entry.lines is None or not entry.lines.is_machine or not job.can_save:
        words = f"job {job.key} runs in no virtual machine (run: vm): it cannot be suspended"
        return Trouble(code="conflict", message=words)
    if job.state is not JobState.RUNNING or job.start_s is None:
        words = f"job {job.key} is {job.state.value}: only one that runs can be suspended"
        return Trouble(code="conflict", message=words)
    reason = f"outrider: suspended by {caller.user}; outrider resume {job.key} lets it go on"
    site.todo([_anew(site, suspend_effect(job.key, job.start_s, reason, site.now_s))])
    site.note("machine", f"job {job.key}", "suspended", f"by {caller.user}", uid=job.uid)
    return None


def _resume(site: Site, entry: JobEntry, caller: Caller) -> Trouble | None:
    job = entry.job
    # One that runs may be about to be saved: the batch system knows that, and a service that was killed since
    # does not. What runs on runs on.
    if job.state is JobState.SUSPENDED or (job.state is JobState.RUNNING and job.can_save):
        site.todo([_anew(site, resume_effect(job.key, site.now_s))])
        site.note("machine", f"job {job.key}", "resumed", f"by {caller.user}", uid=job.uid)
        return None
    if job.state is JobState.RUNNING or job.is_held_by_us:
        return None
    return Trouble(code="conflict", message=f"job {job.key} is {job.state.value}, not suspended")


def _anew(site: Site, effect: Effect) -> Effect:
    """The same within one second, after it was done or after another wish, is wanted once more."""
    identity, count = effect.identity, 1
    last = next(reversed(site.store.waiting_effects(effect.subject)), None)
    while site.store.knows_effect(identity) and not (last is not None and last.identity == identity):
        count += 1
        identity = f"{effect.identity} {count}"
    return replace(effect, identity=identity)
