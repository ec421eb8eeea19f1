"""One link for reservations and jobs, a share of which is promised to the jobs (as in `together`).

The server's link is the only place where both meet, and nobody can give orders there. So what the
hosts of jobs take is limited while an image of a reservation is under way, each to its part of the
promise; the reservation gets the rest, which is all that it was planned with. A limit is kept by
reading no faster, so what a socket may buffer comes regardless: of scaled images that would be a
third, hence the smaller buffers.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.physical.site import PhysicalSite
    from cachemgr.network.client import DaemonClient


BUFFERS = "net.ipv4.tcp_rmem=4096 65536 131072"


class NodeLane(Protocol):
    """Where a transfer to a node goes."""

    def __call__(self, node: str) -> AbstractContextManager[None]: ...


@contextmanager
def own_link(node: str) -> Iterator[None]:
    """Nobody else is on the link."""
    yield


class Arbiter:
    """Both lanes of one link."""

    def __init__(self, site: PhysicalSite, *, share_percent: int, rate_bytes_per_s: int) -> None:
        self._site = site
        self._promised_bytes_per_s = rate_bytes_per_s * share_percent // 100
        self._reservations = 0
        self._jobs: set[str] = set()
        self._limits: dict[str, int] = {}
        self._clients: dict[str, DaemonClient] = {}
        self._lock = threading.Lock()
        for node in site.nodes:
            site.cluster.run(node, ["sysctl", "-q", "-w", BUFFERS])

    @contextmanager
    def reservation(self, node: str) -> Iterator[None]:
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    @contextmanager
    def job(self, node: str) -> Iterator[None]:
        self._change(0, joins=node)
        try:
            yield
        finally:
            self._change(0, leaves=node)

    def _change(self, reservations: int, *, joins: str = "", leaves: str = "") -> None:
        with self._lock:
            self._reservations += reservations
            self._jobs = (self._jobs | ({joins} if joins else set())) - {leaves}
            limit = self._promised_bytes_per_s // max(1, len(self._jobs)) if self._reservations else 0
            for node in sorted(self._jobs):
                if self._limits.get(node) != limit:
                    self._limits[node] = limit
                    if node not in self._clients:
                        self._clients[node] = self._site.client(node)
                    self._clients[node].ask("limits", {"rate_bytes_per_s": limit})

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
