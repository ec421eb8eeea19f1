"""How the tests build a site: the one place that knows what a scheduler is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import QueueRules
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.images.pools import Lingering, Pools
from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Node
from outrider.core.reservations.book import Book, Shipping, Terms
from outrider.core.scheduler import Scheduler

RATE_BYTES_PER_S = 5


def oldest_first(entry: Lingering, now_s: int) -> tuple[int, ...]:
    """Give up first what was used longest ago."""
    return (entry.last_use_s,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Everything that makes one site's decisions differ from another's."""

    nodes: tuple[Node, ...]
    shipping: Shipping = Shipping.PER_NODE
    is_reusing: bool = True
    is_extending: bool = True
    joins_any_image: bool = False
    keep_bytes: int = 0
    reserve_s: int | None = None
    backfilling: Backfilling = Backfilling.GREEDY
    places: int | None = 1
    suspension: SuspensionRules = field(default_factory=SuspensionRules)

    def book(self) -> Book:
        terms = Terms(
            shipping=self.shipping,
            is_reusing=self.is_reusing,
            is_extending=self.is_extending,
            joins_any_image=self.joins_any_image,
        )
        pools = Pools(self.nodes, keep_bytes=self.keep_bytes, rank=oldest_first)
        links = ExclusiveLinks(rate_bytes_per_s=RATE_BYTES_PER_S, reserve_s=self.reserve_s)
        return Book(self.nodes, terms, links=links, pools=pools)

    def scheduler(self) -> Scheduler:
        rules = QueueRules(backfilling=self.backfilling, places=self.places, suspension=self.suspension)
        return Scheduler(self.book(), rules)


def steps(taken: Sequence[tuple[int, int, int]], capacity: int, from_s: int) -> list[tuple[int, int]]:
    """What is free from `from_s` on if `(start_s, end_s, amount)` are taken: where it changes, to what."""
    changes: dict[int, int] = {}
    for start_s, end_s, amount in taken:
        if end_s > from_s and amount:
            start_s = max(start_s, from_s)
            changes[start_s] = changes.get(start_s, 0) - amount
            changes[end_s] = changes.get(end_s, 0) + amount
    free = capacity + changes.pop(from_s, 0)
    found = [(from_s, free)]
    for at_s in sorted(changes):
        if changes[at_s]:
            free += changes[at_s]
            found.append((at_s, free))
    return found
