"""What a node's daemon and those who ask it say to each other: each message as a value.

A message is one line of JSON. A request is `{"v": 1, "do": VERB, …}` with the fields of the class that
`VERBS` has for it, beside what it is answered. The daemon takes a request to the letter; an answer may come
from another version, so of that only what is needed has to be there (`cachemgr.network.fields`). A field
that may be None and has no default is sent as null; one that has its default is not sent, but for lists.
The hook (`cachemgr.hook`), which imports nothing, writes the same by itself.
"""

from __future__ import annotations

from cachemgr.base.message import ProtocolMessage
from cachemgr.base.shares import Share
from cachemgr.machines.batch.messages import Discarded as Discarded
from cachemgr.machines.batch.messages import ListedMachines as ListedMachines
from cachemgr.machines.batch.messages import MachineFacts as MachineFacts
from cachemgr.machines.batch.messages import MachineRoom as MachineRoom
from cachemgr.machines.batch.messages import MovedMachine as MovedMachine
from cachemgr.machines.batch.messages import MoveRequest as MoveRequest

VERSION = 1
CONTROL_PORT = 7011
RELAY_PORT = 7010
# How owners of pins and instances begin: a reservation of the service, a job, an ordinary user.
RESERVATION_OWNER = "reservation:"
JOB_OWNER = "job-"
FURTHER = "+"
"""Between a job and the number of an image that it needs beside its own: `job-17+1`."""
USER_OWNER = "uid:"
PROOF = "proof:"
"""How keys of transfers begin that only read an image; its digest follows."""


# -- requests -------------------------------------------------------------------------------


class OnBehalf(ProtocolMessage):
    """What root and the service may say with every verb: for which user they ask."""

    uid: int | None = None


class NoFields(ProtocolMessage):
    """A verb that has nothing to be told."""


class Readers(ProtocolMessage):
    """Who may use a private image besides its owner."""

    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()


class PinFields(ProtocolMessage):
    """A pin that comes with an image's addition."""

    owner: str
    until_s: int
    kind: str | None = None
    from_s: int | None = None


class AddRequest(ProtocolMessage):
    """Answered with an `ImageEntry` if the image is here, else its transfer; `DryRun` with `dry_run`."""

    uri: str
    digest: str | None = None
    size_bytes: int | None = None
    sources: tuple[str, ...] | None = None
    pin: PinFields | None = None
    deadline_s: int | None = None
    rate_bytes_per_s: int | None = None
    format: str | None = None
    readers: Readers | None = None
    uid: int | None = None
    private: bool | None = None
    expected_rate_bytes_per_s: int | None = None
    expires_s: int | None = None
    wait: bool = False
    dry_run: bool = False
    # Somebody privileged has seen for itself that the source lets each of `readers` have it.
    vouched: bool = False
    # Let a private image be everybody's, if its source gives it to whoever has no rights there.
    everybody: bool = False
    # Of an image that is here for others, read it at its address, and open it if that gives the same bytes.
    proof: bool = False
    # Of an image of layers, only pin these of its blobs, as far as they are here.
    hold: tuple[str, ...] | None = None
    at_least_1 = ("rate_bytes_per_s", "expected_rate_bytes_per_s")


class NameRequest(ProtocolMessage):
    name: str


class PinRequest(ProtocolMessage):
    name: str
    owner: str
    until_s: int
    kind: str | None = None
    from_s: int | None = None


class UnpinRequest(ProtocolMessage):
    name: str
    owner: str


class InstanceRequest(ProtocolMessage):
    name: str
    owner: str
    until_s: int
    uid: int | None = None
    label: str | None = None
    method: str | None = None
    # None: as its image's format is opened.
    is_writable: bool | None = None
    context: dict[str, object] | None = None
    # The service's pins; a copy that was made for one of them may be taken.
    made_for: tuple[str, ...] | None = None


class ClaimRequest(ProtocolMessage):
    """What a job was promised, as an instance here, or on `nodes`."""

    job: str
    task: int | None = None
    attempt: int | None = None
    until_s: int | None = None
    uid: int | None = None
    ticket: str | None = None
    reservation: str | None = None
    pinned: bool = False
    nodes: tuple[str, ...] | None = None
    at_least_1 = ("task",)


class CopyRequest(ProtocolMessage):
    """A full copy for the service's pin of that owner, before its job starts."""

    name: str
    owner: str
    until_s: int


class ReleaseRequest(ProtocolMessage):
    owner: str
    label: str | None = None
    nodes: tuple[str, ...] | None = None


class ForgetRequest(ProtocolMessage):
    alias: str


class TransferChange(ProtocolMessage):
    """A rate of 0: no limit."""

    transfer: str
    rate_bytes_per_s: int | None = None
    deadline_s: int | None = None
    cancel: bool = False
    pause: bool = False
    resume: bool = False


class RateChange(ProtocolMessage):
    """What is None stays as it is; 0: no limit."""

    rate_bytes_per_s: int | None = None
    relay_rate_bytes_per_s: int | None = None


class PromiseRequest(ProtocolMessage):
    """Without both fields nothing is changed."""

    size_bytes: int | None = None
    until_s: int | None = None


class MirrorRequest(ProtocolMessage):
    """A login for this node's mirror, as the user who asks."""

    until_s: int
    uid: int | None = None


class EvictRequest(ProtocolMessage):
    name: str | None = None
    need_bytes: int | None = None


class CheckRequest(ProtocolMessage):
    fix: bool = False
    digests: bool = False


# -- answers --------------------------------------------------------------------------------


class PingAnswer(ProtocolMessage):
    version: str
    pid: int | None
    uptime_s: int | None
    now_s: int | None
    clock_trouble: str
    pool: str
    is_index_ready: bool | None
    caller_uid: int
    node: str


class MirrorLogin(ProtocolMessage):
    """What container runtimes of this node need to fetch images of layers from its pool."""

    address: str
    user: str
    password: str
    until_s: int


class ImageEntry(ProtocolMessage):
    """An image that is here, and its path for whoever may use it."""

    digest: str
    size_bytes: int
    format: str
    uri: str
    added_s: int
    owner_uid: int | None
    is_public: bool
    expires_s: int | None
    uses: int
    last_use_s: int
    pins: int
    path: str | None = None


class ListedImage(ImageEntry):
    """Its readers are for its owner, root and the service. Older versions do not tell of them here."""

    readers: Readers | None = None


class PinEntry(ProtocolMessage):
    owner: str
    kind: str
    uid: int
    until_s: int
    from_s: int | None


class AliasEntry(ProtocolMessage):
    name: str
    expires_s: int | None


class InstanceEntry(ProtocolMessage):
    instance: str
    owner: str
    label: str
    uid: int | None
    digest: str
    method: str
    is_writable: bool | None
    created_s: int | None
    until_s: int | None
    path: str
    mounts: tuple[dict[str, object], ...]
    seed: str | None
    # making, prepared (root has still to mount it), or ready
    state: str


class ShownImage(ImageEntry):
    """An image with everything that holds it, as far as the caller may know."""

    pin_list: tuple[PinEntry, ...] | None = None
    instances: tuple[InstanceEntry, ...] | None = None
    aliases: tuple[AliasEntry, ...] | None = None
    readers: Readers | None = None


class ArrivingEntry(ProtocolMessage):
    """An image on its way here, with the transfer that brings it if one is alive."""

    key: str
    uri: str
    digest: str | None
    size_bytes: int
    arrived_bytes: int
    owner_uid: int | None
    is_public: bool | None
    transfer: str | None
    readers: Readers | None = None
    # Of the pins on it, those that whoever asks has set.
    owners: tuple[str, ...] | None = None


class ListedImages(ProtocolMessage):
    images: tuple[ListedImage, ...]
    arriving: tuple[ArrivingEntry, ...]


class ListedInstances(ProtocolMessage):
    instances: tuple[InstanceEntry, ...]


class TransferEntry(ProtocolMessage):
    """A transfer. `limit_bytes_per_s` is None for no limit, `error` the code of what it failed with."""

    transfer: str
    state: str
    uri: str
    key: str
    bytes: int
    size_bytes: int
    rate_bytes_per_s: int
    finish_s: int | None
    source: str | None
    deadline_s: int | None
    is_late: bool | None
    limit_bytes_per_s: int | None
    wanted_by: tuple[int, ...]
    created_s: int | None
    ended_s: int | None
    digest: str | None
    error: str | None
    message: str | None


class ListedTransfers(ProtocolMessage):
    transfers: tuple[TransferEntry, ...]
    limit_bytes_per_s: int | None


class TransferProgress(ProtocolMessage):
    """Said every second to who waits for a transfer; what is not known yet may be missing."""

    transfer: str
    state: str
    bytes: int | None
    size_bytes: int | None
    rate_bytes_per_s: int | None
    finish_s: int | None
    source: str | None


class EvictedImage(ProtocolMessage):
    digest: str
    size_bytes: int


class DryRun(ProtocolMessage):
    """Whether an addition would find room, and what would have to leave for it."""

    fits: bool
    is_present: bool
    evicted: tuple[EvictedImage, ...]


class ListedShares(ProtocolMessage):
    shares: tuple[Share, ...]


class HeldEntry(ProtocolMessage):
    """What others hold of the pool, until when; without a digest it is no image that is known."""

    digest: str | None
    size_bytes: int
    until_s: int


class PromisedRoom(ProtocolMessage):
    """A pool's bytes, and what of them cannot be promised."""

    limit_bytes: int | None
    capacity_bytes: int
    promised_bytes: int | None
    users_bytes: int
    # Of which images jobs get full copies here; older versions make none before they are wanted.
    copied_formats: tuple[str, ...] | None
    others: tuple[HeldEntry, ...]


class PoolStats(ProtocolMessage):
    """What the service needs of `stats`. A daemon that has only just started has not counted yet."""

    outrider_pool_limit_bytes: int
    outrider_pool_used_bytes: int | None


class MetricsText(ProtocolMessage):
    text: str


class Unpinned(ProtocolMessage):
    was_pinned: bool | None


class CopyState(ProtocolMessage):
    """How far a copy is: `needless` where an instance takes no bytes, `copying`, or `ready`."""

    copy_bytes: int
    copied_bytes: int
    state: str


class CopyProgress(ProtocolMessage):
    """Said every few seconds to who waits for an instance while bytes are copied."""

    copied_bytes: int
    size_bytes: int


class Released(ProtocolMessage):
    """How many instances were removed, and how many pins given back."""

    removed: int
    pins: int


class ClaimedElsewhere(ProtocolMessage):
    """Where each node has the instance."""

    owner: str
    paths: dict[str, object]


class Forgotten(ProtocolMessage):
    was_known: bool


class NodeRates(ProtocolMessage):
    """Of the whole node; 0: no limit."""

    rate_bytes_per_s: int
    relay_rate_bytes_per_s: int


class Evicted(ProtocolMessage):
    evicted: tuple[str, ...]


class Checked(ProtocolMessage):
    findings: tuple[dict[str, object], ...]
    count: int


# Each verb's request, and what it may be answered with.
VERBS: dict[str, tuple[type, ...]] = {
    "ping": (NoFields, PingAnswer),
    "find": (NameRequest, ImageEntry),
    "ls": (NoFields, ListedImages),
    "show": (NameRequest, ShownImage),
    "instances": (NoFields, ListedInstances),
    "transfers": (NoFields, ListedTransfers),
    "shares": (NoFields, ListedShares),
    # With every other metric, too, by its name.
    "stats": (NoFields, PoolStats),
    "metrics": (NoFields, MetricsText),
    "machines": (NoFields, MachineFacts),
    "machine-room": (NoFields, MachineRoom),
    "kept-machines": (NoFields, ListedMachines),
    "discard": (ReleaseRequest, Discarded),
    "move-machine": (MoveRequest, MovedMachine),
    "mirror": (MirrorRequest, MirrorLogin),
    "add": (AddRequest, ImageEntry, TransferEntry, DryRun),
    "pin": (PinRequest, ImageEntry),
    "unpin": (UnpinRequest, Unpinned),
    "instance": (InstanceRequest, InstanceEntry),
    "claim": (ClaimRequest, InstanceEntry, ClaimedElsewhere),
    "copy": (CopyRequest, CopyState),
    "release": (ReleaseRequest, Released),
    "forget": (ForgetRequest, Forgotten),
    "transfer-set": (TransferChange, TransferEntry),
    "limits": (RateChange, NodeRates),
    "promise": (PromiseRequest, PromisedRoom),
    "evict": (EvictRequest, Evicted),
    "check": (CheckRequest, Checked),
}
