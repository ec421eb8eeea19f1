"""What the service answers: frozen values, as they travel. Written by `tools.client_answers`.

Times are seconds since 1970 and sizes are bytes; nodes are sets in brackets, n[1-4,7].
What whoever asks may not see is None.
"""

# No annotations as texts: Python 3.9 has to read them as they stand.
from dataclasses import dataclass, field
from typing import Literal, Optional

Result = Literal["accepted", "refused"]


@dataclass(frozen=True)
class OpenWindow:
    """An open reservation's time: its event may come between `from_s` and `until_s`, and it starts within
    `within_s` of it. `events` are those that it waits for beside its user's word, or those that end it."""

    from_s: int
    until_s: int
    within_s: int
    duration_s: int
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    triggered_s: Optional[int] = None
    """When its event came; None as long as it waits, and if none came."""
    event: str = ""


@dataclass(frozen=True)
class ImageView:
    """An image as a reservation has it."""

    uri: Optional[str]
    digest: Optional[str]
    size_bytes: int
    is_private: bool


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    ready_s: Optional[int] = None
    words: str = ""


@dataclass(frozen=True)
class DecisionLine:
    """Something that was decided, or that happened."""

    number: int
    at_s: int
    kind: str
    name: str
    outcome: str
    reason: str
    user: str = ""


@dataclass(frozen=True)
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
    ready_s: Optional[int]
    """When the image is expected on all nodes, or was there."""
    is_confirmed: bool
    """Whether the batch system has it, too."""
    why: str
    window: Optional[OpenWindow] = None
    """Of one that waits, or has waited, for an event."""


@dataclass(frozen=True)
class Receipt:
    """What became of a promise.

    `ready_s` is when the image was on all nodes, None if it never was; `spare_s` is how long
    before the start that was, negative if it was late.
    """

    is_met: bool
    digest: str
    ready_s: Optional[int]
    spare_s: Optional[int]
    transferred_bytes: int
    saved_bytes: int
    sources: tuple[str, ...]
    words: str
    price: Optional[int] = None
    """What was agreed, in thousandths of the site's unit of money; None where nothing has a price."""
    charged: Optional[int] = None
    """What of that is charged: nothing if it was not met, or given up before its start."""


@dataclass(frozen=True)
class ReservationDetails:
    """All about one reservation."""

    reservation: ReservationView
    workspace: str
    accepted_s: int
    changed_s: int
    ended_s: Optional[int]
    staging: tuple[NodeStaging, ...]
    transfers: tuple[PlannedTransfer, ...]
    odds_percent: Optional[int]
    """While it is endangered: how likely it is still to be met, by the rates that were seen."""
    receipt: Optional[Receipt]
    environment: str = ""
    """The parallel environment with which a job has all of its nodes, if it asks for `slots` of it."""
    slots: int = 0
    price: Optional[int] = None
    key: str = ""
    """What the batch system calls it, if that is not its name: a number, by which jobs name it."""


@dataclass(frozen=True)
class ReservationList:
    reservations: tuple[ReservationView, ...]
    next_after: Optional[int]
    """What to go on with, if there are more."""


@dataclass(frozen=True)
class Offer:
    """Other terms that would be accepted, with the nodes that it would have now.

    `kind` says in what they differ: later, fewer-nodes, shorter, fewer-nodes-later or
    shorter-with-fewer-nodes. `name` is what it is accepted by; empty if it is not held.
    """

    name: str
    kind: str
    start_s: int
    end_s: int
    node_count: int
    nodes: str
    price: Optional[int] = None
    """In thousandths of the site's unit of money; None where nothing has a price."""


@dataclass(frozen=True)
class Occurrence:
    """One of the reservations of a request that recurs, or that has unlike roles. `name` is empty if it is
    refused."""

    name: str
    number: int
    result: Literal["accepted", "refused"]
    start_s: int
    end_s: int
    nodes: str
    reason: str
    price: Optional[int] = None
    role: str = ""
    """Of one with unlike instances, which of them it has."""


@dataclass(frozen=True)
class OptionView:
    """One of the ways to carry out a request. `words` say why it was chosen, or what stands in its way."""

    number: int
    """From 1 on, in the order in which they were asked for."""
    result: Literal["chosen", "possible", "refused"]
    node_count: int
    duration_s: int
    earliest_start_s: Optional[int]
    words: str
    image: str = ""
    """The address of the image that it would have."""


@dataclass(frozen=True)
class Status:
    """The service at a glance."""

    version: str
    site: str
    batch_system: str
    now_s: int
    started_s: int
    is_promising: bool
    """Whether reservations are accepted now; `troubles` says why not."""
    troubles: tuple[str, ...]
    last_look_s: Optional[int]
    nodes: int
    nodes_up: int
    nodes_away: int
    reservations: dict[str, int]
    """How many are in each state."""
    next_start_s: Optional[int]
    transfers_waiting: int
    transfers_running: int
    link_rate_bytes_per_s: int
    link_busy_until_s: Optional[int]
    effects_waiting: int
    decisions: dict[str, int]
    """How many requests were answered how, since the service was started."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How many best-effort jobs that name an image are in each state."""
    jobs_overdue: int = 0
    """Of these, how many have waited for it for longer than they should."""
    link_measured_bytes_per_s: Optional[int] = None
    """The most that any of the last transfers got, if that is much less than was planned; `link_words` says
    what to do."""
    link_words: str = ""
    turns_words: str = ""
    """What is not as `jobs.schedule` wants it: queues that are handed back or not there, an order that is not
    known."""
    is_link_doubted: bool = False
    """Whether these were transfers from several servers, so that it is the link's fault."""
    head: str = ""
    """Which head leads, where there are several, and since when."""
    head_since_s: Optional[int] = None


@dataclass(frozen=True)
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
    start_s: Optional[int]
    end_s: Optional[int]
    nodes: str
    node_count: int
    image: ImageView
    transfers: tuple[PlannedTransfer, ...] = ()
    nodes_with_image: str = ""
    saved_bytes: int = 0
    ready_s: Optional[int] = None
    latest_ready_s: Optional[int] = None
    slack_s: Optional[int] = None
    cause: str = ""
    reason: str = ""
    earliest_start_s: Optional[int] = None
    remedies: tuple[str, ...] = ()
    environment: str = ""
    slots: int = 0
    window: Optional[OpenWindow] = None
    """When its event may come, if it waits for one."""
    secret: str = ""
    """Of an open reservation that may be begun or ended by a signed call: what signs it. Told once."""
    notes: tuple[str, ...] = ()
    """What of the workspace is not used, so that nobody relies on it."""
    price: Optional[int] = None
    """What it costs, or what a refused one would, in thousandths; None where nothing has a price."""
    occurrences: tuple[Occurrence, ...] = ()
    """Of a request that recurs; the nodes and times are those of the first, and `name` is that of all."""
    offers: tuple[Offer, ...] = ()
    """Refused: what would be accepted instead."""
    offers_until_s: Optional[int] = None
    """Until when these are held; None if they are not, or not any more for long."""
    are_offers_protected: bool = False
    """Whether no request of another user is accepted meanwhile that would take their place."""
    options: tuple[OptionView, ...] = ()
    """Of a request that can be carried out in several ways: what is said of each."""


@dataclass(frozen=True)
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
    image: Optional[ImageView]
    nodes_wanted: int
    nodes: str
    node_count: int
    submitted_s: int
    ready_s: Optional[int]
    start_s: Optional[int]
    """When nodes are expected to be free for it; when it starts is up to the batch system."""
    is_overdue: bool
    """Whether it has waited for its image for longer than it should."""
    words: str


@dataclass(frozen=True)
class JobList:
    jobs: tuple[JobView, ...]
    next_after: str
    """What to go on with, if there are more; else empty."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    machines_folder: str = ""
    """On the service's own machine, if all machines are there; empty: each is on its node."""


@dataclass(frozen=True)
class Submitted:
    """The batch system's own name for the job, and what of its workspace is not used."""

    job: str
    notes: tuple[str, ...] = ()
