"""A node's pool, and what is on its way to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outrider.core.model import ImagePart
from outrider.service.ports import HeldBytes, NodeImage, Source

PART = " layers "
"""In the names under which layers of images are held."""


@dataclass(slots=True)
class Flow:
    """An image on its way to a node."""

    digest: str
    uri: str
    size_bytes: int
    sources: tuple[Source, ...]
    owners: dict[str, int]
    rate_bytes_per_s: int | None
    arrived_bytes: int = 0
    rate: int = 0
    source: Source | None = None
    has_failed: bool = False
    words: str = ""
    readers: set[int] | None = None
    """For whom it is; None is everybody."""
    layers: tuple[ImagePart, ...] = ()
    """Of an image in layers, what it brings; the rest is there, or comes for another image."""
    deadline_s: int | None = None
    """The earliest of those who want it."""
    is_read: bool = False
    """It is there for others, and only read: whoever gets the bytes here may use it, too."""


@dataclass(slots=True)
class Pool:
    """One node. What is in it outlives the daemon."""

    name: str
    limit_bytes: int
    images: dict[str, NodeImage] = field(default_factory=dict)
    pins: dict[str, dict[str, int]] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    is_up: bool = True
    is_reachable: bool = True
    tampered_ms: int = -1
    """When somebody last took something out of it."""
    brought_bytes: dict[str, int] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    """Who pins and is not the service."""
    parts: dict[str, tuple[ImagePart, ...]] = field(default_factory=dict)
    """Of images in layers, by digest, the layers: each is in the pool once, as an image of its own."""
    copies: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of which images, and for whom, there is a full copy, and when it was made."""
    read_at: dict[str, set[str]] = field(default_factory=dict)
    """At which other addresses images were read."""
    promised: tuple[int, int] = (0, 0)
    """What the service has it keep, and until when: on the disk, as the images are."""

    @property
    def is_copying(self) -> bool:
        """Whether jobs here get full copies: on every other node."""
        return self.name[-1:] in "13579"

    def pinned(self, digest: str, now_s: int) -> bool:
        return any(until_s > now_s for until_s in self.pins.get(digest, {}).values())

    def has(self, digest: str) -> bool:
        """Whether an image is there, whole."""
        return digest in self.images and all(part.key in self.images for part in self.parts.get(digest, ()))

    def is_pinned_for(self, digest: str, owner: str, now_s: int) -> bool:
        return self.has(digest) and self.pins.get(digest, {}).get(owner, 0) > now_s

    def pin(self, digest: str, owner: str, until_s: int) -> None:
        renew(self.pins.setdefault(digest, {}), owner, until_s)
        self.pin_layers(digest, owner, until_s)

    def pin_layers(self, digest: str, owner: str, until_s: int, only: tuple[str, ...] = ()) -> None:
        """Hold what is there of an image's layers, or `only` these, under a name of its own."""
        for part in self.parts.get(digest, ()):
            if part.key in self.images and (not only or part.key in only):
                renew(self.pins.setdefault(part.key, {}), f"{owner}{PART}{digest}", until_s)

    def unpin(self, digest: str, owner: str) -> None:
        self.pins.get(digest, {}).pop(owner, None)
        for part in self.parts.get(digest, ()):
            self.pins.get(part.key, {}).pop(f"{owner}{PART}{digest}", None)

    def missing(
        self, digest: str, deadline_s: int | None, now_s: int, least_rate: int = 0
    ) -> tuple[ImagePart, ...]:
        """Its layers that are not there, and that nothing else brings, nothing as urgent, or nothing at the
        least rate."""
        wanted = urgency(deadline_s, now_s)
        coming = {
            part.key
            for flow in self.flows.values()
            if flow.digest != digest and not flow.has_failed
            if urgency(flow.deadline_s, now_s) <= wanted and flow.rate >= least_rate
            for part in flow.layers
        }
        return tuple(
            part
            for part in self.parts.get(digest, ())
            if part.key not in self.images and part.key not in coming
        )

    def shown(self, now_s: int) -> tuple[NodeImage, ...]:
        """The images, and for whom they are pinned."""
        return tuple(
            replace(
                image,
                owners=tuple(
                    sorted(
                        owner
                        for owner, until_s in self.pins.get(digest, {}).items()
                        if until_s > now_s and PART not in owner
                    )
                ),
            )
            for digest, image in self.images.items()
            if self.has(digest)
        )

    def held(self, now_s: int) -> tuple[HeldBytes, ...]:
        """What others hold, as a real node reports it."""
        found = []
        for digest, image in self.images.items():
            ends = [end for owner, end in self.pins.get(digest, {}).items() if owner in self.others]
            if max(ends, default=0) > now_s:
                found.append(HeldBytes(size_bytes=image.size_bytes, until_s=max(ends), digest=digest))
        return tuple(found)

    def others_may_hold(self, size_bytes: int, now_s: int) -> bool:
        """Whether a real node would let users hold so much more."""
        coming = (key for key, flow in self.flows.items() if not flow.is_read)
        mine = {*coming, *(d for d in self.images if self.pinned(d, now_s))}
        held = self.held(now_s)
        mine -= {each.digest for each in held}
        kept = sum(self.flows[d].size_bytes if d in self.flows else self.images[d].size_bytes for d in mine)
        promised_bytes = max(kept, self.promised[0] if self.promised[1] > now_s else 0)
        return sum(each.size_bytes for each in held) + size_bytes + promised_bytes <= self.limit_bytes

    def used_bytes(self) -> int:
        images = sum(each.size_bytes for each in self.images.values() if each.digest not in self.parts)
        return images + sum(each.size_bytes for each in self.flows.values() if not each.is_read)


def urgency(deadline_s: int | None, now_s: int) -> tuple[bool, bool, int]:
    """The earliest deadline first, then those that have passed, then what has none."""
    return deadline_s is None, deadline_s is not None and deadline_s <= now_s, deadline_s or 0


def renew(pins: dict[str, int], owner: str, until_s: int) -> None:
    """As real pools do: a lease is never shortened."""
    pins[owner] = max(until_s, pins.get(owner, 0))
