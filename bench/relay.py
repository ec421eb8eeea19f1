"""How near the planned relay comes to the bound, undisturbed and with a node that fails it.

    sudo python bench/relay.py [--nodes 16] [--mbit 200] [--mib 128] [--only chain,killed]

Hosts are network namespaces whose links are limited in both directions. A ratio is the time
until the last node has the image, divided by bytes ÷ link rate, which nothing can beat. Needs
root and iproute2; the comparison with BitTorrent needs aria2.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic_ns

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking, without_root
from bench.relay_torrent import HAS_ARIA2, torrent_finishes
from testbed.hosts import JUMBO_BYTES, Hosts

ROOT = Path(__file__).resolve().parents[1]
PORT = 4711
SLOWER = 10
TARGET = 1.05
MOST_S = 600
# Long enough for a neighbour to ask in vain and to go elsewhere.
STALL_S = 2.5
NAMES = ("chain", "killed", "cut", "stalled", "slow", "http", "torrent")


@dataclass(frozen=True)
class RelayPlan:
    """What is measured."""

    nodes: int
    rate_bits_per_s: int
    size_bytes: int
    digest: str
    image: Path
    folder: Path
    mtu_bytes: int
    says: bool

    @property
    def bound_s(self) -> float:
        return self.size_bytes * 8 / self.rate_bits_per_s

    @property
    def victim(self) -> int:
        """The node to which something happens; nodes count from 1, host 0 is the origin."""
        return (self.nodes + 1) // 2


@dataclass(frozen=True)
class RelayOutcome:
    """When each node had the image, in seconds from the beginning; None if it never had."""

    finish_s: dict[int, float | None]
    user_s: float
    system_s: float
    attempts: dict[int, list[str]]
    received_bytes: dict[int, int]
    sent_bytes: dict[int, int]

    def last_s(self, *, but: int | None = None) -> float:
        times = [time for node, time in self.finish_s.items() if node != but]
        return max(float("inf") if time is None else time for time in times)


class RelayNode:
    """A process of `relay_node.py` on a host."""

    def __init__(self, hosts: Hosts, number: int, orders: dict[str, object]) -> None:
        script = Path(__file__).with_name("relay_node.py")
        argv = [sys.executable, "-S", "-E", str(script), json.dumps(orders)]
        self.number = number
        self.process = hosts.start(number, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def finish(self) -> dict[str, float]:
        """Let it end; gives the seconds of processor that it used itself and in the kernel, and its bytes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        line = self.line()
        self.process.stdout.close()
        self.process.wait(timeout=MOST_S)
        used: dict[str, float] = json.loads(line or "{}")
        return used


def relayed(
    plan: RelayPlan,
    sources: Callable[[RelayPlan, Hosts, int], list[str]],
    *,
    prepare: Callable[[Hosts], None] | None = None,
    midway: Callable[[Hosts, list[RelayNode]], None] | None = None,
) -> RelayOutcome:
    """Let all nodes fetch the image, with something done to them before, or at half time."""
    with Hosts(plan.nodes + 1, plan.rate_bits_per_s, plan.mtu_bytes) as hosts:
        nodes = [
            RelayNode(hosts, number, _orders(plan, hosts, number, sources))
            for number in range(plan.nodes + 1)
        ]
        for node in nodes:
            if node.line() != "ready":
                raise SystemExit(f"node {node.number} did not start")
        if prepare is not None:
            prepare(hosts)
        begin_s = monotonic_ns() / 1e9
        for node in nodes:
            node.go()
        timer = threading.Timer(plan.bound_s / 2, lambda: midway and midway(hosts, nodes))
        timer.start()
        finish: dict[int, float | None] = {}
        attempts: dict[int, list[str]] = {}
        for node in nodes[1:]:
            answer = json.loads(node.line() or "{}")
            is_right = answer.get("is_right", False)
            finish[node.number] = answer["finish_s"] - begin_s if is_right else None
            attempts[node.number] = answer.get("attempts", [answer.get("failed", "gone")])
        timer.join()
        used = [node.finish() for node in nodes]
    return RelayOutcome(
        finish,
        sum(each.get("user_s", 0.0) for each in used),
        sum(each.get("system_s", 0.0) for each in used),
        attempts,
        {number: int(each.get("received_bytes", 0)) for number, each in enumerate(used)},
        {number: int(each.get("sent_bytes", 0)) for number, each in enumerate(used)},
    )


def _orders(
    plan: RelayPlan, hosts: Hosts, number: int, sources: Callable[[RelayPlan, Hosts, int], list[str]]
) -> dict[str, object]:
    return {
        "number": number,
        "listen": hosts.address(number),
        "port": PORT,
        "path": str(plan.image if number == 0 else plan.folder / f"node{number}"),
        "digest": plan.digest,
        "size_bytes": plan.size_bytes,
        "sources": sources(plan, hosts, number) if number else [],
        "expected_rate_bytes_per_s": plan.rate_bits_per_s // 8,
    }


def origin(plan: RelayPlan, hosts: Hosts, number: int) -> list[str]:
    """Everybody asks the origin."""
    return [f"http://{hosts.address(0)}:{PORT}/v1/images/{plan.digest}"]


def upstream(plan: RelayPlan, hosts: Hosts, number: int) -> list[str]:
    """The chain: the node before, those before that one, and the origin last."""
    relays = [f"relay://{hosts.address(above)}:{PORT}/{plan.digest}" for above in range(number - 1, 0, -1)]
    return relays + origin(plan, hosts, number)


def chain(plan: RelayPlan) -> RelayOutcome:
    return relayed(plan, upstream)


def killed(plan: RelayPlan) -> RelayOutcome:
    return relayed(plan, upstream, midway=lambda hosts, nodes: nodes[plan.victim].process.kill())


def cut(plan: RelayPlan) -> RelayOutcome:
    def pull(hosts: Hosts, nodes: list[RelayNode]) -> None:
        hosts.cut(plan.victim)
        # Others have gone round it long before; a process without a network would only wait.
        threading.Timer(plan.bound_s * 3, nodes[plan.victim].process.kill).start()

    return relayed(plan, upstream, midway=pull)


def stalled(plan: RelayPlan) -> RelayOutcome:
    """A node that stands still for a moment and goes on, as one that has no processor."""

    def stop(hosts: Hosts, nodes: list[RelayNode]) -> None:
        process = nodes[plan.victim].process
        process.send_signal(signal.SIGSTOP)
        threading.Timer(STALL_S, lambda: process.send_signal(signal.SIGCONT)).start()

    return relayed(plan, upstream, midway=stop)


def slow(plan: RelayPlan) -> RelayOutcome:
    return relayed(
        plan, upstream, prepare=lambda hosts: hosts.set_rate(plan.victim, plan.rate_bits_per_s // SLOWER)
    )


def http(plan: RelayPlan) -> RelayOutcome:
    return relayed(plan, origin)


def torrent(plan: RelayPlan) -> RelayOutcome:
    finish = torrent_finishes(plan.image, plan.folder, plan.nodes, plan.rate_bits_per_s, plan.mtu_bytes)
    return RelayOutcome(dict(enumerate(finish, 1)), 0.0, 0.0, {}, {}, {})


def main(arguments: list[str]) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 16, 3)
    parser.add_argument("--mbit", type=int, default=200, help="the rate of each link")
    parser.add("--mib", 128, 4, "the size of the image")
    parser.add_argument("--mtu", type=int, default=JUMBO_BYTES)
    parser.add_argument("--only", default=",".join(NAMES), help=f"some of {','.join(NAMES)}")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--says", action="store_true", help="print the bytes and attempts of each node")
    options = parser.given(arguments)
    if without_root("to make hosts") or lacking(None if shutil.which("ip") else "needs iproute2"):
        return NOT_MEASURED
    with tempfile.TemporaryDirectory(prefix="outrider-relay-", dir=options.folder) as folder:
        image = Path(folder) / "image"
        random = Random(1)
        data = b"".join(random.randbytes(1 << 20) for _ in range(options.mib))
        image.write_bytes(data)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        plan = RelayPlan(
            options.nodes,
            options.mbit * 1_000_000,
            len(data),
            digest,
            image,
            Path(folder),
            options.mtu,
            options.says,
        )
        is_good = report(plan, [name for name in options.only.split(",") if name])
        return judged(options, is_good=is_good)


def report(plan: RelayPlan, names: list[str]) -> bool:
    print(
        f"{plan.nodes} nodes, links of {plan.rate_bits_per_s / 1e6:g} Mbit/s, "
        f"{plan.size_bytes / 2**20:g} MiB, frames of {plan.mtu_bytes} bytes: "
        f"bound {plan.bound_s:.2f} s, measured on {os.cpu_count()} processors"
    )
    ways = {
        "chain": chain,
        "killed": killed,
        "cut": cut,
        "stalled": stalled,
        "slow": slow,
        "http": http,
        "torrent": torrent,
    }
    is_good = True
    undisturbed: float | None = None
    for name in names:
        if name == "torrent" and not HAS_ARIA2:
            print("torrent   aria2 is not installed")
            continue
        outcome = ways[name](plan)
        victim = plan.victim if name in ("killed", "cut", "slow") else None
        last_s = outcome.last_s(but=victim)
        ratio = last_s / plan.bound_s
        line = f"{name:8}  ratio {ratio:6.3f}  last node after {last_s:6.2f} s"
        line += f"  processor {outcome.user_s:.1f} + {outcome.system_s:.1f} s"
        line += f"  sent {sum(outcome.sent_bytes.values()) / plan.size_bytes / plan.nodes:.2f} times a node"
        if name == "chain":
            undisturbed, is_good = last_s, ratio <= TARGET
        if victim is not None:
            own_s = outcome.finish_s[victim]
            line += f"  node {victim} itself: {'never' if own_s is None else f'{own_s:.2f} s'}"
            if undisturbed is not None:
                line += f", the others {last_s / undisturbed - 1:+.0%} against undisturbed"
        print(line, flush=True)
        if plan.says:
            for line in told(outcome):
                print(line)
        for path in plan.folder.glob("node*"):
            shutil.rmtree(path)
    return is_good


def told(outcome: RelayOutcome) -> Iterator[str]:
    """What each node received and sent, and whom it asked, with the reason for which that ended."""
    for node, sent in outcome.sent_bytes.items():
        finish_s = outcome.finish_s.get(node)
        when = "" if finish_s is None else f" had it after {finish_s:.2f} s,"
        name = f"node {node}" if node else "origin"
        yield f"  {name}{when} received {outcome.received_bytes[node] / 1e6:.1f} MB, sent {sent / 1e6:.1f} MB"
        yield from (f"    {attempt}" for attempt in outcome.attempts.get(node, []))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
