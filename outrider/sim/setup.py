"""How a simulated site is set up: links, rates, overheads, rules. And the two named profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cachemgr.pool.policies import POLICIES, PolicyEntry
from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import QueueRules, Yielding
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.images.pools import Lingering, Pools, Rank
from outrider.core.links.links import ExclusiveLinks, Links
from outrider.core.model import Node, Resources
from outrider.core.reservations.admission import Policy
from outrider.core.reservations.book import Book, Shipping, Terms
from outrider.core.scheduler import LeaseRules, Scheduler

if TYPE_CHECKING:
    from outrider.core.leases.nodes import NodeOrder
    from outrider.core.leases.preemption import PreemptionOrder

MEGABYTE = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything about a simulated site but its nodes and its workload."""

    rate_bytes_per_s: int = 12_500_000
    quantum_s: int = 1
    """The queue is looked at when something changed, at the next multiple of this."""
    has_images: bool = True
    """Without images nothing is transferred, as if they were on every node already."""
    slowdown_percent: int = 0
    """How much longer everything runs inside a virtual machine."""
    shipping: Shipping = Shipping.RELAY
    is_reusing: bool = True
    is_extending: bool = True
    is_packing: bool = True
    is_advancing: bool = True
    is_moving: bool = True
    joins_any_image: bool = False
    pool_bytes: int | None = None
    """The limit of the image pool of each node that has none of its own."""
    keep_bytes: int = 0
    """How much of a node's disk may hold images that nobody needs at the moment."""
    rank: Rank | None = None
    best_effort_percent: int | None = None
    """With one link for everything, the share of it that best effort is promised. None: two
    links of the full rate, one for reservations and one for best effort, as in the thesis."""
    push_back_s: int | None = 0
    """How long before its latest start a transfer for a reservation starts: None is EDF, 0 EDF/JIT."""
    backfilling: Backfilling = Backfilling.RESERVING
    places: int | None = 1
    suspension: SuspensionRules = field(default_factory=SuspensionRules)
    yielding: Yielding = Yielding.CHEAPEST
    leases: LeaseRules | None = None
    """What is accepted, at which price, and who yields; None: everything, free, and nobody."""
    preemption: PreemptionOrder | None = None
    """Which best effort makes way first; None: the youngest."""
    node_order: NodeOrder | None = None
    quotas: Callable[[Scheduler], Policy] | None = None

    def stretched_s(self, duration_s: int) -> int:
        """A run time inside a virtual machine."""
        return duration_s * (100 + self.slowdown_percent) // 100

    def limited(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes, each with a limit on its pool if the site has one."""
        if self.pool_bytes is None:
            return nodes
        return tuple(
            replace(node, pool_bytes=self.pool_bytes) if node.pool_bytes is None else node for node in nodes
        )

    def scheduler(self, nodes: tuple[Node, ...]) -> Scheduler:
        """A scheduler for such a site."""
        nodes = self.limited(nodes)
        terms = Terms(
            shipping=self.shipping,
            is_reusing=self.is_reusing,
            is_extending=self.is_extending,
            is_packing=self.is_packing,
            is_advancing=self.is_advancing,
            split_overhead_s=self.suspension.overhead_s if self.suspension.is_allowed else None,
            least_piece_s=self.suspension.least_run_s,
            joins_any_image=self.joins_any_image,
            node_order=self.node_order,
        )
        pools = Pools(nodes, keep_bytes=self.keep_bytes, rank=self.rank)
        rules = QueueRules(
            backfilling=self.backfilling,
            places=self.places,
            suspension=self.suspension,
            # A site's own order of nodes has the last word.
            yielding=self.yielding if self.node_order is None else Yielding.SITE_ORDER,
            preemption=self.preemption,
        )
        leases = self.leases or LeaseRules(is_moving=self.is_moving)
        scheduler = Scheduler(Book(nodes, terms, links=self.links(), pools=pools), rules, leases=leases)
        scheduler.policy = self.quotas(scheduler) if self.quotas is not None else None
        return scheduler

    def links(self) -> Links:
        """The site's links, with nothing on them."""
        if self.best_effort_percent is None:
            return ExclusiveLinks(rate_bytes_per_s=self.rate_bytes_per_s, reserve_s=self.push_back_s)
        from outrider.core.links.shared import SharedLink

        return SharedLink(
            rate_bytes_per_s=self.rate_bytes_per_s,
            best_effort_percent=self.best_effort_percent,
            reserve_s=self.push_back_s,
        )


THESIS = Setup(
    rate_bytes_per_s=12 * MEGABYTE,
    quantum_s=60,
    slowdown_percent=10,
    shipping=Shipping.PER_NODE,
    is_reusing=False,
    is_extending=False,
    is_packing=False,
    is_advancing=False,
    is_moving=False,
    backfilling=Backfilling.GREEDY,
    suspension=SuspensionRules(makes_way_for_all=True),
    yielding=Yielding.SITE_ORDER,
)
"""The constants of the thesis' own simulator. 100 Mbit/s were divided by 8 as integers: 12 MB/s."""

HONEST = Setup(
    suspension=SuspensionRules(disk_bytes_per_s=50 * MEGABYTE, least_run_s=60),
    slowdown_percent=10,
)
"""100 Mbit/s as they are, memory written to disk at 50 MB/s, images relayed, pools reused."""

PROFILES = {"thesis": THESIS, "honest": HONEST}


def ranked_by(policy: str) -> Rank:
    """An eviction policy of the node side's table, as the core wants it."""
    key = POLICIES[policy]

    def rank(image: Lingering, now_s: int) -> tuple[int, ...]:
        entry = PolicyEntry(
            key=image.key,
            size_bytes=image.size_bytes,
            added_s=image.added_s,
            uses=image.uses,
            last_use_s=image.last_use_s,
            expires_s=image.last_use_s,
            next_use_s=image.next_use_s,
        )
        return key(entry, now_s)

    return rank


def no_virtualisation(setup: Setup) -> Setup:
    """Jobs as they are: no images, no overhead, and no way to suspend them."""
    return replace(setup, has_images=False, slowdown_percent=0, suspension=SuspensionRules(is_allowed=False))


def thesis_nodes(count: int = 8, cpus: int = 2) -> tuple[Node, ...]:
    """The thesis' testbed: eight nodes with room for two virtual machines each."""
    return tuple(Node(name=f"n{number}", capacity=Resources.of(cpus=cpus)) for number in range(1, count + 1))
