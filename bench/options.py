"""How fast requests with several options are served, and how long it takes to admit one at a large site.

The schemes of `outrider sim options` on requests with three options each, in requests per CPU-second; and one
admission with five options with many nodes and reservations in the book, in milliseconds of CPU.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.admission import IMAGES, filled, percentile, request
from bench.frame import Arguments, judged
from outrider.core.model import Image, Workspace
from outrider.core.options.admission import admit_options
from outrider.core.options.plan import provisioner
from outrider.core.options.request import Request
from outrider.core.options.schemes import Rules, Scheme
from outrider.sim.workload.options.generators import (
    INTERVAL_S,
    Load,
    Overshoot,
    RequestKind,
    cluster,
    requests,
)

LEAST_PER_S = 2000
MOST_MS = 25
OPTIONS = 5
EFFICIENT = 1.8
"""By how much twice the nodes are faster."""


def arrivals(count: int) -> list[list[Request]]:
    """So many synthetic requests with three options each, at a load of 1 of 64 unlike nodes."""
    nodes = cluster(4)
    found: list[list[Request]] = []
    drawn = 0
    for arrived in requests(
        RequestKind.SYNTHETIC, Load(average=1.0), 1, count, nodes=nodes, overshoot=Overshoot.CARRIED
    ):
        three = [replace(each, options=each.options[:3]) for each in arrived if len(each.options) > 2]
        found.append(three[: count - drawn])
        drawn += len(found[-1])
        if drawn == count:
            break
    return found


def served_per_s(scheme: Scheme, given: list[list[Request]]) -> tuple[float, float]:
    """Requests per CPU-second, and how many percent were served."""
    site = provisioner(cluster(4), Rules(scheme=scheme))
    began = process_time()
    for number, arrived in enumerate(given, 1):
        site.step(number * INTERVAL_S, arrived)
    site.finish()
    spent = process_time() - began
    count = sum(map(len, given))
    return count / spent, 100 * len(site.outcome.served) / count


def ways(number: int, random: Random, images: list[Image]) -> tuple[list[Workspace], int]:
    """A request with five options, from fewer nodes for longer to more for a shorter time."""
    first = replace(request(number, random, images, 1), name=f"o{number}")
    found = [
        replace(
            first, instances=first.instances * 2**step, duration_s=round(first.duration_s / EFFICIENT**step)
        )
        for step in range(OPTIONS)
    ]
    assert first.start_s is not None
    return found, first.start_s + first.duration_s * random.randint(1, 4)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--requests", 100_000, 500)
    parser.add("--nodes", 10_000, 200)
    parser.add("--reservations", 20_000, 200)
    parser.add("--decisions", 1000, 20)
    options = parser.given()
    given = arrivals(options.requests)
    is_good = True
    for scheme in Scheme:
        speed, percent = served_per_s(scheme, given)
        is_good = is_good and speed >= LEAST_PER_S
        print(
            f"{scheme.value}: {sum(map(len, given))} requests of 3 options on 64 nodes, "
            f"{speed:.0f} per CPU-second ({speed / LEAST_PER_S:.2f} of the limit), {percent:.1f} % served",
            flush=True,
        )
    random = Random(1)
    images = [Image(uri=f"image{n}", size_bytes=random.randint(1, 20) * 10**9) for n in range(IMAGES)]
    book, _ = filled(options.nodes, options.reservations, random, images, 1)
    for tells_all in (False, True):
        taken: list[float] = []
        accepted = 0
        for number in range(options.decisions):
            asked, finish_by_s = ways(number, random, images)
            began = process_time()
            answer = admit_options(book, asked, 0, finish_by_s=finish_by_s, is_plan=True, tells_all=tells_all)
            taken.append(1000 * (process_time() - began))
            accepted += answer.chosen is not None
        p99 = percentile(taken, 99)
        what = "and what is said of each" if tells_all else "alone"
        print(
            f"admission with {OPTIONS} options {what}, {options.nodes} nodes, {options.reservations} "
            f"reservations: {accepted} of {len(taken)} accepted, p50 {percentile(taken, 50):.2f} ms, "
            f"p99 {p99:.2f} ms ({p99 / MOST_MS:.2f} of {MOST_MS} ms)"
        )
        is_good = is_good and p99 <= MOST_MS
    return judged(options, is_good=is_good)


if __name__ == "__main__":
    raise SystemExit(main())
