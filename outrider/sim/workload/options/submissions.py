"""Submissions with several options, as a simulated site carries them out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.scheduler import Decided, Scheduler
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import TraceSubmission

if TYPE_CHECKING:
    from outrider.core.options.request import Option


def options_here(options: tuple[Option, ...], setup: Setup) -> tuple[Option, ...]:
    """Options with what a site makes of them: stretched, or without their images."""
    return tuple(
        replace(
            option,
            duration_s=setup.stretched_s(option.duration_s) if setup.slowdown_percent else option.duration_s,
            image=option.image if setup.has_images else None,
        )
        for option in options
    )


def reserve(scheduler: Scheduler, submission: TraceSubmission, now_s: int) -> tuple[Decided, TraceSubmission]:
    """The answer to a reservation, and the submission as it is carried out: by the option that was chosen."""
    workspace = submission.workspace
    if not submission.options:
        return scheduler.reserve(workspace, now_s, tells_earliest=False), submission
    whole = replace(workspace, finish_by_s=None)
    ways: list[Workspace] = [whole]
    ways += [
        replace(
            whole,
            instances=option.instances,
            resources=option.resources,
            duration_s=option.duration_s,
            image=option.image,
        )
        for option in submission.options
    ]
    answer, decided = scheduler.reserve_options(ways, now_s, finish_by_s=workspace.finish_by_s)
    if answer.chosen is None or decided is None:
        refusal = answer.options[0].refusal
        assert refusal is not None
        return Decided(admission=Rejected(refusal=refusal)), submission
    chosen = answer.chosen.workspace
    run_s = submission.run_s * chosen.duration_s // workspace.duration_s
    return decided, replace(submission, workspace=chosen, run_s=run_s)
