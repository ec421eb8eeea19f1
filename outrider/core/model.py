"""The values that the core decides about: images, nodes, workspaces, reservations.

Frozen and checked when built; what changes over time lives in the other modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of named resources, for instance 2 `cpus` and 1024 `memory_mib`.

    Names are free; what is absent is zero. Amounts are kept sorted by name so that
    equal resources compare and hash equal.
    """

    amounts: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, **amounts: int) -> Resources:
        return cls.from_mapping(amounts)

    @classmethod
    def from_mapping(cls, amounts: Mapping[str, int]) -> Resources:
        for name, amount in amounts.items():
            if amount < 0:
                raise ValueError(f"resource {name} is {amount}: it cannot be negative")
        return cls(tuple(sorted((name, amount) for name, amount in amounts.items() if amount)))

    def __getitem__(self, name: str) -> int:
        return dict(self.amounts).get(name, 0)

    def __str__(self) -> str:
        return " ".join(f"{name}={amount}" for name, amount in self.amounts) or "nothing"

    def with_amounts(self, others: Resources) -> Resources:
        """The same, but for what the others name."""
        return Resources.from_mapping({**dict(self.amounts), **dict(others.amounts)})


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePart:
    """A blob that images may share: a pool has it once."""

    key: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image template in a repository. A digest, not a tag, is what is promised.

    One that consists of `parts` takes of a link, and of a pool, those of them that are not there: a
    transfer and a life name the parts, and have the size, of what is their own.
    """

    uri: str
    size_bytes: int
    digest: str = ""
    parts: tuple[ImagePart, ...] = ()
    made_s: int = 0
    """When it is expected to be there at all, if it is only being made: it is planned, and not promised."""
    is_private: bool = False
    """Not everybody's: it comes from its own address alone, from no mirror."""

    def __post_init__(self) -> None:
        if not self.uri:
            raise ValueError("an image needs a URI")
        if self.size_bytes <= 0:
            raise ValueError(f"image {self.uri} has {self.size_bytes} bytes: it needs at least 1")

    @property
    def key(self) -> str:
        """What makes two images the same one."""
        return self.digest or self.uri

    def may_be(self, there: Image, *, is_coming: bool = False) -> bool:
        """Whether whoever wants this image may count on that one, which has the same key. Nobody is let in to
        a private one by another address, for knowing its digest; and whether an address of somebody else's
        delivers what `is_coming` from there, nobody knows."""
        return there.uri == self.uri or not (there.is_private or is_coming)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A host: what it can give, and how many bytes its image pool may hold."""

    name: str
    capacity: Resources
    pool_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.pool_bytes is not None and self.pool_bytes < 0:
            raise ValueError(f"node {self.name}: a pool of {self.pool_bytes} bytes is impossible")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOwner:
    """Whose a lease or a run is, as far as policies ask.

    `value` is what the work is worth to its owner, `most_rate` what he pays at most for a unit (a node,
    or a processor) for an hour, in thousandths; None: whatever it costs.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    account: str = ""
    lease_class: str = ""
    value: int = 0
    most_rate: int | None = None


NOBODY = LeaseOwner()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """What a user asks for: so many instances of an image, for so long, maybe from a time on.

    Without `start_s` it is best effort. With it, it is a closed advance reservation (or an
    immediate one, when the start is now). With `finish_by_s` as well it may start at any
    time from `start_s` on, as long as it ends by `finish_by_s`: a deadline lease. One that
    `is_immediate` starts as soon after `start_s` as its image can be there: within
    `ready_within_s`, or, by default, within what an idle link needs to bring it.

    `is_parallel`: all instances run at the same time (a reservation always does). A serial
    best-effort workspace is scheduled instance by instance.
    `is_preemptible`: a best-effort workspace that may be suspended for a reservation.
    `may_yield`: a reservation that may be interrupted for others. If it has a deadline it may be split
    round them as long as it has not begun; what else becomes of it is the site's policy.
    `is_spread`: each instance has a node of its own, whatever else is on it.
    """

    name: str
    instances: int
    resources: Resources
    duration_s: int
    image: Image | None = None
    start_s: int | None = None
    finish_by_s: int | None = None
    is_parallel: bool = True
    is_preemptible: bool = True
    is_immediate: bool = False
    ready_within_s: int | None = None
    may_yield: bool = False
    is_spread: bool = False
    owner: LeaseOwner = NOBODY

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ValueError(f"workspace {self.name}: {self.instances} instances; ask for 1 or more")
        if self.duration_s < 1:
            raise ValueError(f"workspace {self.name}: a duration of {self.duration_s} s; ask for 1 or more")
        if self.is_immediate and self.start_s is None:
            raise ValueError(f"workspace {self.name}: what is immediate needs the time from which it is")
        if self.ready_within_s is not None and (not self.is_immediate or self.ready_within_s < 0):
            raise ValueError(
                f"workspace {self.name}: ready within {self.ready_within_s} s; give 0 or more, and only to "
                "what is immediate"
            )
        if self.may_yield and self.start_s is None:
            raise ValueError(
                f"workspace {self.name}: best effort yields unless it is not preemptible; leave out may_yield"
            )
        if self.finish_by_s is not None:
            if self.start_s is None:
                raise ValueError(f"workspace {self.name}: a deadline needs a first possible start")
            if self.start_s + self.duration_s > self.finish_by_s:
                raise ValueError(
                    f"workspace {self.name}: {self.duration_s} s from {self.start_s} on "
                    f"do not end by {self.finish_by_s}"
                )

    @property
    def is_best_effort(self) -> bool:
        return self.start_s is None

    @property
    def most_per_node(self) -> int:
        """How many of its instances one node may have."""
        return 1 if self.is_spread else self.instances


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """One image on its way to one node, or to several by a relay that costs its link once.

    `release_s` is the first instant at which it may start; best effort has no deadline. `lanes` are those
    that it takes of the links of a network, once it is planned.
    """

    number: int
    image: Image
    nodes: tuple[str, ...]
    duration_s: int
    release_s: int = 0
    deadline_s: int | None = None
    lanes: tuple[str, ...] = ()


class TransferClass(Enum):
    """For whom a transfer has the link."""

    DEADLINE = "deadline"
    BEST_EFFORT = "best effort"

    @classmethod
    def of(cls, number: int) -> TransferClass:
        """Those with deadlines are counted from 1 upwards, those of best effort from -1 downwards."""
        return cls.DEADLINE if number > 0 else cls.BEST_EFFORT


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """So many instances of a workspace on one node."""

    node: str
    instances: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSlot:
    """What something takes of a node, and for how long."""

    node: str
    resources: Resources
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class LeasePiece:
    """A part of a split reservation: its nodes are taken in [start_s, end_s).

    The first `resume_s` and the last `suspend_s` of it are spent on memory, not on work.
    """

    start_s: int
    end_s: int
    resume_s: int = 0
    suspend_s: int = 0

    @property
    def useful_s(self) -> int:
        return self.end_s - self.start_s - self.resume_s - self.suspend_s


def spans_of(
    pieces: Sequence[LeasePiece], start_s: int, end_s: int, from_s: int = 0
) -> tuple[tuple[int, int], ...]:
    """When nodes are taken from `from_s` on, within [start_s, end_s): in the pieces if there are any."""
    whole = [(piece.start_s, piece.end_s) for piece in pieces] or [(start_s, end_s)]
    cut = [(max(begin_s, start_s, from_s), min(stop_s, end_s)) for begin_s, stop_s in whole]
    return tuple((begin_s, stop_s) for begin_s, stop_s in cut if begin_s < stop_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptHold:
    """Copies of one image that came the same way: node and number of each.

    With a `transfer`, that brings or has brought them; without one they were there from
    `since_s` on. A transfer that is done may be named as long as it is kept, too.
    """

    image: Image
    copies: tuple[tuple[str, int], ...]
    transfer: int | None = None
    since_s: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """A promise: these nodes, with the image on them, throughout [start_s, end_s).

    One that is split has its nodes only in its `pieces`, and its image throughout. The `holds` are told of
    where it is kept outside of a book, in which they are lives.
    """

    workspace: Workspace
    start_s: int
    end_s: int
    placements: tuple[Placement, ...]
    transfers: tuple[int, ...] = ()
    pieces: tuple[LeasePiece, ...] = ()
    holds: tuple[KeptHold, ...] = ()
    nodes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Those of the placements, made once: each is asked for several times at a start with thousands."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple([placement.node for placement in self.placements]))

    def without_holds(self) -> Reservation:
        """As it is in a book. (`replace` takes three times as long, at a start with thousands.)"""
        return Reservation(
            workspace=self.workspace,
            start_s=self.start_s,
            end_s=self.end_s,
            placements=self.placements,
            transfers=self.transfers,
            pieces=self.pieces,
        )

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """When it has its nodes."""
        return spans_of(self.pieces, self.start_s, self.end_s)
