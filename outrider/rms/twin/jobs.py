"""A job inside the twin: what changes over its life, and the instants at which it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from outrider.rms.base import JobState, RmsJob, Submission

OCCUPYING = frozenset({JobState.STARTING, JobState.RUNNING})
"""States in which a job has nodes."""
MAIN_QUEUE = "main"
"""Where jobs are of which nothing else is said."""
WAITING = frozenset({JobState.HELD, JobState.PENDING})
"""States before a start."""


class Holder(Enum):
    """Who keeps a job from starting."""

    OURS = "service"
    SYSTEM = "batch system"
    OTHER = "user or administrator"


@dataclass(frozen=True, slots=True)
class Leaving:
    """A job on its way off its nodes: when it is off, what it is then, and why."""

    at_s: int
    to: JobState
    why: str
    kept_s: int | None = None
    """How much work of this run it keeps, if it is being saved."""


@dataclass(slots=True, eq=False)
class TwinJob:
    """The twin's own record of a job. `number` is the order of submission."""

    number: int
    submission: Submission
    submitted_s: int
    work_s: int | None
    reservation: str | None
    state: JobState = JobState.PENDING
    holders: set[Holder] = field(default_factory=set)
    wanted_nodes: tuple[str, ...] = ()
    """Those that it may start on, if it was released to some."""
    eligible: tuple[str, ...] = ()
    """Those that its user allows; empty means all."""
    queue: str = ""
    """The queue that its user has named."""
    ticket: str = ""
    """What it carries to its nodes."""
    shown: str = ""
    """The line that its user sees."""
    eligible_s: int = 0
    nodes: tuple[str, ...] = ()
    start_s: int | None = None
    ready_s: int = 0
    """When its prolog will have ended; its work begins then."""
    leaving: Leaving | None = None
    option: int = 0
    """The one of its options whose size it was given."""
    wants_to_go_on: bool = False
    """Resumed while it was still being saved."""
    done_s: int = 0
    """Work that was saved when it was suspended."""
    used_s: int = 0
    """What of its limit went by before it was suspended."""
    saved_nodes: tuple[str, ...] = ()
    """Where its machines were saved last; it starts there and nowhere else."""
    starts: int = 0
    """How often it was started."""
    lands_on: tuple[str, ...] = ()
    """Where room is kept for its running machine, which is on its way there."""
    lands_image: str = ""
    """Where its image is there."""
    lands_since_s: int = 0

    @property
    def key(self) -> str:
        return str(self.number)

    def limit_from(self, start_s: int) -> int | None:
        """When its limit would be reached if it started then."""
        limit_s = self.submission.limit_s
        return None if limit_s is None else start_s + max(1, limit_s - self.used_s)

    def limit_end_s(self) -> int | None:
        """When the limit of a job with nodes is reached."""
        assert self.start_s is not None
        return self.limit_from(self.start_s)

    def work_end_s(self) -> int | None:
        """When a job with nodes will have done its work."""
        return None if self.work_s is None else self.ready_s + max(1, self.work_s - self.done_s)

    def seen(self) -> RmsJob:
        """What a look shows of it."""
        submission = self.submission
        return RmsJob(
            key=self.key,
            user=submission.user,
            uid=submission.uid,
            state=self.state,
            nodes_wanted=submission.nodes_wanted,
            resources=submission.resources,
            limit_s=self.limit_from(0),
            submitted_s=self.submitted_s,
            nodes=self.nodes,
            start_s=self.start_s,
            metadata=submission.metadata,
            reservation=self.reservation,
            is_held_by_us=Holder.OURS in self.holders and self.state is JobState.HELD,
            has_failed=Holder.SYSTEM in self.holders,
            tag=submission.tag,
            account=submission.account,
            eligible=self.eligible,
            can_requeue=True,
            can_be_signalled=True,
            can_save=True,
            queue=self.queue or MAIN_QUEUE,
            option=self.option,
        )
