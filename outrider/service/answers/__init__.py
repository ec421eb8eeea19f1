"""What the desk answers: frozen values that travel as JSON objects with the same names.

Times are seconds since 1970 and sizes are bytes; nodes are sets in brackets, n[1-4,7]. What
whoever asks may not see is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.service.answers.leases import (
    EventTaken,
    LeaseList,
    LeaseView,
    Occurrence,
    Offer,
    OpenWindow,
    OptionView,
    Report,
)
from outrider.service.answers.site import Overview, Status, Timeline
from outrider.service.answers.switch import SwitchView

Result = Literal["accepted", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageView:
    """An image as a reservation has it."""

    uri: str | None
    digest: str | None
    size_bytes: int
    is_private: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTransfer:
    """One image on its way to one or more nodes.

    It begins at `begin_s` if the link is idle then, and at `latest_begin_s` whatever happens;
    it ends `duration_s` later.
    """

    number: int
    nodes: str
    size_bytes: int
    duration_s: int
    begin_s: int
    latest_begin_s: int
    deadline_s: int

    @property
    def ready_s(self) -> int:
        return self.begin_s + self.duration_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The answer to a request for a reservation, for a plan, or for a change.

    Accepted: the reservation's name (empty for a plan), its nodes and its transfers; the image
    is expected on all nodes at `ready_s`, and will be there by `latest_ready_s`; `slack_s` lies
    between the former and the start. Refused: `cause` (slots, link, pool, policy), `reason`, the
    earliest start that would be accepted now, and what else would work.

    `environment` is the parallel environment with which a job has all of these nodes, if it asks for `slots`
    of it; empty where the batch system has none, or none is needed.
    """

    result: Result
    name: str
    workspace: str
    start_s: int | None
    end_s: int | None
    nodes: str
    node_count: int
    image: ImageView
    transfers: tuple[PlannedTransfer, ...] = ()
    nodes_with_image: str = ""
    saved_bytes: int = 0
    ready_s: int | None = None
    latest_ready_s: int | None = None
    slack_s: int | None = None
    cause: str = ""
    reason: str = ""
    earliest_start_s: int | None = None
    remedies: tuple[str, ...] = ()
    environment: str = ""
    slots: int = 0
    window: OpenWindow | None = None
    """When its event may come, if it waits for one."""
    secret: str = ""
    """Of an open reservation that may be begun or ended by a signed call: what signs it. Told once."""
    notes: tuple[str, ...] = ()
    """What of the workspace is not used, so that nobody relies on it."""
    price: int | None = None
    """What it costs, or what a refused one would, in thousandths; None where nothing has a price."""
    occurrences: tuple[Occurrence, ...] = ()
    """Of a request that recurs; the nodes and times are those of the first, and `name` is that of all."""
    offers: tuple[Offer, ...] = ()
    """Refused: what would be accepted instead."""
    offers_until_s: int | None = None
    """Until when these are held; None if they are not, or not any more for long."""
    are_offers_protected: bool = False
    """Whether no request of another user is accepted meanwhile that would take their place."""
    options: tuple[OptionView, ...] = ()
    """Of a request that can be carried out in several ways: what is said of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeStaging:
    """How far the image is on one node of a reservation.

    `state` is waiting, arriving, ready, failed or unknown.
    """

    node: str
    state: str
    arrived_bytes: int
    size_bytes: int
    rate_bytes_per_s: int = 0
    source: str = ""
    ready_s: int | None = None
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What became of a promise.

    `ready_s` is when the image was on all nodes, None if it never was; `spare_s` is how long
    before the start that was, negative if it was late.
    """

    is_met: bool
    digest: str
    ready_s: int | None
    spare_s: int | None
    transferred_bytes: int
    saved_bytes: int
    sources: tuple[str, ...]
    words: str
    price: int | None = None
    """What was agreed, in thousandths of the site's unit of money; None where nothing has a price."""
    charged: int | None = None
    """What of that is charged: nothing if it was not met, or given up before its start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationView:
    """A reservation in a list."""

    name: str
    number: int
    state: str
    user: str
    account: str
    nodes: str
    node_count: int
    start_s: int
    end_s: int
    image: ImageView
    ready_s: int | None
    """When the image is expected on all nodes, or was there."""
    is_confirmed: bool
    """Whether the batch system has it, too."""
    why: str
    window: OpenWindow | None = None
    """Of one that waits, or has waited, for an event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionLine:
    """Something that was decided, or that happened."""

    number: int
    at_s: int
    kind: str
    name: str
    outcome: str
    reason: str
    user: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationDetails:
    """All about one reservation."""

    reservation: ReservationView
    workspace: str
    accepted_s: int
    changed_s: int
    ended_s: int | None
    staging: tuple[NodeStaging, ...]
    transfers: tuple[PlannedTransfer, ...]
    odds_percent: int | None
    """While it is endangered: how likely it is still to be met, by the rates that were seen."""
    receipt: Receipt | None
    environment: str = ""
    """The parallel environment with which a job has all of its nodes, if it asks for `slots` of it."""
    slots: int = 0
    price: int | None = None
    key: str = ""
    """What the batch system calls it, if that is not its name: a number, by which jobs name it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why it is as it is: sentences, and the decisions that were written down."""

    name: str
    sentences: tuple[str, ...]
    decisions: tuple[DecisionLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """A best-effort job that names an image, or one that runs in a reservation.

    `state` is resolving, refused, waiting, staging, staged, running or suspended, or over if nothing but what
    was decided is known any more; `held` whether the batch
    system does not start it yet; `nodes` those on which its image is kept for it, or is to be;
    `ready_s` when it is expected on enough of them, or was there; `words` what its user is told.
    """

    job: str
    user: str
    state: str
    held: bool
    image: ImageView | None
    nodes_wanted: int
    nodes: str
    node_count: int
    submitted_s: int
    ready_s: int | None
    start_s: int | None
    """When nodes are expected to be free for it; when it starts is up to the batch system."""
    is_overdue: bool
    """Whether it has waited for its image for longer than it should."""
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobList:
    jobs: tuple[JobView, ...]
    next_after: str
    """What to go on with, if there are more; else empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineView:
    """One of a job's virtual machines. `state` is `begins`, `boots`, `joined` (it has its name and address),
    `waits` (for the others), `runs`, `ended`, `failed` or `suspended`."""

    number: int
    name: str
    node: str
    """Empty while no node has said that it is there."""
    address: str
    """Among the job's machines; empty of a machine that is alone, or while no node has said it."""
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDetails:
    """All about one job: how far its image is on each node, and what was decided."""

    job: JobView
    tasks: int
    staging: tuple[NodeStaging, ...]
    released_to: str
    """The nodes to which the batch system was told that it may go; empty while it is held."""
    decisions: tuple[DecisionLine, ...]
    moves: str = ""
    """In the answer to its migration: from where to where its machine moves, and for how long it pauses."""
    machines: tuple[MachineView, ...] = ()
    """Of a job that runs in virtual machines; empty until it runs, and for other users."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether a job may start: go or wait. `digest` is its image's; empty if it is not known yet, None
    if the service does not know the job."""

    verdict: Literal["go", "wait"]
    words: str = ""
    digest: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationList:
    reservations: tuple[ReservationView, ...]
    next_after: int | None
    """What to go on with, if there are more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseDetails:
    """A lease with the reservations that it consists of and that are not over; an offer has none."""

    lease: LeaseView
    reservations: tuple[ReservationView, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOnNodes:
    """An image, where it is, and what needs it.

    `is_private`: not everybody may use it; `owners` are those whose it is then, and of them only
    whoever asks, unless that is an administrator.
    """

    digest: str
    uri: str
    size_bytes: int
    nodes: str
    node_count: int
    coming_nodes: str
    reservations: int
    is_private: bool
    jobs: int = 0
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageList:
    images: tuple[ImageOnNodes, ...]
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginView:
    """A login at a registry, without its password. Without a `user` it cannot be read: log in anew."""

    host: str
    user: str
    since_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginList:
    logins: tuple[LoginView, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """A node: `state` is up, drained, down or away (its pool does not answer)."""

    name: str
    state: str
    capacity: str
    limit_bytes: int | None
    used_bytes: int | None
    reported_s: int | None
    images: int
    arriving: int
    reservation: str
    next_reservation_s: int | None
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeList:
    nodes: tuple[NodeView, ...]
    next_after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferView:
    """A transfer that waits or runs."""

    number: int
    state: str
    nodes: str
    image: ImageView
    begin_s: int
    latest_begin_s: int | None
    deadline_s: int | None
    ready_s: int | None
    arrived_bytes: int
    total_bytes: int
    rate_bytes_per_s: int
    for_reservations: tuple[str, ...]
    is_late: bool
    staging: tuple[NodeStaging, ...]
    for_jobs: tuple[str, ...] = ()
    """The jobs that wait for it: it has no deadline then, and its number is negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferList:
    transfers: tuple[TransferView, ...]
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionList:
    decisions: tuple[DecisionLine, ...]
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciled:
    """What differed between store, batch system and nodes, and what was done about it."""

    findings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """How far a job is on its way to the batch system. `is_new`: it may be handed over now. Otherwise
    `job` is its key, or empty if it was begun and nobody knows how that ended. Not for users."""

    is_new: bool = False
    job: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A request that could not be dealt with. `code` tells the kind: not-found, not-allowed,
    ambiguous, conflict, invalid, unavailable, busy."""

    code: str
    message: str


Answer = (
    Decision
    | ReservationDetails
    | ReservationList
    | JobList
    | JobDetails
    | Verdict
    | Explanation
    | ImageList
    | NodeList
    | TransferList
    | Timeline
    | Overview
    | Status
    | DecisionList
    | Report
    | LeaseList
    | LeaseDetails
    | Reconciled
    | Handover
    | EventTaken
    | SwitchView
    | Trouble
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replied:
    """The answer to the request that waits under `ticket`."""

    ticket: int
    answer: Answer
