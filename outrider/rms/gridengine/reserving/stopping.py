"""Jobs that make way: each is stopped on its node before Grid Engine is asked to requeue it.

`qmod -rj` puts a job back into the queue at once, and its node kills it a second or some later. What ends by
itself meanwhile, or has ended just before and was not reported yet, has its result and would run once more. A
job that is stopped ends no more; one that was over before that is reported, and gone, when it is requeued.

What was stopped is written in its context. Where nobody requeues it in the end, since its nodes are not
needed any more, it goes on.
"""

from __future__ import annotations

from outrider.rms.base import JobState, RmsJob, Unavailable
from outrider.rms.gridengine import context
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.snapshot import Snapshot

ON_NODES = (JobState.STARTING, JobState.RUNNING)
REPORTED_S = 3
"""The end of a job is known so long after it. Measured: a second, at a load of 12 on 2 processors."""
FORGOTTEN_S = 30
"""Whoever wants a job requeued asks again more often than this."""


def requeue(commands: GridEngineCommands, job: RmsJob, detail: Detail, reason: str, now_s: int) -> None:
    """Let a job that runs be requeued, held. Unavailable as long as its end may be under way."""
    noted = ["-h", "s", "-ac", f"{context.NOTE}={context.shown(reason)}"]
    # By its checkpoint it would be saved, and one without processes cannot be stopped.
    can_stop = not detail.checkpoint and job.state is JobState.RUNNING
    stopped_s = context.stopped_s(detail, job.start_s)
    if can_stop and stopped_s is None:
        # Held first, lest it start again before it is known where it may.
        mark = f"{context.STOPPED}={job.start_s}:{now_s}"
        commands.ask("qalter", *noted, "-ac", mark, detail.number)
        commands.attempt("qmod", "-sj", job.key)
        raise Unavailable(f"job {job.key} is being stopped")
    if stopped_s is not None and now_s - stopped_s < REPORTED_S:
        raise Unavailable(f"job {job.key} is being stopped")
    commands.ask("qalter", *noted, "-dc", context.STOPPED, detail.number)
    commands.ask("qmod", "-rj", job.key)


def let_go_on(commands: GridEngineCommands, snapshot: Snapshot) -> None:
    """Jobs that were stopped and need not make way any more."""
    now_s = snapshot.sight.at_s
    for job in snapshot.sight.jobs:
        detail = snapshot.details[job.key.partition(".")[0]]
        if context.STOPPED not in detail.context or job.state not in ON_NODES:
            continue
        stopped_s = context.stopped_s(detail, job.start_s)
        if stopped_s is not None and now_s - stopped_s >= FORGOTTEN_S:
            commands.attempt("qmod", "-usj", job.key)
            commands.attempt("qalter", "-h", "S", "-dc", context.STOPPED, detail.number)
