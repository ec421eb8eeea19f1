"""A node's pool as the service knows it, and what it is to have. What is done about that: `orders`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.core.model import Image
from outrider.core.switch.use import ProcessorCounter, UseMeter
from outrider.service.ports import (
    Arriving,
    MachineInstance,
    NodeImage,
    NodeReport,
    NodeRoom,
    Readers,
    TellNode,
)

MOST_FAILURES = 3
"""After so many failures in a row an image is not expected on a node any more."""
NOT_ALLOWED = "not-allowed"
"""The node's word for an image that is there for others alone."""
WRONG_BYTES = "wrong-bytes"
"""The node's word for bytes that are not those of the digest."""
WATCHED_AWAY_S = 10
"""A node that is watched is away after so long without an answer: a daemon that is started anew is back
by then."""

BEGINNING, BEGINNING_S = ("boots", "joined", "waits"), 5
"""Of machines that are so far, and no further, a node is asked again so soon."""


def image_of(held: NodeImage) -> Image:
    """An image in a node's pool, as plans know it."""
    return Image(
        uri=held.uri or held.digest,
        size_bytes=max(1, held.size_bytes),
        digest=held.digest,
        is_private=not held.is_public,
    )


@dataclass(slots=True)
class Need:
    """A reservation's need of its image on a node. Without `transfer` it should be there already."""

    owner: str
    digest: str
    uri: str
    size_bytes: int
    format: str
    readers: Readers | None
    until_s: int
    transfer: int | None = None
    layers: tuple[str, ...] = ()
    """Its transfer has not begun: of an image in layers the node keeps these until then."""
    deadline_s: int | None = None
    rate_bytes_per_s: int | None = None
    mirror: str = ""
    """Another address, which the link's plan has chosen; nothing: its own."""
    upstream: tuple[str, ...] = ()
    """The nodes before it in the chain, the nearest first."""
    since_s: int = 0
    copy_from_s: int | None = None
    """From when on there is to be a full copy of it for a job, where jobs get full copies; None: never."""
    is_copied: bool = False
    """Whether there has been one, or none is needed."""
    is_there: bool = False
    there_s: int | None = None
    """Since when that is known."""
    seen_s: int | None = None
    """When the node said so last."""
    is_told: bool = False
    told_until_s: int = 0
    failures: int = 0
    is_barred: bool = False
    """The node has these bytes for others alone."""
    proof: str = ""
    """How a right to them is shown, as the node is told."""
    is_read: bool = False
    """The node reads them for that."""
    next_s: int = 0
    arrived_bytes: int = 0
    rate: int = 0
    source: str = ""
    code: str = ""
    """The kind of its last failure, as the node calls it."""
    words: str = ""

    def take_over(self, before: Need) -> None:
        """What is known of the same need stays."""
        self.is_there, self.there_s, self.seen_s = before.is_there, before.there_s, before.seen_s
        self.proof = before.proof
        self.is_copied, self.arrived_bytes, self.source = (
            before.is_copied,
            before.arrived_bytes,
            before.source,
        )

    def doubt(self) -> None:
        """Something that it consists of may be gone: the node has to say again that it is there."""
        self.is_there = self.is_told = False

    def see(self, now_s: int) -> bool:
        """The node says that it is there; whether it was known."""
        was_there, self.is_there, self.seen_s = self.is_there, True, now_s
        self.there_s = self.there_s if was_there else now_s
        return was_there

    @property
    def has_failed_often(self) -> bool:
        """Whether something else is to be tried."""
        return self.failures >= MOST_FAILURES

    @property
    def shows_nothing(self) -> bool:
        """Whether the image is there by what came for others, which shows nobody's right to it."""
        return self.is_there and self.transfer is None

    @property
    def is_wrong(self) -> bool:
        """Whether at its address is another image than was wanted."""
        return self.code == WRONG_BYTES


@dataclass(slots=True)
class NodeStatus:
    """A node's pool, as far as it is known."""

    name: str
    needs: dict[str, Need] = field(default_factory=dict)
    unpins: dict[tuple[str, str], int] = field(default_factory=dict)
    """Digest and owner of pins to be taken away, and when to say so next."""
    stops: dict[str, bool] = field(default_factory=dict)
    """What is not to arrive any more; and whether it is to come anew, by another way."""
    releases: dict[str, int] = field(default_factory=dict)
    """Owners of instances that are to go, and when to say so next."""
    machines: frozenset[str] = frozenset()
    """Owners of which it has machines, as far as the service has machines for jobs."""
    instances: tuple[MachineInstance, ...] = ()
    """How far these are, as far as they say."""
    use: UseMeter = field(default_factory=UseMeter)
    """What they use of processors."""
    due_s: int | None = None
    compare_s: int = 0
    """When all its images are asked for next."""
    call: TellNode | None = None
    called_s: int = 0
    has_new: bool = False
    """Whether something is needed that it has not been told of: that does not wait for the next second."""
    heard_s: int | None = None
    silent_since_s: int | None = None
    failures: int = 0
    limit_bytes: int | None = None
    used_bytes: int | None = None
    images: dict[str, NodeImage] = field(default_factory=dict)
    come: dict[str, Need] = field(default_factory=dict)
    """By digest, what has come since the node has said which images it has."""
    arriving: tuple[Arriving, ...] = ()
    words: str = ""
    promised_bytes: int = 0
    """What the book promises of its pool at the worst instant from now on."""
    tentative: dict[int, int] = field(default_factory=dict)
    """By request, what is kept until that is decided: it would be promised."""
    kept_bytes: int = 0
    """What it was last told to keep for that."""
    watch_s: int | None = None
    """When it is asked whether it is there, for whoever is to begin on it soon."""
    watched_until_s: int = 0
    is_missed: bool = False
    """It has been silent for long enough to be away while it was watched, and has not answered since."""
    promise_s: int | None = None
    """When it is told again; None if there is nothing to keep."""
    room: NodeRoom | None = None
    """What others hold of its pool, as it said last."""
    full_until_s: int = 0
    """Until when it is not believed that its disk takes more than it has: it refused an image lately."""

    def hear_machines(self, report: NodeReport, now_s: int, every_s: int) -> None:
        """How far machines are and what they have had of processors, if the node was asked and could say. As
        long as any run, it is asked again."""
        if report.instances is not None:
            self.instances = report.instances
            if any(each.state in BEGINNING for each in report.instances):
                self.watch_s = now_s + BEGINNING_S
        if report.times is not None:
            counters = {
                (each.owner, each.uid): ProcessorCounter(
                    used_us=each.used_us, waited_us=each.waited_us, at_us=each.at_us
                )
                for each in report.times
            }
            self.use.read(counters, now_s)
            if counters and self.watch_s is None:
                self.watch_s = now_s + every_s

    def hear_promised(self, call: TellNode, now_s: int, lease_s: int) -> None:
        """It was told what to keep for promises, and is told again before that ends."""
        if call.promised_bytes is not None:
            self.kept_bytes = call.promised_bytes
            self.promise_s = call.promised_until_s - lease_s // 2
        spared_bytes = 0 if self.room is None else self.room.spared_bytes
        if self.to_keep_bytes > max(self.kept_bytes, spared_bytes):
            self.promise_s = now_s
        elif not self.to_keep_bytes:
            self.promise_s = None

    def begin_anew(self, digest: str, now_s: int) -> None:
        """What is under way of an image ends, and comes by another way with the bytes that are here."""
        self.stops[digest] = True
        for need in self.needs.values():
            if need.digest == digest:
                need.is_told, need.next_s = False, now_s

    @property
    def to_keep_bytes(self) -> int:
        return max(self.promised_bytes, *self.tentative.values(), 0)

    def needs_of(self, transfer: int) -> Iterator[Need]:
        """Those that a transfer is to satisfy."""
        return (need for need in self.needs.values() if need.transfer == transfer)

    def copies_for(self, need: Need) -> bool:
        """Whether it makes a full copy for a job that needs this."""
        return need.copy_from_s is not None and self.room is not None and bool(self.room.copied_formats)

    def arrived_bytes(self, transfer: int) -> int:
        """How much of a transfer's image is here."""
        return max((need.arrived_bytes for need in self.needs_of(transfer)), default=0)

    def is_away(self, now_s: int, after_s: int) -> bool:
        if self.silent_since_s is None:
            return False
        return self.is_missed or now_s - self.silent_since_s >= after_s
