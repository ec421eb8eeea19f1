"""One node of `bench/relay.py`: the real pool, relay and engine in a process of its own on a host of its own.

    python bench/relay_node.py '{"listen": …, "path": …, "sources": […], …}'

It prints "ready", begins at a line on its input, prints one line of JSON when it has the image,
and goes on relaying until its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypedDict

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from cachemgr.base.clock import SystemClock  # noqa: E402
from cachemgr.base.disk import RealDisk  # noqa: E402
from cachemgr.base.errors import CacheError  # noqa: E402
from cachemgr.base.hashing import ThreadedHasher  # noqa: E402
from cachemgr.base.rate import RateLimit  # noqa: E402
from cachemgr.fetch.engine import transfer  # noqa: E402
from cachemgr.fetch.sources.sources import SourceSettings, source_of  # noqa: E402
from cachemgr.pool.holdings import PoolHoldings  # noqa: E402
from cachemgr.pool.index import SqliteIndex  # noqa: E402
from cachemgr.pool.ingest import Ingest, Writer  # noqa: E402
from cachemgr.pool.layout import PoolSettings  # noqa: E402
from cachemgr.pool.pool import ImagePool, Want  # noqa: E402
from cachemgr.relay.connections import RelaySettings  # noqa: E402
from cachemgr.relay.server import RelayServer  # noqa: E402
from cachemgr.relay.tickets import make_ticket  # noqa: E402
from testbed.depot import Depot, DepotFile  # noqa: E402

if TYPE_CHECKING:
    from cachemgr.fetch.ports import Holdings

KEY = b"a key for a benchmark, and no secret"
TICKET_S = 3600


class NodeOrders(TypedDict):
    """What a node is told. A node without sources has the image from the beginning."""

    number: int
    listen: str
    port: int
    path: str
    digest: str
    size_bytes: int
    sources: list[str]
    expected_rate_bytes_per_s: int | None


class NodeSite:
    """What a node has: the origin a file, every other one a pool of its own."""

    def __init__(self, orders: NodeOrders, clock: SystemClock) -> None:
        self.depot: Depot | None = None
        self.pool: ImagePool | None = None
        self.writer: Writer | None = None
        if orders["sources"]:
            self.pool = opened(orders, clock)
            self.holdings: Holdings = PoolHoldings(self.pool, lambda key: self.writer)
        else:
            self.depot = Depot()
            size_bytes = orders["size_bytes"]
            file = DepotFile(Path(orders["path"]), size_bytes, have_bytes=size_bytes)
            file.is_public = True
            self.depot.files[orders["digest"]] = file
            self.holdings = self.depot

    def reserve(self, orders: NodeOrders) -> Writer:
        """Room for the image, as a planned transfer has; from now on this node says that it is arriving."""
        assert self.pool is not None
        want = Want(uri="image", size_bytes=orders["size_bytes"], digest=orders["digest"])
        ingest = self.pool.want(want)
        assert isinstance(ingest, Ingest)
        self.writer = ingest.writer(ThreadedHasher())
        assert self.writer is not None
        return self.writer

    def close(self) -> None:
        for each in (self.depot, self.pool):
            if each is not None:
                each.close()


def opened(orders: NodeOrders, clock: SystemClock) -> ImagePool:
    disk = RealDisk()
    ImagePool.create(disk, orders["path"], PoolSettings(limit_bytes=2 * orders["size_bytes"], policy="lfu"))
    return ImagePool(disk, orders["path"], clock, SqliteIndex(f"{orders['path']}/index.sqlite"))


def main(orders: NodeOrders) -> int:
    clock = SystemClock()
    site = NodeSite(orders, clock)
    settings = RelaySettings(
        host=orders["listen"],
        port=orders["port"],
        keys=(KEY,),
        serves_public=not orders["sources"],
        most_connections=256,
    )
    relay = RelayServer(site.holdings, settings, clock, RateLimit(None, clock), lambda line: None)
    ticket = make_ticket(KEY, orders["digest"], clock.now_s() + TICKET_S)
    sources = [source_of(uri, SourceSettings(), clock, ticket=ticket) for uri in orders["sources"]]
    writer = site.reserve(orders) if sources else None
    say("ready")
    sys.stdin.readline()
    begin, counts = os.times(), counted()
    if writer is not None:
        try:
            report = transfer(
                writer,
                sources,
                clock=clock,
                random=Random(orders["number"]),
                expected_rate_bytes_per_s=orders["expected_rate_bytes_per_s"],
            )
            image = writer.commit()
        except CacheError as error:
            say(json.dumps({"failed": str(error)}))
            return 1
        finish_s = clock.monotonic_s()
        is_right = f"sha256:{image.digest}" == orders["digest"]
        attempts = [
            f"{each.begin_s:.2f} to {each.end_s:.2f} s, {(each.end_bytes - each.start_bytes) / 1e6:.1f} MB "
            f"from {each.source.rpartition('/')[0]}: {each.reason}"
            for each in report.attempts
        ]
        say(json.dumps({"finish_s": finish_s, "is_right": is_right, "attempts": attempts}))
    sys.stdin.read()
    end = os.times()
    relay.close()
    site.close()
    # The interpreter's own start is not counted: a node's daemon runs anyway.
    received, sent = (after - before for after, before in zip(counted(), counts, strict=True))
    used = {"user_s": end.user - begin.user, "system_s": end.system - begin.system}
    say(json.dumps({**used, "received_bytes": received, "sent_bytes": sent}))
    return 0


def counted() -> tuple[int, int]:
    """The bytes that this host's link has received and sent, headers and all."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        device, _, numbers = line.partition(":")
        if device.strip() == "eth0":
            fields = numbers.split()
            return int(fields[0]), int(fields[8])
    return 0, 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
