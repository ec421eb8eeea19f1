"""Reads link-sharing scenarios as JSON on stdin and prints when SimGrid ends each transfer.

Run by Debian's own interpreter, the only one that has SimGrid: it imports nothing of ours.
SimGrid runs one engine a process, so each scenario gets its own island of hosts and links
in that engine. A cap is a private link on the way, which SimGrid shares among one transfer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from simgrid import (  # type: ignore[import-not-found]
    Actor,
    Engine,
    LinkInRoute,
    Mailbox,
    NetZone,
    this_actor,
)

IDEAL_SHARING = [
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--log=root.thres:critical",
]
HOST_FLOPS = 1e9


def build(zone: Any, prefix: str, scenario: Any) -> Iterator[Any]:
    """Lay out one scenario's links; yield each transfer with its ends and name."""
    server = zone.create_host(f"{prefix}server", HOST_FLOPS)
    uplink = zone.create_link(f"{prefix}uplink", float(scenario["rate_bytes_per_s"]))
    downlinks = {
        name: zone.create_link(f"{prefix}down-{name}", float(rate))
        for name, rate in scenario["receivers_bytes_per_s"].items()
    }
    for transfer in scenario["transfers"]:
        name = prefix + transfer["key"]
        host = zone.create_host(name, HOST_FLOPS)
        route = [LinkInRoute(uplink)]
        if transfer["receiver"] is not None:
            route.append(LinkInRoute(downlinks[transfer["receiver"]]))
        if transfer["cap_bytes_per_s"] is not None:
            cap = zone.create_link(f"{name}-cap", float(transfer["cap_bytes_per_s"]))
            route.append(LinkInRoute(cap))
        zone.add_route(server.netpoint, host.netpoint, None, None, route, True)
        yield server, host, name, transfer


def send(name: str, start_s: int, size_bytes: int) -> None:
    this_actor.sleep_until(start_s)
    Mailbox.by_name(name).put(name, size_bytes)


def receive(name: str, key: str, finishes: dict[str, float]) -> None:
    Mailbox.by_name(name).get()
    finishes[key] = Engine.clock


def main() -> None:
    scenarios = json.load(sys.stdin)
    engine = Engine([sys.argv[0], *IDEAL_SHARING])
    zone = NetZone.create_full_zone("world")
    answers: list[dict[str, float]] = [{} for _ in scenarios]
    parties: list[Any] = []
    for number, (scenario, finishes) in enumerate(zip(scenarios, answers, strict=True)):
        for party in build(zone, f"{number}-", scenario):
            parties.append((*party, finishes))
    zone.seal()
    for server, host, name, transfer, finishes in parties:
        Actor.create(name, server, send, name, transfer["start_s"], transfer["size_bytes"])
        Actor.create(name, host, receive, name, transfer["key"], finishes)
    engine.run()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
