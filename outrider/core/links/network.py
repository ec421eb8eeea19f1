"""The links between sources of images and nodes, and which of them a transfer crosses.

Every source has a link: one of its own, or the site's. A group of nodes may stand behind a link of its
own, and a relay passes an image on within a group before it goes to the next, so that it crosses each
link once. A link has lanes: so many transfers at a time, each with an equal part of its rate.

A mirror is a source that has the images of another one: a transfer comes from whichever has time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.core.model import Image, Transfer


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkLink:
    """One link of a site's network."""

    name: str
    rate_bytes_per_s: int
    lanes: int = 1
    beside_bytes_per_s: int = 0
    """What best effort always has of it, beside that rate."""

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.rate_bytes_per_s < self.lanes:
            raise ValueError(
                f"link {self.name}: {self.rate_bytes_per_s} bytes/s for {self.lanes} transfers; give each "
                "at least 1"
            )

    @property
    def lane_rate_bytes_per_s(self) -> int:
        """What one transfer has."""
        return self.rate_bytes_per_s // self.lanes

    @property
    def lane_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{lane}" for lane in range(1, self.lanes + 1))


class SourceNames(Protocol):
    """Tells from an image's address which source it comes from."""

    def __call__(self, uri: str) -> str:
        """The name of a link, or nothing if it comes over the site's own."""


def no_source(uri: str) -> str:
    """All images come over the site's own link."""
    return ""


class MirrorAddresses(Protocol):
    """Tells under which address a mirror has an image."""

    def __call__(self, uri: str, source: str) -> str:
        """Nothing if it does not have it."""


def no_mirror(uri: str, source: str) -> str:
    """Each image is at its own address alone."""
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A site's links. `groups` names the link in front of a node, if there is one, and `mirrors`, by the name
    of a source, the links of those that have its images, too."""

    site: NetworkLink
    sources: Mapping[str, NetworkLink] = field(default_factory=dict)
    groups: Mapping[str, NetworkLink] = field(default_factory=dict)
    mirrors: Mapping[str, tuple[NetworkLink, ...]] = field(default_factory=dict)
    source_of: SourceNames = no_source
    address_at: MirrorAddresses = no_mirror
    node_rate_bytes_per_s: int | None = None
    """What one node can take, as its card and its disk go, but for best effort's part."""
    node_beside_bytes_per_s: int = 0
    spread_s: int = 0
    """Added to the time of every transfer, for all that is not sending."""

    def source(self, uri: str) -> NetworkLink:
        """The link that an image leaves its source by."""
        return self.sources.get(self.source_of(uri), self.site)

    def sources_for(self, image: Image) -> tuple[NetworkLink, ...]:
        """The links that an image can leave by: its source's, and those of mirrors that have it."""
        first, uri = self.source(image.uri), image.uri
        if image.is_private:
            return (first,)
        mirrors = self.mirrors.get(first.name, ())
        return (first, *(each for each in mirrors if self.address_at(uri, each.name)))

    def address(self, image: Image, lanes: Sequence[str]) -> str:
        """Where a transfer that has these lanes finds its image."""
        for link in self.sources_for(image)[1:]:
            if not set(link.lane_names).isdisjoint(lanes):
                return self.address_at(image.uri, link.name)
        return image.uri

    def hops(self, image: Image, nodes: Sequence[str]) -> tuple[tuple[NetworkLink, ...], ...]:
        """The links that a transfer crosses, one of each of these: the sources' first, the groups' in the
        order of the nodes."""
        groups = {group.name: group for node in nodes if (group := self.groups.get(node)) is not None}
        return (self.sources_for(image), *((group,) for group in groups.values()))

    def route(self, image: Image, nodes: Sequence[str]) -> tuple[NetworkLink, ...]:
        """All links that a transfer may cross, in the same order."""
        return tuple(link for hop in self.hops(image, nodes) for link in hop)

    def crossed(self, transfer: Transfer) -> tuple[NetworkLink, ...]:
        """The links that a planned transfer has lanes of, in the order of its way."""
        route = self.route(transfer.image, transfer.nodes)
        return tuple(link for link in route if not set(link.lane_names).isdisjoint(transfer.lanes))

    def key_of(self, link: NetworkLink) -> str:
        """By which key of a site's configuration a link's rate is set."""
        if link.name == self.site.name:
            return "link.rate"
        kind = "sources" if link.name in self.sources else "groups"
        return f"link.{kind}.{link.name}.rate"

    def in_order(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The same nodes, those of one group behind one another, else as they are given."""
        groups = self.groups
        together: dict[str, list[str]] = {}
        for node in nodes:
            group = groups.get(node)
            together.setdefault("" if group is None else group.name, []).append(node)
        return tuple(node for members in together.values() for node in members)

    def rate(self, image: Image, nodes: Sequence[str]) -> int:
        """With what a transfer goes, wherever it comes from: what the slowest part of its way gives."""
        rates = [link.lane_rate_bytes_per_s for link in self.route(image, nodes)]
        if self.node_rate_bytes_per_s is not None:
            rates.append(self.node_rate_bytes_per_s)
        return min(rates)

    def duration_s(self, image: Image, nodes: Sequence[str]) -> int:
        """How long the links of its way are taken by one transfer."""
        return -(-image.size_bytes // self.rate(image, nodes)) + self.spread_s
