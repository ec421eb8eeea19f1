"""What the verbs work with: the pool, the transfers, the maker of instances, the counts.

Put together once, when the daemon starts, and handed to everything that needs it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.base.shares import Share, Shares
    from cachemgr.config import Config
    from cachemgr.daemon.copies import Copyist
    from cachemgr.daemon.log import Log
    from cachemgr.daemon.metrics import CountedIndex, Metrics
    from cachemgr.daemon.transfers.stalled import Seen
    from cachemgr.daemon.transfers.tally import Tally
    from cachemgr.daemon.transfers.transfers import Transfers
    from cachemgr.daemon.verbs.access import Holders
    from cachemgr.daemon.verbs.making import OneAtATime
    from cachemgr.daemon.verbs.names import Names
    from cachemgr.fetch.bring import Carrier
    from cachemgr.pool.held import Holding
    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.pool import Pool

    class Shared(Protocol):
        """A thing, or several, that users share."""

        def shares(self) -> list[Share]:
            """Who has how much."""

        def refused(self) -> dict[str, int]:
            """How often more was refused, by the thing."""


@dataclass
class Node:
    """One node's daemon."""

    config: Config
    pool: Pool
    index: CountedIndex
    maker: Maker
    carrier: Carrier
    transfers: Transfers
    holders: Holders
    metrics: Metrics
    clock: Clock
    log: Log
    started_s: int
    # The same by the clock that nobody sets.
    began_s: float
    relay_limit: RateLimit
    shared_bytes: Shares
    # Tells the timer what kind of thing expires, and when.
    poke: Callable[[str, int], None]
    pins: Tally
    names: Names
    # Users' instances that are being made.
    one_at_a_time: OneAtATime
    # Copies that are made before their jobs start.
    copyist: Copyist
    # The site's keys, of which the first signs.
    keys: tuple[bytes, ...] = ()
    # Between counting what a user has and reserving more.
    admission: threading.Lock = field(default_factory=threading.Lock)
    # What users are about to hold; changed with `admission`.
    pending: list[Holding] = field(default_factory=list)
    # What is arriving for users, by key, and since when it has not come further.
    stalled: dict[str, Seen] = field(default_factory=dict)
    is_index_ready: bool = False
    # Everything of which users have shares.
    shared: list[Shared] = field(default_factory=list)
    # How many connections are open, once somebody listens.
    connections: Callable[[], int] | None = None
