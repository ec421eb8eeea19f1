"""What can be asked of the desk: one frozen value for each, already read and checked.

Who asks is known from the system (`Caller`) and never from what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal

from outrider.metadata.workspace import WorkspaceFile
from outrider.service.ports import FoundImage
from outrider.store.records import Payer

MOST_LISTED = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """A user as the kernel or MUNGE vouches for them. `is_admin`: by the service's configuration."""

    uid: int
    user: str
    gids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    is_admin: bool = False
    group: str = ""
    """The primary one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserve:
    """A reservation that is asked for: a workspace with its deployment, and its image as found.

    With `is_plan` it is answered as it would be now, and nothing is changed. `key`: the same request
    with the same key gets the same answer again; `request_hash` tells whether it is the same.
    """

    workspace: WorkspaceFile
    image: FoundImage
    account: str = ""
    zone: tzinfo = UTC
    """In which zone a refusal's reason names times."""
    starts: tuple[int, ...] = ()
    """Of one that recurs, all its starts."""
    role_images: tuple[FoundImage | None, ...] = ()
    """Of one with unlike instances, for each role its image as found; None where it is the workspace's."""
    option_images: tuple[FoundImage | None, ...] = ()
    """Of one with options, the same for each of these."""
    is_best_fit: bool = False
    """Of one that recurs: those that can be kept are accepted, and not all or none."""
    is_plan: bool = False
    most_price: int | None = None
    """What is paid at most, in thousandths; None: whatever it costs."""
    offered_price: int | None = None
    """Of an offer that is accepted: what it was offered for."""
    key: str = ""
    request_hash: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accept:
    """An offer is accepted: its terms are reserved as if they had been asked for."""

    name: str
    key: str = ""
    request_hash: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """What a request with this key was answered before: asked first, since what the request names
    (an image, a time) may not be there any more."""

    key: str
    request_hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BeginSubmission:
    """A job is about to be handed over, unless that was begun before: asked before the batch system is."""

    key: str
    request_hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EndSubmission:
    """What became of one: the job's key, or nothing if it was refused and may be begun anew."""

    key: str
    request_hash: str
    job: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Modify:
    """Other times, another number of nodes, or other instances for a reservation, or all stays as it is.

    What is None stays. With `is_plan` nothing is changed.
    """

    name: str
    start_s: int | None = None
    duration_s: int | None = None
    nodes: int | None = None
    cpus: int | None = None
    """Of each instance, as the other sizes are."""
    memory_mib: int | None = None
    gpus: int | None = None
    is_plan: bool = False
    zone: tzinfo = UTC
    key: str = ""
    request_hash: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """What is asked for of an instance."""
        given = {"cpus": self.cpus, "memory_mib": self.memory_mib, "gpus": self.gpus}
        return {name: amount for name, amount in given.items() if amount is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancel:
    name: str
    key: str = ""
    request_hash: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    """The event of an open reservation has come, its user says; or, with `is_end`, the one that ends it."""

    name: str
    is_end: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedCall:
    """A call that begins or ends an open reservation, whoever makes it: it is signed with its secret."""

    name: str
    what: Literal["begin", "end"]
    at_s: int
    signature: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Show:
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListReservations:
    """Those that are not over, or with `is_past` those that are, the youngest first.

    `after` is the number to go on from.
    """

    is_past: bool = False
    user: str | None = None
    states: tuple[str, ...] = ()
    after: int | None = None
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ListLeases:
    """Leases of every kind that are not over, and one's own offers."""

    kind: str | None = None
    user: str | None = None
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowLease:
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListImages:
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ListNodes:
    names: tuple[str, ...] = ()
    after: str = ""
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ListTransfers:
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowTimeline:
    """What is reserved on nodes between two instants. Without names: those with reservations."""

    from_s: int
    until_s: int
    names: tuple[str, ...] = ()
    most: int = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowOverview:
    """Who has which nodes when, of the whole site."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListJobs:
    """Best-effort jobs that name an image, the first submitted first."""

    user: str | None = None
    states: tuple[str, ...] = ()
    after: str = ""
    """The key to go on from."""
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowJob:
    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspendJob:
    """Save a job's machine, and let the job wait until it is resumed (its owner, administrators)."""

    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeJob:
    """Let a job go on whose machine was saved at somebody's wish."""

    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrateJob:
    """Let a job's machine go on at another node: this one, or one that the service names."""

    job: str
    node: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecideSwitch:
    """Plan a switch of all machines (administrators), and begin it unless `is_plan`. `drained`: nodes that
    are to be empty. `fences`: jobs, and the node where each is to be. `explain`: a job of which is said why
    it moves or not."""

    is_plan: bool = True
    drained: tuple[str, ...] = ()
    fences: tuple[tuple[str, str], ...] = ()
    explain: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowSwitch:
    """The switch that goes on, or the last one (administrators)."""


MachineRequest = SuspendJob | ResumeJob | MigrateJob


@dataclass(frozen=True, kw_only=True, slots=True)
class AskStart:
    """A job is about to start on these nodes (administrators): may it? Without nodes: what is its image?"""

    job: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Explain:
    """Why it was decided so: the decisions about a reservation or a refused request, and its plan."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowReport:
    """What was charged and what was refused within [from_s, until_s), added up. Users are told their own."""

    by: Payer = "user"
    from_s: int = 0
    until_s: int | None = None
    """None: until now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowStatus:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class ListDecisions:
    """What has been decided or has happened since number `after`, oldest first: what `watch` follows."""

    after: int = 0
    most: int = MOST_LISTED


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconcile:
    """Compare store, batch system and nodes now (administrators)."""


Request = (
    Reserve
    | Accept
    | Recall
    | BeginSubmission
    | EndSubmission
    | Modify
    | Cancel
    | Trigger
    | SignedCall
    | Show
    | ListReservations
    | ListLeases
    | ShowLease
    | ListImages
    | ListNodes
    | ListTransfers
    | ShowTimeline
    | ShowOverview
    | ListJobs
    | ShowJob
    | SuspendJob
    | ResumeJob
    | MigrateJob
    | DecideSwitch
    | ShowSwitch
    | AskStart
    | Explain
    | ShowReport
    | ShowStatus
    | ListDecisions
    | Reconcile
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request that waits for its answer under `ticket`."""

    ticket: int
    caller: Caller
    request: Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Woken:
    """There is something new in the batch system."""
