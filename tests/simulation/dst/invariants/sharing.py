"""Links, and two classes on each: whether best effort keeps out of the way of what has a deadline.

Looked at from the nodes, and only while nothing goes wrong: an order to slow down may be lost.
"""

from __future__ import annotations

from outrider.service.desk.nodes.orders import LOST_CALL_S
from tests.simulation.dst.clockwork import Clockwork, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.office import Office
from tests.simulation.dst.pool import Flow
from tests.simulation.dst.pools import Network

NOTICE_S = 15
"""Within this time best effort is held back when a deadline's transfer has begun."""
BORN_S = 120
"""A service that was just started finds out first what its predecessor has begun."""
HELD_BACK_SHARE = 100
"""The part of the link, as a divisor, from which on best effort is in the way."""
JOB = "job-"


class Sharing:
    """Watches the link."""

    def __init__(self, clock: Clockwork, knobs: Knobs, network: Network, office: Office) -> None:
        self._clock = clock
        self._network = network
        self._office = office
        self._settings = knobs.settings
        # A node whose call was never answered is told nothing until that is given up.
        settled_s = knobs.troubled_s + max(BORN_S, LOST_CALL_S)
        self._settled_ms = 0 if knobs.is_calm else settled_s * 1000
        self._generation = 0
        self._both_ms: dict[str, int] = {}
        """By link, since when both classes have taken bytes of it."""

    def check(self) -> None:
        """Raises Violation if best effort does not give way."""
        now_ms = self._clock.now_ms
        if self._office.generation != self._generation:
            self._settled_ms = max(self._settled_ms, now_ms + BORN_S * 1000 if self._generation else 0)
            self._generation = self._office.generation
        if now_ms < self._settled_ms:
            return
        on_links: dict[str, list[Flow]] = {}
        for pool in self._network.pools.values():
            for flow in pool.flows.values():
                if isinstance(flow.source, str) and flow.rate and not flow.has_failed:
                    for link in self._links(flow.source, pool.name):
                        on_links.setdefault(link, []).append(flow)
        self._both_ms = {
            link: self._both_ms.get(link, now_ms)
            for link, flows in on_links.items()
            if self._is_shared(link, flows)
        }
        for link, since_ms in self._both_ms.items():
            if now_ms - since_ms > NOTICE_S * 1000:
                beside = _best_effort(on_links[link])
                raise Violation(f"best effort takes {beside} bytes a second of {link} beside a deadline")

    def _links(self, uri: str, node: str) -> list[str]:
        """What a node's bytes of an image cross."""
        network = self._settings.network
        if network is None:
            return ["link"]
        group = network.groups.get(node)
        # A mirror's address says which it is (`over_links`).
        _, _, mirror = uri.partition("#")
        source = network.sources[mirror] if mirror else network.source(uri)
        return [each.name for each in (source, group) if each is not None]

    def _is_shared(self, link: str, flows: list[Flow]) -> bool:
        """Whether best effort takes more than its part of a link on which anything else comes: what is for
        best effort alone, and lanes without a deadline's transfer."""
        network = self._settings.network
        allowed = self._settings.best_effort_rate_bytes_per_s
        whole = self._settings.link_rate_bytes_per_s
        deadlines = {flow.digest for flow in flows if not _is_best_effort(flow)}
        if network is not None:
            every = (network.site, *network.sources.values(), *network.groups.values())
            one = next(each for each in every if each.name == link)
            free_lanes = max(0, one.lanes - len(deadlines))
            allowed = one.beside_bytes_per_s + one.lane_rate_bytes_per_s * free_lanes
            whole = one.rate_bytes_per_s + one.beside_bytes_per_s
        return bool(deadlines) and _best_effort(flows) > allowed + whole // HELD_BACK_SHARE


def _best_effort(flows: list[Flow]) -> int:
    return sum(flow.rate for flow in flows if flow.owners and _is_best_effort(flow))


def _is_best_effort(flow: Flow) -> bool:
    return all(owner.startswith(JOB) for owner in flow.owners)
