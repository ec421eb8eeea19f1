"""What the verbs work with: the pool, the transfers, the maker of instances, the counts.

Put together once, when the daemon starts, and handed to everything that needs it.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.base.shares import Share, Shares
    from cachemgr.config import NodeConfig
    from cachemgr.daemon.copy_queue import CopyQueue
    from cachemgr.daemon.log import DaemonLog
    from cachemgr.daemon.metrics import CountedIndex, NodeMetrics
    from cachemgr.daemon.network.mirror_logins import MirrorLogins
    from cachemgr.daemon.transfers.tally import Holders, Tally
    from cachemgr.daemon.transfers.transfers import Transfers
    from cachemgr.daemon.verbs.names import Names
    from cachemgr.fetch.bring import Carrier
    from cachemgr.machines.batch.arrivals import Arrivals
    from cachemgr.machines.batch.kept import Removals
    from cachemgr.pool.held import PoolHolding
    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.pool import ImagePool

    class Shared(Protocol):
        """A thing, or several, that users share."""

        def shares(self) -> list[Share]:
            """Who has how much."""

        def refused(self) -> dict[str, int]:
            """How often more was refused, by the thing."""


@dataclass(frozen=True)
class LastAdvance:
    """How far an ingest was, and since when it has not come further than by next to nothing."""

    arrived_bytes: int
    since_s: float


class UserLocks:
    """A lock for each user who needs one now."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._wanted: dict[int, int] = {}

    @contextmanager
    def of(self, uid: int) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(uid, threading.Lock())
            self._wanted[uid] = self._wanted.get(uid, 0) + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                self._wanted[uid] -= 1
                if not self._wanted[uid]:
                    del self._wanted[uid], self._locks[uid]


@dataclass
class NodeContext:
    """One node's daemon."""

    config: NodeConfig
    pool: ImagePool
    index: CountedIndex
    maker: Maker
    carrier: Carrier
    transfers: Transfers
    holders: Holders
    metrics: NodeMetrics
    clock: Clock
    log: DaemonLog
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
    one_at_a_time: UserLocks
    # Copies that are made before their jobs start.
    copyist: CopyQueue
    # Machines of jobs that come from other nodes.
    arrivals: Arrivals
    # Machines of jobs that are gone.
    removals: Removals
    # Where container runtimes of this node fetch images, if the site wants that.
    mirror: MirrorLogins | None = None
    # The site's keys, of which the first signs.
    keys: tuple[bytes, ...] = ()
    # Between counting what a user has and reserving more.
    admission: threading.Lock = field(default_factory=threading.Lock)
    # What users are about to hold; changed with `admission`.
    pending: list[PoolHolding] = field(default_factory=list)
    # What is arriving for users, by key, and since when it has not come further.
    stalled: dict[str, LastAdvance] = field(default_factory=dict)
    is_index_ready: bool = False
    # Everything of which users have shares.
    shared: list[Shared] = field(default_factory=list)
    # How many connections are open, once somebody listens.
    connections: Callable[[], int] | None = None
