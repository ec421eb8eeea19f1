"""What is asked of a batch system, and what it answers: values and one Protocol.

Every change may be asked for twice: `reserve`, `unreserve`, `hold`, `release`, `bind`,
`note` and `cancel` say what should be, not what should happen, and asking for what is
already so is no error. Nothing here waits for a transfer or decides who may do what.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from outrider.core.model import Resources


class RmsError(Exception):
    """The batch system could not do what was asked."""

    exit_code = 1


class Unavailable(RmsError):
    """It does not answer now. Nothing is known of whether the change was made: ask again."""


class Refused(RmsError):
    """It answered no, and will answer no again: its own reason is in the message."""


class Unknown(Refused):
    """There is no such job, node or reservation (any more)."""


class JobState(Enum):
    """Where a job is in its life, as far as staging is concerned."""

    HELD = "held"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"


# Which state may follow which. A requeued job goes back to pending or held.
STEPS: dict[JobState, frozenset[JobState]] = {
    JobState.HELD: frozenset({JobState.PENDING, JobState.ENDED}),
    JobState.PENDING: frozenset({JobState.HELD, JobState.STARTING, JobState.RUNNING, JobState.ENDED}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.PENDING, JobState.HELD, JobState.ENDED}),
    JobState.RUNNING: frozenset({JobState.SUSPENDED, JobState.PENDING, JobState.HELD, JobState.ENDED}),
    JobState.SUSPENDED: frozenset({JobState.RUNNING, JobState.PENDING, JobState.HELD, JobState.ENDED}),
    JobState.ENDED: frozenset(),
}


class NodeState(Enum):
    """Whether a node can be promised to anybody."""

    UP = "up"
    DRAINED = "drained"
    """It finishes what it has and takes nothing new."""
    DOWN = "down"


@dataclass(frozen=True, kw_only=True, slots=True)
class RmsNode:
    """A node as the batch system knows it."""

    name: str
    capacity: Resources
    state: NodeState = NodeState.UP


@dataclass(frozen=True, kw_only=True, slots=True)
class RmsJob:
    """A job, with what of it matters to staging. `metadata` is the user's own text: not trusted."""

    key: str
    user: str
    uid: int
    state: JobState
    nodes_wanted: int = 1
    resources: Resources
    limit_s: int | None
    submitted_s: int
    nodes: tuple[str, ...] = ()
    start_s: int | None = None
    metadata: str | None = None
    reservation: str | None = None
    account: str = ""
    is_held_by_us: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RmsReservation:
    """An advance reservation in the batch system: exactly these nodes, for these users."""

    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    users: tuple[str, ...]
    is_ours: bool = True

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError(f"reservation {self.name} has no node")
        if self.end_s <= self.start_s:
            raise ValueError(f"reservation {self.name} ends at {self.end_s}, not after {self.start_s}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A job to be handed to the batch system in a user's name."""

    user: str
    uid: int
    argv: tuple[str, ...]
    nodes_wanted: int
    resources: Resources
    limit_s: int | None
    metadata: str | None = None
    reservation: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """Everything at one look. What a look does not show is not known to exist."""

    at_s: int
    nodes: tuple[RmsNode, ...]
    jobs: tuple[RmsJob, ...]
    reservations: tuple[RmsReservation, ...]


class BatchSystem(Protocol):
    """One batch system. Calls block for as long as its own commands do, with a timeout."""

    @property
    def name(self) -> str: ...

    def look(self) -> Sight:
        """Nodes, jobs that have not ended, reservations."""

    def reserve(self, wanted: RmsReservation) -> None:
        """Let exactly this reservation be there: made, or changed to be so.

        `Refused` if it overlaps another reservation, or a node is unknown. Jobs that run on
        the nodes are no reason: clearing the nodes is the caller's business.
        """

    def unreserve(self, name: str) -> None:
        """Let there be no reservation of that name. Jobs bound to it are unbound and held."""

    def bind(self, job: str, reservation: str) -> None:
        """Let a job that has not started run in that reservation."""

    def hold(self, job: str, reason: str) -> None:
        """Let a job that has not started wait until it is released; the user sees why."""

    def release(self, job: str, nodes: tuple[str, ...] = ()) -> None:
        """Let a held job start; on these nodes, if any are named."""

    def note(self, job: str, text: str) -> None:
        """Show a line to the user where jobs are listed."""

    def suspend(self, job: str) -> None:
        """Let a running job give its nodes back and remember its work."""

    def resume(self, job: str) -> None:
        """Let a suspended job go on."""

    def cancel(self, job: str, reason: str) -> None:
        """End a job; one that has ended stays so."""

    def submit(self, submission: Submission) -> str:
        """Hand a job over; its key."""
