"""How long one admission decision takes with 10,000 nodes and 20,000 reservations in the book.

Prints percentiles of accepting, of refusing, and of refusing with the earliest start that
would work, in milliseconds of CPU. As the baseline in the same run: the same decision by a
plain scan of all nodes, which is what the index by time bucket replaces. Then refusals of half of the
site and more: all of a search for the earliest start, and its longest step, for which others wait. Then
the same as at first with the nodes in racks behind links of their own, as a ratio to that.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from outrider.core.links.deadline_network import DeadlineNetwork
from outrider.core.links.links import ExclusiveLinks
from outrider.core.links.network import Network, NetworkLink
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping, Terms
from outrider.core.reservations.earliest import search_after

HORIZON_S = 30 * 86_400
IMAGES = 200
RATE = 1_250_000_000
RESERVE_S = 600
RACK_NODES = 50
SOURCE_LANES = 4
MOST_RATIO = 2
VAST_LIMIT_MS = 100
LIMITS_MS = {"accepted": 10, "refused": 10, "refused, with its earliest start": 50}


def site(count: int) -> tuple[Node, ...]:
    """Three kinds of nodes, as clusters grow over the years."""
    kinds = [Resources.of(cpus=64, memory_gib=256), Resources.of(cpus=128, memory_gib=512)]
    kinds.append(Resources.of(cpus=128, memory_gib=2048, gpus=4))
    return tuple(
        Node(name=f"n{number}", capacity=kinds[number * len(kinds) // count], pool_bytes=500 * 10**9)
        for number in range(count)
    )


def request(number: int, random: Random, images: list[Image], scale: int) -> Workspace:
    """Mostly small and whole nodes, some large, some a fraction of a node."""
    instances = min(4_000, int(scale * random.paretovariate(0.9)))
    whole = random.random() < 0.7
    cpus = random.choice((64, 128)) if whole else random.choice((1, 4, 16))
    duration_s = 1800 * random.randint(1, 48)
    return Workspace(
        name=f"r{number}",
        instances=instances,
        resources=Resources.of(cpus=cpus, memory_gib=cpus * 2),
        duration_s=duration_s,
        image=random.choice(images),
        start_s=600 + 300 * random.randrange(HORIZON_S // 300),
    )


def racks(nodes: tuple[Node, ...]) -> DeadlineNetwork:
    """Each rack behind a link as fast as the site's one, and a source that sends to several at a time."""
    links = [
        NetworkLink(name=f"rack{number}", rate_bytes_per_s=RATE)
        for number in range(-(-len(nodes) // RACK_NODES))
    ]
    network = Network(
        site=NetworkLink(name="site", rate_bytes_per_s=SOURCE_LANES * RATE, lanes=SOURCE_LANES),
        groups={node.name: links[number // RACK_NODES] for number, node in enumerate(nodes)},
    )
    return DeadlineNetwork(network, reserve_s=RESERVE_S)


def filled(
    nodes: int, reservations: int, random: Random, images: list[Image], scale: int, *, has_racks: bool = False
) -> tuple[Book, int]:
    """A book with so many accepted reservations, and how many requests that took."""
    terms, places = Terms(shipping=Shipping.RELAY), site(nodes)
    network = racks(places) if has_racks else None
    links = ExclusiveLinks(rate_bytes_per_s=RATE, reserve_s=RESERVE_S, network=network)
    book = Book(places, terms, links=links)
    number = 0
    while len(book.entries) < reservations:
        admit(book, request(number, random, images, scale), 0, tells_earliest=False)
        number += 1
    # As the service does: a look for garbage among millions of values would count as a decision.
    gc.collect()
    gc.freeze()
    return book, number


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def measure(
    book: Book, decisions: int, random: Random, images: list[Image], scale: int
) -> dict[str, list[float]]:
    """Milliseconds of each kind of decision; requests are as those in the book, some larger."""
    taken: dict[str, list[float]] = {kind: [] for kind in LIMITS_MS}
    for number in range(decisions):
        workspace = request(10**6 + number, random, images, scale)
        began = process_time()
        answer = assess(book, workspace, 0, tells_earliest=False)
        decided = process_time()
        kind = "accepted" if isinstance(answer, ReservationPlan) else "refused"
        taken[kind].append(1000 * (decided - began))
        if isinstance(answer, Rejected):
            began = process_time()
            assess(book, workspace, 0)
            taken["refused, with its earliest start"].append(1000 * (process_time() - began))
    return taken


def measure_vast(
    book: Book, decisions: int, random: Random, images: list[Image]
) -> tuple[list[float], list[float]]:
    """Milliseconds of a refusal of half of the site and more with its earliest start, and of its longest
    step: the service answers others between two of them."""
    whole: list[float] = []
    longest: list[float] = []
    nodes = len(book.timeline.nodes)
    for number in range(decisions):
        asked = request(2 * 10**6 + number, random, images, 1)
        cpus = random.choice((64, 128))
        workspace = replace(
            asked,
            instances=random.randint(nodes // 2, nodes),
            resources=Resources.of(cpus=cpus, memory_gib=cpus * 2),
        )
        began = process_time()
        answer = assess(book, workspace, 0, tells_earliest=False)
        steps = [process_time() - began]
        if not isinstance(answer, Rejected) or answer.refusal.message:
            continue
        assert workspace.start_s is not None
        search = search_after(book, workspace, workspace.start_s, 0, answer.refusal, [])
        is_over = False
        while not is_over:
            began = process_time()
            is_over = next(search, None) is None
            steps.append(process_time() - began)
        whole.append(1000 * sum(steps))
        longest.append(1000 * max(steps))
    return whole, longest


def scan_ms(book: Book, random: Random, images: list[Image]) -> float:
    """The baseline: asking every node, without the index."""
    spent = 0.0
    for number in range(20):
        workspace = request(number, random, images, 1)
        need = book.timeline.layout.pack(workspace.resources)
        assert workspace.start_s is not None
        end_s = workspace.start_s + workspace.duration_s
        began = process_time()
        [row.most(need, workspace.start_s, end_s, workspace.instances) for row in book.timeline.rows]
        spent += process_time() - began
    return 1000 * spent / 20


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 10_000, 200)
    parser.add("--reservations", 20_000, 200)
    parser.add("--decisions", 50_000, 500)
    parser.add_argument("--scale", type=int, default=1, help="instances of the smallest request")
    options = parser.given()
    random = Random(1)
    images = [Image(uri=f"image{n}", size_bytes=random.randint(1, 20) * 10**9) for n in range(IMAGES)]
    began = process_time()
    book, asked = filled(options.nodes, options.reservations, random, images, options.scale)
    spent = process_time() - began
    held = sum(len(entry.fits) for entry in book.entries.values())
    print(
        f"{options.nodes} nodes; {options.reservations} reservations over 30 days on {held} node slots, "
        f"of {asked} asked for; filled at {asked / spent:.0f} decisions per CPU-second"
    )
    taken = measure(book, options.decisions, random, images, options.scale)
    scan = scan_ms(book, random, images)
    for kind, values in taken.items():
        if values:
            p50, p99, worst = percentile(values, 50), percentile(values, 99), max(values)
            print(
                f"{kind}: {len(values)} decisions, p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {worst:.2f} ms; "
                f"limit {LIMITS_MS[kind]} ms: p99 is {p99 / LIMITS_MS[kind]:.2f} of it; "
                f"a scan of all nodes takes {scan:.1f} ms: {scan / p50:.1f} x the median"
            )
    vast = measure_vast(book, max(20, options.decisions // 100), Random(3), images)
    for what, values in zip(("all of it", "its longest step"), vast, strict=True):
        if values:
            p50, p99 = percentile(values, 50), percentile(values, 99)
            print(
                f"half of the site and more refused, with its earliest start, {what}: {len(values)} "
                f"decisions, p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {max(values):.1f} ms; limit "
                f"{VAST_LIMIT_MS} ms: p99 is {p99 / VAST_LIMIT_MS:.2f} of it"
            )
    book, _ = filled(options.nodes, options.reservations, Random(1), images, options.scale, has_racks=True)
    for kind, values in measure(book, options.decisions, Random(2), images, options.scale).items():
        if values and taken[kind]:
            ratios = [percentile(values, each) / percentile(taken[kind], each) for each in (50, 99)]
            print(
                f"{kind}, in racks of {RACK_NODES}: {len(values)} decisions, p50 {ratios[0]:.2f} and p99 "
                f"{ratios[1]:.2f} of one link's; limit {MOST_RATIO}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
