"""Which lanes best effort has: several transfers at a time, where their ways do not meet.

Over the one link of a site one has it at a time. In a network a transfer takes a lane of each link that it
crosses, and the nodes that it goes to; another one goes beside it that finds lanes free on all of its way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from outrider.core.links.network import Network, NetworkLink
from outrider.core.model import Image, Transfer

Hop = tuple[str, ...]
"""Lanes of which a transfer takes one."""
SITE_LINK: Hop = ("link",)


@dataclass(frozen=True, slots=True)
class BestEffortWay:
    """The lanes and nodes that a transfer without a deadline has, and how much it may take of them: all
    while nothing with a deadline does, and beside that what the site has set aside of the slowest."""

    lanes: frozenset[str]
    nodes: frozenset[str]
    rate_bytes_per_s: int
    beside_bytes_per_s: int
    is_whole: bool = False
    """It is the site's one link, which every transfer crosses."""

    def meets(self, transfer: Transfer) -> bool:
        """Whether a transfer with a deadline needs any of the same."""
        if self.is_whole:
            return True
        return not (self.lanes.isdisjoint(transfer.lanes) and self.nodes.isdisjoint(transfer.nodes))


class BestEffortWays:
    """Finds ways for transfers to nodes, which are numbers here."""

    def __init__(
        self,
        *,
        rate_bytes_per_s: int,
        beside_bytes_per_s: int,
        network: Network | None = None,
        name_of: Callable[[int], str] = str,
    ) -> None:
        self._whole = BestEffortWay(
            frozenset(SITE_LINK), frozenset(), rate_bytes_per_s, beside_bytes_per_s, is_whole=True
        )
        self._network = network
        self._name_of = name_of
        links = () if network is None else (network.site, *network.sources.values())
        self.origins = frozenset(_lanes_of(links) or SITE_LINK)
        """The lanes of which every transfer takes one."""

    def hops(self, image: Image, nodes: Iterable[int]) -> tuple[Hop, ...]:
        """What a transfer to these nodes takes one lane each of, whatever has them now."""
        network = self._network
        if network is None:
            return (SITE_LINK,)
        return tuple(_lanes_of(hop) for hop in network.hops(image, self._names(nodes)))

    def rate(self, image: Image, nodes: Iterable[int]) -> int:
        """With what a transfer goes that has its way for itself."""
        network = self._network
        if network is None:
            return self._whole.rate_bytes_per_s
        return min(
            rate for rate, _ in self._rates([hop[0] for hop in network.hops(image, self._names(nodes))])
        )

    def find(
        self,
        image: Image,
        nodes: Iterable[int],
        *,
        has: Collection[str] = (),
        taken: Collection[str] = (),
        avoided: Collection[str] = (),
    ) -> BestEffortWay | None:
        """A way without lanes that are taken, and if it can be without those that are avoided; None
        if there is none. Where a transfer has, or had, a lane of a link it stays on that link, and
        on that lane unless it is avoided."""
        network = self._network
        if network is None:
            return None if taken else self._whole
        names = self._names(nodes)
        crossed: list[NetworkLink] = []
        lanes: list[str] = []
        for hop in network.hops(image, names):
            kept = [link for link in hop if not set(link.lane_names).isdisjoint(has)] or hop
            free = [(lane, link) for link in kept for lane in link.lane_names if lane not in taken]
            if not free:
                return None
            lane, link = min(free, key=lambda each: (each[0] in avoided, each[0] not in has))
            lanes.append(lane)
            crossed.append(link)
        rates = self._rates(crossed)
        return BestEffortWay(
            lanes=frozenset(lanes),
            nodes=frozenset(names),
            rate_bytes_per_s=min(rate for rate, _ in rates),
            beside_bytes_per_s=min(beside for _, beside in rates),
        )

    def address(self, image: Image, way: BestEffortWay | None) -> str:
        """Where a transfer on this way finds its image: at its own address, or at a mirror's."""
        if self._network is None or way is None:
            return image.uri
        return self._network.address(image, tuple(way.lanes))

    def _names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(map(self._name_of, nodes))

    def _rates(self, links: Sequence[NetworkLink]) -> list[tuple[int, int]]:
        """What a lane of each has for best effort alone, and beside deadlines; and a node."""
        found = [
            (
                link.lane_rate_bytes_per_s + link.beside_bytes_per_s // link.lanes,
                link.beside_bytes_per_s // link.lanes,
            )
            for link in links
        ]
        network = self._network
        if network is not None and network.node_rate_bytes_per_s is not None:
            beside = network.node_beside_bytes_per_s
            found.append((network.node_rate_bytes_per_s + beside, beside))
        return found


def _lanes_of(links: Iterable[NetworkLink]) -> Hop:
    return tuple(lane for link in links for lane in link.lane_names)
