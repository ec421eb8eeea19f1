"""What the verbs work with: the pool, the transfers, the maker of instances, the counts.

Put together once, when the daemon starts, and handed to everything that needs it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.bring import Carrier
    from cachemgr.clock import Clock
    from cachemgr.config import Config
    from cachemgr.daemon.access import Holders
    from cachemgr.daemon.log import Log
    from cachemgr.daemon.metrics import CountedIndex, Metrics
    from cachemgr.daemon.transfers import Transfers
    from cachemgr.fetch.rate import RateLimit
    from cachemgr.instance_book import Maker
    from cachemgr.pool import Pool


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
    relay_limit: RateLimit
    # Tells the timer what kind of thing expires, and when.
    poke: Callable[[str, int], None]
    # The site's keys, of which the first signs.
    keys: tuple[bytes, ...] = ()
    # Between counting what a user has and reserving more.
    admission: threading.Lock = field(default_factory=threading.Lock)
    is_index_ready: bool = False
    # How many connections are open, once somebody listens.
    connections: Callable[[], int] | None = None
