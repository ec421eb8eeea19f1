"""What is asked of a batch system, and what it answers: values and one Protocol.

Every change may be asked for twice: `reserve`, `unreserve`, `hold`, `release`, `bind`, `resize`,
`note`, `ticket`, `requeue`, `save` and `cancel` say what should be, not what should happen, and asking for
what is already so is no error. `submit` is not so: it makes a new job each time; nor `signal`. Nothing
here waits for a transfer or decides who may do what.

A change is asked for, not awaited: what it brings about (a job that starts, one that ends
when it is killed) is seen at a later look. What each call guarantees is written as tests
in tests/contract, which every implementation has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, runtime_checkable

from outrider.core.model import Resources

NOTHING = Resources(())


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
    memory_bytes: int = 0
    """All the memory that it has, where `capacity` does not tell it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RmsJob:
    """A job, with what of it matters to staging. `metadata` is the user's own text: not trusted.

    `reservation` is one that the same look shows, or None: a job whose reservation has gone
    is bound to nothing. `is_held_by_us` tells a hold of `hold` (or `unreserve`) from others:
    the user's, an administrator's, the batch system's own after a start that failed.
    """

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
    is_hint: bool = False
    """Whether the metadata were only noticed in what it runs: its image is brought, and it is never held."""
    reservation: str | None = None
    account: str = ""
    is_held_by_us: bool = False
    tag: str = ""
    """The one that it was submitted with."""
    eligible: tuple[str, ...] = ()
    """The nodes on which it may run by its partition and its user's own wishes, as far as that
    is known, sorted; empty means all. What our own `release` named does not count."""
    has_failed: bool = False
    """Whether it is held by the batch system because its last start has failed."""
    can_requeue: bool = False
    """Whether it can be sent back into the queue: an interactive one cannot."""
    can_be_signalled: bool = False
    """Whether it can be told so by a signal beforehand."""
    can_save: bool = False
    """Whether it can be told to save its virtual machine, if it runs in one, and then goes back by itself."""
    saved_on: tuple[str, ...] = ()
    """The nodes on which its machines are saved, while it waits, in the order of the machines."""
    elsewhere: tuple[str, ...] = ()
    """Other nodes on which it may run, if its machine can move there (`move`), as the batch system numbers
    them. Of several machines the first one has to be on the first of their nodes."""
    machine_bytes: int = 0
    """The memory that it asks for its machine, where `resources` do not tell it."""
    tasks: int = 1
    """How many jobs of this kind wait under its key: an array that waits is shown as one job."""
    is_blocked: bool = False
    """Whether it waits for other jobs, or for a time of its user's own, if the batch system says so."""
    queue: str = ""
    """The partition or queue that it is in; the first, of a job that may start in several."""
    option: int = 0
    """Of a job with several options the one whose size it was given, from 1 on; 0 if it was given none."""
    stands_for: str = ""
    """Of a holder job (`land`) the job for whose machine it is."""
    payer: str = ""
    """Then that one's account, whatever the batch system charges."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobUse:
    """What a job that is over had of its node, by the batch system's own account."""

    start_s: int
    end_s: int
    cpus: int
    group: str
    """The primary group of its user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RmsReservation:
    """An advance reservation in the batch system: exactly these nodes, for these users.

    Nodes and users are kept sorted, so that what was wanted and what is seen compare equal.
    `size` is what it has of each node, if that is not all of it; nothing means the nodes as a whole.
    """

    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    users: tuple[str, ...]
    is_ours: bool = True
    size: Resources = NOTHING
    key: str = field(default="", compare=False)
    """What the batch system calls it in its own commands, if not by its name. It may change."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError(f"reservation {self.name} has no node")
        if self.end_s <= self.start_s:
            raise ValueError(f"reservation {self.name} ends at {self.end_s}, not after {self.start_s}")
        object.__setattr__(self, "nodes", tuple(sorted(set(self.nodes))))
        object.__setattr__(self, "users", tuple(sorted(set(self.users))))

    @property
    def is_whole(self) -> bool:
        return not self.size.amounts


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A job to be handed to the batch system in a user's name.

    `tag` is the service's own mark on it, or empty: when nobody knows whether a submission was
    carried out, a look that shows a job with its tag says that it was.
    """

    user: str
    uid: int
    argv: tuple[str, ...]
    nodes_wanted: int
    resources: Resources
    limit_s: int | None
    metadata: str | None = None
    reservation: str | None = None
    tag: str = ""
    account: str = ""
    """Which it is charged to; empty: the one that the batch system charges without being told."""
    machine: str = ""
    """What the program that runs it in a virtual machine is told of that (`run=vm,memory=512`); empty: it
    runs in none. `Refused` where machines' jobs are handed over otherwise."""
    folder: str = ""
    """Where it begins; empty: in its user's home."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Landing:
    """A running machine's way to another node, in a holder job of its owner's.

    `start_s`: since when the job runs that is meant. `metadata`: what the holder job needs there, the
    machine's image. `begins`: whether it may begin now, or is only asked about. `account`: which the holder
    job is charged to; empty: the job's own.
    """

    job: str
    start_s: int
    node: str
    metadata: str
    rate_bytes_per_s: int
    reason: str = ""
    goes_first: bool = False
    begins: bool = True
    account: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """Everything at one look. What a look does not show is not known to exist.

    Nodes come by name, jobs by submission and then key, reservations by start and then name.
    """

    at_s: int
    nodes: tuple[RmsNode, ...]
    jobs: tuple[RmsJob, ...]
    reservations: tuple[RmsReservation, ...]
    silent: tuple[str, ...] = ()
    """Of the nodes that were asked for beside it, those of which `silent` has told."""
    numbered: tuple[str, ...] = ()
    """All nodes in the order in which the batch system numbers those of a job, if that is not by name."""
    queues: tuple[str, ...] = ()
    """The partitions or queues that have nodes, sorted."""
    sharing: tuple[tuple[str, int], ...] = ()
    """Those of them in which jobs share processors, and how many jobs may have the same one."""
    is_handed_back: bool = False
    """Whether an administrator has given all queues back to the batch system."""
    shares: tuple[tuple[str, int], ...] = ()
    """Users' fair shares, in millionths, where the order of jobs depends on them."""
    order: tuple[str, ...] = ()
    """Jobs in the order that a site's own program has given them, where there is one."""
    order_trouble: str = ""
    """Why shares or that order are not known."""


def look(system: BatchSystem, watched: tuple[str, ...]) -> Sight:
    """A look, and which of the nodes that are watched do not answer although they are up."""
    sight = system.look()
    up = {node.name for node in sight.nodes if node.state is NodeState.UP}
    asked = tuple(name for name in watched if name in up)
    silent = system.silent(asked) if asked else ()
    return replace(sight, silent=silent) if silent else sight


@runtime_checkable
class DrainsNodes(Protocol):
    """A batch system that has no commands of its own by which administrators take nodes out of use."""

    def drain(self, nodes: Sequence[str], *, is_ended: bool) -> None:
        """Let them take no jobs any more, or take them again. `Unknown` if one of them is not there."""


@runtime_checkable
class SubmitsByCommand(Protocol):
    """A batch system to which jobs are handed over by commands that run as their users.

    A user can make such a command last as long as it is allowed to: it is to run where nobody else waits.
    """

    def prepare(self, submission: Submission) -> Callable[[], str]:
        """What hands the job over, in any thread, and tells its key. All of it raises what `submit` does."""

    def settle(self, submission: Submission, job: str) -> None:
        """To be told of the job once it is there."""

    def submit(self, submission: Submission) -> str:
        """All of it, while whoever asks waits."""
        job = self.prepare(submission)()
        self.settle(submission, job)
        return job


class BatchSystem(Protocol):
    """One batch system. Calls block for as long as its own commands do, with a timeout."""

    @property
    def name(self) -> str: ...

    def look(self) -> Sight:
        """Nodes, jobs that have not ended, reservations."""

    def shares(self) -> dict[str, int]:
        """By user, how much of their fair share is left, in millionths: who has had least has most. None,
        where nobody keeps account of that."""

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these nodes on which its own daemon does not answer at this moment, whatever it says of
        their state: it takes a node for lost only after minutes. None, where nobody can tell."""

    def reserve(self, wanted: RmsReservation) -> None:
        """Let exactly this reservation be there: made, or changed to be so.

        `Unknown` if a node is. `Refused` if it overlaps another reservation on a node, unless both have
        parts of it that fit beside each other, if it would be over already, if its name belongs to a
        reservation that is not ours, or if a job that runs in it would be left outside. Other jobs that
        run on the nodes are no reason: clearing the nodes is the caller's business. A start that has
        passed means now; of a reservation that is active already it stays what it was.
        """

    def unreserve(self, name: str) -> None:
        """Let there be no reservation of that name. Jobs bound to it are unbound and held; one that is
        none of ours (no metadata, not handed over here) is held for its user, who can release it.

        `Refused` while a job runs in it, since some batch systems could only kill that, and
        if the reservation is not ours.
        """

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        """Let a job that has not started run in that reservation and nowhere else; None unbinds.
        With `limit_s` it may run for so long from now on, whatever it has asked for.

        `Refused` if the job's user may not use it, or if the job has started elsewhere; with a limit also
        where a job stays in the reservation that it has. Binding neither holds nor releases.
        """

    def hold(self, job: str, reason: str) -> None:
        """Let a job that has not started wait until it is released; the user sees why."""

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        """Let a held job start; on nodes among these, if any are named, and anywhere otherwise.
        A ticket that is named it carries before it may: see `ticket`.

        It ends our holds and the batch system's own, not necessarily one by the user. The
        nodes of an earlier release no longer count. `Refused` if fewer are named than the
        job wants, if it runs elsewhere by now, or if it is suspended.
        """

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        """Let a job that has not started want so many nodes for so long, with `each` on every one: what that
        does not name stays as it was. `option` is shown with the job from then on.

        Its holds, its image and its place in the queue stay. A limit may be rounded up to the unit that the
        batch system counts in. `Refused` if it has started with another size, if it is one of an array, or if
        it could never start so.
        """

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        """Show a line to the user where jobs are listed, in place of an earlier one.

        `start_s` is when a job that we hold is expected to start, or None if nobody knows: where the batch
        system shows expected starts, it shows that one from then on, or none.
        """

    def ticket(self, job: str, text: str) -> None:
        """Let a job carry this text to the hooks on its nodes, in place of an earlier one; empty is none.

        What the user says of the job elsewhere stays as it is.
        """

    def suspend(self, job: str) -> None:
        """Let a running job give its nodes back and remember its work. That takes its time; one that runs on
        may be asked again.
        """

    def resume(self, job: str) -> None:
        """Let a suspended job go on: it waits for nodes like any other, with a start like any other."""

    def signal(self, job: str, name: str, start_s: int) -> None:
        """Send a signal (`USR1`) to the script of a job that runs since `start_s`. It may come twice.

        `Refused` if it does not run, or runs since another time; where the batch system has no
        such signal, too.
        """

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        """Let a job that runs since `start_s` leave its nodes and wait again, held as by `hold`, in the place
        that it had in the queue; the user sees why. That takes its time: the job is told to end first. A
        system that would run once more what ends by itself just then is `Unavailable` until it is stopped.

        One that waits already is held. `Refused` if it runs since another time, or cannot be requeued.
        """

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        """As `requeue`, of a job in a virtual machine: it saves that first, and leaves its nodes when it has.
        With `is_kept` it is suspended then, until `resume` lets it wait for nodes, held as by `hold`.

        How long that takes is the job's; until it has, asking again changes nothing. With `is_kept` a system
        that may miss the first word is `Unavailable` meanwhile. When it starts again, on the node where its
        machine is, it has the time that was left.
        """

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        """Let a suspended job, whose machines are on these nodes now, start again there and nowhere else.
        If it goes first, nothing that waits keeps it from room that is there for it.

        `Refused` if it is not suspended, or where a job's machine cannot move.
        """

    def land(self, wanted: Landing) -> bool:
        """Let a job's machine go on at another node without being saved: whether it runs there now.

        A job of its owner's, the holder, takes room there and receives it; then it stands for the job, which
        is shown as running there. `Unavailable` while that goes on. No means that the machine has not gone
        and will not: there was no room in time, it was saved instead, or the batch system has no such way.
        """

    def use_of(self, job: str) -> JobUse:
        """What a holder job had. `Unavailable` as long as it is not over; `Refused` if nothing is known of it
        any more, or where there are none.
        """

    def cancel(self, job: str, reason: str) -> None:
        """End a job; one that has ended stays so. Ended ones are forgotten after a while: `Unknown`."""

    def submit(self, submission: Submission) -> str:
        """Hand a job over; its key. `Unknown` or `Refused` if it could never start.

        After `Unavailable` the job may be there: look for its tag before asking again.
        """
