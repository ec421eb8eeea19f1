"""What real batch systems do differently, as data, and the two hooks that they run on nodes.

`SLURM` and `GRID_ENGINE` have the delays and habits that were measured on the real ones.
The twin's own rules, `Rules()`, have no delay, so that a test can work out every second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.rms.base import JobState, RmsJob, Submission


@dataclass(frozen=True, kw_only=True, slots=True)
class TwinRules:
    """How this twin behaves where batch systems differ.

    `pass_every_s`: jobs are started at multiples of it. `sweep_every_s`: so are what passed
    its limit, and reservations, ended. `prolog_s`: how long a start takes. `save_s`: how long
    a job that is suspended keeps its nodes. `kill_s`: how long one does that is killed.
    `requeue_delay_s`: how long a job that was requeued may not start again. `machine_save_s` and
    `machine_kill_s`: in the place of the two for a job in a virtual machine, if not None.
    """

    pass_every_s: int = 1
    sweep_every_s: int = 1
    prolog_s: int = 0
    save_s: int = 0
    kill_s: int = 0
    requeue_delay_s: int = 0
    machine_save_s: int | None = None
    machine_kill_s: int | None = None
    is_prolog_on_every_node: bool = True
    """Or on the first one alone."""
    unstarted_at_end: JobState = JobState.HELD
    """What becomes of a job that did not start in its reservation: held, or ended."""
    starts_beyond_end: bool = True
    """A job may start whose limit reaches beyond its reservation: it is ended with it."""
    deletes_in_use: bool = False
    """An administrator may delete a reservation in which a job runs, which ends the job."""
    reruns_after_failure: bool = True
    """A job whose node fails waits again, rather than having ended."""
    saves_machines: bool = True
    """A job's machine can be told to be saved, if it runs in one."""
    moves_machines: bool = False
    """A saved machine can be brought to another node: its job starts where it is."""
    jobs_on_a_processor: int = 1
    """So many jobs may have the same one."""
    release_ends_all_holds: bool = False
    """Our release ends a user's or administrator's hold, too."""

    def __post_init__(self) -> None:
        if min(self.pass_every_s, self.sweep_every_s) < 1:
            raise ValueError("pass_every_s and sweep_every_s are 1 or more")
        if min(self.prolog_s, self.save_s, self.kill_s, self.requeue_delay_s) < 0:
            raise ValueError("prolog_s, save_s, kill_s and requeue_delay_s cannot be negative")
        if min(self.machine_save_s or 0, self.machine_kill_s or 0) < 0:
            raise ValueError("machine_save_s and machine_kill_s cannot be negative")
        if self.unstarted_at_end not in (JobState.HELD, JobState.ENDED):
            raise ValueError(f"unstarted_at_end is held or ended, not {self.unstarted_at_end.value}")

    def leaving_s(self, *, is_saved: bool, is_machine: bool) -> int:
        """How long a job keeps its nodes that is to leave them."""
        machine_s = self.machine_save_s if is_saved else self.machine_kill_s
        if is_machine and machine_s is not None:
            return machine_s
        return self.save_s if is_saved else self.kill_s


SLURM = TwinRules(
    pass_every_s=4,
    sweep_every_s=30,
    prolog_s=1,
    save_s=3,
    kill_s=2,
    requeue_delay_s=121,
    release_ends_all_holds=True,
)
GRID_ENGINE = TwinRules(
    pass_every_s=2,
    prolog_s=1,
    save_s=3,
    kill_s=1,
    requeue_delay_s=10,
    is_prolog_on_every_node=False,
    unstarted_at_end=JobState.ENDED,
    starts_beyond_end=False,
    deletes_in_use=True,
    reruns_after_failure=False,
)


@dataclass(frozen=True, slots=True)
class NotReady:
    """A prolog's answer: the job cannot start on this node now."""

    reason: str


Prolog = Callable[[RmsJob, str], NotReady | None]
"""Asked with the job and a node before the job runs there; None is "go on".

A job that is not ready goes back to the queue, held, with the reason; the node stays as it is.
"""
Epilog = Callable[[RmsJob, str], None]
"""Told with the job, as it was, and a node that the job has left: also after a prolog said no."""
WorkTime = Callable[[Submission], int | None]
"""How long a job would really run, were there no limit; None is forever."""


def go_on(job: RmsJob, node: str) -> None:
    """A prolog that finds nothing missing."""


def pass_by(job: RmsJob, node: str) -> None:
    """An epilog with nothing to tidy."""


def work_in_argv(submission: Submission) -> int | None:
    """What `sleep 30` says of itself. Anything else runs until its limit."""
    command, *arguments = submission.argv or ("",)
    if command == "sleep" and len(arguments) == 1 and arguments[0].isdecimal():
        return int(arguments[0])
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """What happens on the nodes, and how long jobs really take."""

    prolog: Prolog = go_on
    epilog: Epilog = pass_by
    work_s: WorkTime = work_in_argv
