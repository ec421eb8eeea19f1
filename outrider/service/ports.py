"""What the service asks of the world, and what comes back: calls to nodes and to the batch system.

A call is a value. Whoever carries it out (threads in production, a simulated network in tests)
hands `Finished` back to the desk once, late, or never; each call says what should be and may be
carried out twice. The desk has at most one call to a node under way, and one `Look`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cachemgr.base.shares import Share
from cachemgr.protocol import FURTHER as FURTHER
from cachemgr.protocol import JOB_OWNER as JOB_OWNER
from cachemgr.protocol import Readers as Readers
from outrider.core.model import Image, ImagePart, Workspace
from outrider.core.switch.model import Situation
from outrider.core.switch.planner import NoSwitch, Switch
from outrider.core.switch.rules import PlacementRules
from outrider.metadata.decision import Allowed, PolicyRefusal, Requester
from outrider.metadata.notation.events import EventSpec
from outrider.metadata.policies import ExternalSection
from outrider.rms.base import JobUse, Sight
from outrider.store.records import Effect


class NodeTrouble(Exception):
    """A node did not do what it was asked. `is_away`: it did not even answer."""

    def __init__(self, words: str, *, is_away: bool = True) -> None:
        super().__init__(words)
        self.is_away = is_away


@dataclass(frozen=True, kw_only=True, slots=True)
class Relay:
    """Another node as a source: it passes on what it has, or is still receiving."""

    node: str
    digest: str


Source = str | Relay
"""A URI, or another node."""
READ, KNOWN = "read", "known"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetch:
    """Let the image be in the pool and pinned; the sources are tried in their order.

    `readers` is None for a public image. `rate_bytes_per_s` is None for no limit.
    """

    digest: str
    uri: str
    size_bytes: int
    sources: tuple[Source, ...]
    owner: str
    until_s: int
    deadline_s: int | None = None
    rate_bytes_per_s: int | None = None
    format: str = ""
    readers: Readers | None = None
    proof: str = ""
    """To what is there for others: READ its bytes at its address, or such a right is KNOWN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """Let an image that is in the pool stay there until `until_s`.

    With `uri` it is needed by whoever named that address, `readers` or everybody, who have to be
    able to use what is there.
    """

    digest: str
    owner: str
    until_s: int
    uri: str = ""
    size_bytes: int = 0
    readers: Readers | None = None
    layers: tuple[str, ...] = ()
    """Of an image in layers only these are to stay, as far as they are there: the rest is brought later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """Let there be a full copy of an image that is there, for the next job of `owner`'s, if the node's jobs
    get full copies of such images."""

    digest: str
    owner: str
    until_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpin:
    """Let `owner` need the image no longer. What nobody needs stays until its space is wanted."""

    digest: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Let no bytes of the image arrive any more, if it is still arriving for us alone."""

    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """Let the node have no instance of `owner`'s any more, and no machine of that job's."""

    owner: str
    has_machine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A step (`arrive`, `give`, `drop`) of a suspended machine's way from one node to another.

    What it was is told by the result's `words`: how far it is, a blank, and the place on that node.
    """

    owner: str
    step: str
    uid: int
    source: str = ""
    place: str = ""
    rate_bytes_per_s: int | None = None


Order = Fetch | Pin | Copy | Unpin | Stop | Release | Move

COPYING = "copying"
"""What becomes of a `Copy` that is not made yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderResult:
    """What became of an order. `code` is empty when it was done, and otherwise the node's word
    for what went wrong (`missing`: a pin's image is not there; `no-room`; …)."""

    order: Order
    code: str = ""
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeImage:
    """An image in a node's pool, whole and checked."""

    digest: str
    size_bytes: int
    uri: str = ""
    added_s: int = 0
    uses: int = 0
    last_use_s: int = 0
    owners: tuple[str, ...] = ()
    """For whom the service has pinned it."""
    is_public: bool = True
    owner_uid: int | None = None
    """Who has put it there, unless that was the service."""
    readers: Readers | None = None
    """Of a private one, who may use it beside its owner, if the node has said so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arriving:
    """An image on its way to a node, or one whose transfer has failed there lately."""

    digest: str
    size_bytes: int
    arrived_bytes: int
    rate_bytes_per_s: int = 0
    source: str = ""
    has_failed: bool = False
    code: str = ""
    """The kind of its failure, in the node daemon's words."""
    words: str = ""
    owners: tuple[str, ...] = ()
    """The reservations and jobs for which it is pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBytes:
    """Bytes of a pool that others hold, so that the service cannot have them before then. `digest` is
    empty if that is not known, or nothing that could be pinned."""

    size_bytes: int
    until_s: int
    digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRoom:
    """What stands beside promises in a pool, and what its disk lets it hold at all."""

    capacity_bytes: int
    held: tuple[HeldBytes, ...] = ()
    users_bytes: int = 0
    """What users may hold at most, whatever is promised."""
    copied_formats: tuple[str, ...] = ()
    """Formats of the images of which jobs there get full copies."""

    @property
    def spared_bytes(self) -> int:
        """What users never get, even if nothing is promised."""
        return self.capacity_bytes - self.users_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineInstance:
    """A job's machine on a node, as its keeper says. `uid` is whose folder that is in: only if it is the
    job's user's, the word is about that job."""

    owner: str
    uid: int
    number: int
    name: str
    state: str
    address: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineTime:
    """The processor time that a job's machine has had on a node, and waited for, in microseconds, read at
    `at_us` of the node's own clock. `uid` is whose folder it is in."""

    owner: str
    uid: int
    used_us: int
    waited_us: int
    at_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """What a node says of itself. `images` is None unless all of them were asked for."""

    node: str
    at_s: int
    limit_bytes: int
    used_bytes: int
    arriving: tuple[Arriving, ...] = ()
    images: tuple[NodeImage, ...] | None = None
    results: tuple[OrderResult, ...] = ()
    jobs: tuple[str, ...] = ()
    """Owners of instances that are jobs (`job-17`), when all images were asked for."""
    machines: tuple[str, ...] = ()
    """Jobs of which there are virtual machines, saved or not, when all images were asked for."""
    instances: tuple[MachineInstance, ...] | None = None
    """How far these machines are; None unless that was asked for, and the node can say."""
    times: tuple[MachineTime, ...] | None = None
    """What those that run have had of processors; None as above."""
    room: NodeRoom | None = None
    """None if the node cannot say: it has only just started, or is of an older version."""
    shares: tuple[Share, ...] | None = None
    """Who takes what of what users share on the node, the largest shares first; None unless all images
    were asked for, and the node can say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Look at the batch system: a `Sight`, or an RmsError. `number` tells a late result from this one's.

    Of the nodes `watched` is asked beside whether the batch system's own daemon answers there.
    """

    number: int = 0
    watched: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Carry:
    """Carry out an effect on the batch system: None, what a holder job had, or an RmsError."""

    effect: Effect


@dataclass(frozen=True, kw_only=True, slots=True)
class TellNode:
    """Carry out orders on a node, and report: a `NodeReport`, or a NodeTrouble.

    `promised_bytes` are what the node has to keep for promises until then, whatever has come of them:
    no user may hold them. None changes nothing.
    """

    node: str
    orders: tuple[Order, ...] = ()
    wants_images: bool = False
    wants_machines: bool = False
    number: int = 0
    promised_bytes: int | None = None
    promised_until_s: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AskProgram:
    """Ask the site's own policy program: Allowed or PolicyRefusal of `outrider.metadata.decision`."""

    external: ExternalSection
    workspace: Workspace
    who: Requester
    ticket: int
    uid: int
    """Whose request it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageClaim:
    """What a user says of an image, and who says so. `digest` is empty where none is."""

    uri: str
    uid: int
    digest: str = ""
    format: str = ""
    """What a container image is to be made into; empty: what the site makes of them."""
    is_private: bool = False
    gids: tuple[int, ...] | None = None
    """None: those that the user database knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolveImage(ImageClaim):
    """Find out what is at a job's image, as its user may read it: a `FoundImage`, or an ImageTrouble."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DropLookup:
    """Nobody wants to know any more what is at an image. There is no result."""

    question: ResolveImage


@dataclass(frozen=True, kw_only=True, slots=True)
class AskEvent:
    """See whether an event has come that a reservation waits for: an `EventAnswer`. A file is looked at
    with the rights of the user `uid`."""

    reservation: str
    event: EventSpec
    uid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EventAnswer:
    """Whether it has. `words`: why that could not be seen."""

    has_happened: bool = False
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TellUser:
    """Show a line at a job where its user sees it: None, or an RmsError. Lost is no harm."""

    job: str
    text: str
    start_s: int | None = None
    """When the job is expected to start, if it is held and that is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanMoves:
    """Plan a switch of the whole site: a `Switch`, or NoSwitch. `number` tells one from another."""

    number: int
    situation: Situation
    queue: tuple[int, ...]
    rules: PlacementRules


Call = Look | Carry | TellNode | AskProgram | AskEvent | ResolveImage | DropLookup | TellUser | PlanMoves


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundImage:
    """What is at a URI. `uri` is not empty if another one stands for just this: of a reference that has
    a tag, the same with its manifest's digest, which does not change when the tag is moved."""

    size_bytes: int
    digest: str
    format: str = ""
    uri: str = ""
    parts: tuple[ImagePart, ...] = ()
    """Of one that stays in its layers, the blobs of which it consists."""
    made_s: int | None = None
    """When it is expected to be made, if it is only being converted: its size is expected, too, and it has
    no digest. It may be planned, and not promised."""
    unmade: str = ""
    """Then: in words how far that is, for whoever has asked."""
    usable_until_s: int | None = None
    """When its address or the key to it expires: it has to be on its nodes by then."""
    is_private: bool = False
    """Whether whoever asked called it private."""

    @property
    def image(self) -> Image:
        """What the core is told of it, once it has an address of its own."""
        return Image(
            uri=self.uri,
            size_bytes=self.size_bytes,
            digest=self.digest,
            parts=self.parts,
            is_private=self.is_private,
        )


Result = (
    Sight
    | NodeReport
    | Allowed
    | PolicyRefusal
    | EventAnswer
    | FoundImage
    | Switch
    | NoSwitch
    | JobUse
    | Exception
    | None
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A call has been carried out, or has failed."""

    call: Call
    result: Result


class Nodes(Protocol):
    """The nodes' pools. Calls block, with a timeout; any thread may call."""

    def tell(self, call: TellNode) -> NodeReport:
        """Carry out the orders one by one and report. Raises NodeTrouble if the node is away."""


class ImageTrouble(Exception):
    """An image cannot be promised; the message is for the user."""


class NotYet(ImageTrouble):
    """Nor can it be said yet what there is: it is being converted; the message says how far that is.
    `expected` is what is to be there, and when, if earlier conversions tell."""

    def __init__(self, words: str, expected: FoundImage | None = None) -> None:
        super().__init__(words)
        self.expected = expected


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """A file that has to be read to its end before anything is known of it, or an image that has to be
    converted, which may take long.

    `read` does so for as long as the function that it is given says that it is wanted, and raises
    ImageTrouble. `close` has to be called, whether it was read or not.
    """

    read: Callable[[Callable[[], bool]], FoundImage]
    close: Callable[[], None]


Resolve = Callable[[ImageClaim], FoundImage | Unread]
"""To what is there. Raises ImageTrouble, also when the user may not read it."""


Sign = Callable[[str, int, str, int], str]
"""From a job's key (or - for whatever is of its array), its user's number, the digest of its image and
an expiry to the ticket with which its nodes hand the image out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryLogin:
    """What may be shown of a user's login at a registry. Without a `user` it cannot be read any more."""

    host: str
    user: str
    since_s: int


class LoginFault(Exception):
    """The login cannot be kept or used; the message says why and what would help."""


class LoginBook(Protocol):
    """Users' logins at registries. Every method may raise LoginFault; `add` asks the registry."""

    def add(self, uid: int, host: str, user: str, password: str) -> RegistryLogin: ...

    def drop(self, uid: int, host: str) -> bool:
        """Whether there was one."""

    def of(self, uid: int) -> tuple[RegistryLogin, ...]: ...
