"""How a running machine gets into a holder job on another node: what is next, whatever was killed before.

A holder job of the same user takes room over there and receives the machine
(`cachemgr/machines/batch/steps/holding.py`); its name says how far it is. The job itself goes back to the
queue, held, and names its holder: one that has its machine, and one to which it goes. Nothing else is
remembered between two looks. Batch systems differ in how all that is asked for and written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cachemgr.machines.batch.steps.marks import HAS, HOLDER_NAME, READY, WAITS
from outrider.rms.base import Landing, Unavailable

PROGRAM = "/usr/lib/outrider/machine"
ROOM_S = 180
"""So long a holder job may wait for its room and its image, and then begin to listen."""
SUBMITTED_S = 5.0
"""So long the command of its user's that hands it over may take: others wait meanwhile."""
SPARE_S, SLOW_FACTOR = 600, 3
"""So much longer than its memory takes at the rate it may be on its way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderJob:
    """How a holder job stands now, or stood when it ended."""

    key: str
    word: str
    """How far it says that it is; nothing if its name is another one."""
    submitted_s: int
    nodes: tuple[str, ...]
    """Where it is, or wants to be; nothing if that is no longer known."""
    is_over: bool = False
    is_waiting: bool = False
    """For its room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MovingJob:
    """How the job stands whose machine is to go."""

    key: str
    is_waiting: bool
    """In the queue, by itself: its machine is not where the batch system has begun it."""
    is_suspended: bool
    has_landed: bool
    """Whether its machine was in a holder before."""
    memory_bytes: int


class HolderSteps(Protocol):
    """What is asked of a batch system for one job. Each may be asked for twice."""

    def landed(self, target: HolderJob) -> None:
        """Note that the machine is in that holder, which is no longer one to which it goes."""

    def forget(self) -> None:
        """Note that it goes nowhere."""

    def end(self, holder: HolderJob) -> None:
        """Cancel a holder job."""

    def leave(self) -> None:
        """Tell the machine to go where a holder waits for it, or to be saved."""

    def put_first(self, target: HolderJob) -> None:
        """Let nothing that waits keep a holder from its room."""

    def begin(self) -> bool:
        """Find the holder that an earlier service has submitted, or submit one, and note it; Unavailable
        then. Whether it cannot be."""


def word_of(name: str, job: str) -> str:
    """How far a holder of that job says that it is; nothing if it is none."""
    return next((word for word in (HAS, READY, WAITS) if name == HOLDER_NAME.format(word, job)), "")


def land(
    job: MovingJob,
    source: HolderJob | None,
    target: HolderJob | None,
    wanted: Landing,
    steps: HolderSteps,
    now_s: int,
) -> bool:
    """Whether its machine runs on that node. `source` is the holder that has it, `target` one to which it
    goes. Raises Unavailable while it is on its way."""
    if target is not None and target.nodes not in ((), (wanted.node,)):
        _end_earlier(job, target, steps)
        raise Unavailable(f"an earlier move of job {job.key} has just ended")
    if target is not None:
        return _goes_on(job, source, target, wanted, steps, now_s)
    if source is not None and source.nodes == (wanted.node,):
        return True
    if job.is_waiting and source is None:
        # What has landed is no more suspended; if it runs nowhere it is over by now.
        return job.has_landed and not job.is_suspended
    return wanted.begins and steps.begin()


def _end_earlier(job: MovingJob, target: HolderJob, steps: HolderSteps) -> None:
    """A move that was given up, or whose end nobody has noted: its machine is there, or does not come."""
    if target.word == HAS and (job.is_waiting or target.is_over):
        steps.landed(target)
        return
    steps.end(target)
    steps.forget()


def _goes_on(
    job: MovingJob,
    source: HolderJob | None,
    target: HolderJob,
    wanted: Landing,
    steps: HolderSteps,
    now_s: int,
) -> bool:
    """Of a machine for which there is a holder on its next node."""
    is_there = job.is_waiting and source is None
    if target.word == HAS and (job.is_waiting or target.is_over):
        steps.landed(target)
        return True
    if target.is_over:
        steps.forget()
        return False
    if now_s > target.submitted_s + _most_s(job, wanted, target):
        steps.end(target)
        steps.forget()
        return False
    if not is_there and wanted.begins and target.word == READY:
        # It is told again if it was told before: the machine goes, or is saved if it cannot.
        steps.leave()
    elif target.word == WAITS and wanted.goes_first and target.is_waiting:
        steps.put_first(target)
    raise Unavailable(f"job {target.key} on {wanted.node} has not the machine of job {job.key} yet")


def _most_s(job: MovingJob, wanted: Landing, target: HolderJob) -> int:
    """How long a holder job may take from its submission on: for its room, and then for the machine, whatever
    it says of that."""
    if target.word == WAITS:
        return ROOM_S
    return ROOM_S + SPARE_S + SLOW_FACTOR * job.memory_bytes // wanted.rate_bytes_per_s
