"""One node of `bench/relay.py`: the real relay and engine in a process of its own on a host of its own.

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
from typing import TypedDict

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from cachemgr.clock import SystemClock  # noqa: E402
from cachemgr.errors import CacheError  # noqa: E402
from cachemgr.fetch.engine import transfer  # noqa: E402
from cachemgr.fetch.rate import RateLimit  # noqa: E402
from cachemgr.fetch.sources import Settings, source_of  # noqa: E402
from cachemgr.relay.conversation import RelaySettings  # noqa: E402
from cachemgr.relay.server import Relay  # noqa: E402
from cachemgr.relay.tickets import make_ticket  # noqa: E402
from testbed.depot import Depot, DepotFile  # noqa: E402

KEY = b"a key for a benchmark, and no secret"
TICKET_S = 3600


class Orders(TypedDict):
    """What a node is told. A node without sources has the image from the beginning."""

    number: int
    listen: str
    port: int
    path: str
    digest: str
    size_bytes: int
    sources: list[str]
    expected_rate_bytes_per_s: int | None


def main(orders: Orders) -> int:
    clock = SystemClock()
    is_origin = not orders["sources"]
    depot = Depot()
    have = orders["size_bytes"] if is_origin else 0
    file = DepotFile(Path(orders["path"]), orders["size_bytes"], have_bytes=have)
    file.is_public = True
    settings = RelaySettings(
        host=orders["listen"],
        port=orders["port"],
        keys=(KEY,),
        serves_public=is_origin,
        most_connections=256,
    )
    relay = Relay(depot, settings, clock, RateLimit(None, clock), lambda line: None)
    ticket = make_ticket(KEY, orders["digest"], clock.now_s() + TICKET_S)
    sources = [source_of(uri, Settings(), clock, ticket=ticket) for uri in orders["sources"]]
    if is_origin:
        depot.files[orders["digest"]] = file
    say("ready")
    sys.stdin.readline()
    begin = os.times()
    # From now on this node says that the image is arriving, as it does when a pool has reserved room.
    depot.files[orders["digest"]] = file
    if sources:
        try:
            report = transfer(
                file,
                sources,
                clock=clock,
                random=Random(orders["number"]),
                expected_rate_bytes_per_s=orders["expected_rate_bytes_per_s"],
            )
        except CacheError as error:
            say(json.dumps({"failed": str(error)}))
            return 1
        finish_s = clock.monotonic_s()
        is_right = f"sha256:{file.written_sha256()}" == orders["digest"]
        said = [f"{each.source}: {each.message}" for each in report.said]
        say(json.dumps({"finish_s": finish_s, "is_right": is_right, "said": said}))
    sys.stdin.read()
    end = os.times()
    relay.close()
    depot.close()
    # The interpreter's own start is not counted: a node's daemon runs anyway.
    say(json.dumps({"user_s": end.user - begin.user, "system_s": end.system - begin.system}))
    return 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
