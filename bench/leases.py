"""Requests per CPU-second with images on: 1,000 best-effort gangs and 50 reservations.

The workload is of the kind with which Haizea was measured (one instance a node, load 0.9,
six images of 600 MB on 100 Mbit/s, pools of 20 GB, images sent to all nodes at once).
Of other simulators the best was measured, on another machine and on other draws, at 216
requests per CPU-second on 8 nodes and 9 on 64; the ratios printed are to runs of our own.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.sim.setup import Setup, ranked_by
from outrider.sim.workload.synthetic import synthetic_leases
from outrider.sim.workload.trace import Trace
from outrider.sim.world import Simulation

TARGETS = {8: 5_000, 64: 1_000}
POOL_BYTES = 20 * 10**9
WITH_IMAGES = Setup(
    pool_bytes=POOL_BYTES,
    keep_bytes=POOL_BYTES,
    rank=ranked_by("lfu"),
    suspension=SuspensionRules(is_allowed=False),
)


def requests_per_cpu_second(setup: Setup, trace: Trace, repeats: int) -> float:
    """The best of a few runs: what disturbs a run only makes it slower."""
    best = 0.0
    for _ in range(repeats):
        world = Simulation(setup, trace.nodes, trace)
        began = process_time()
        world.run()
        best = max(best, len(trace.submissions) / (process_time() - began))
    return best


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--repeats", 5, 1, "the best of so many runs counts")
    given = parser.given()
    for nodes, target in list(TARGETS.items())[: 1 if given.quick else None]:
        trace = synthetic_leases(nodes=nodes)
        plain = requests_per_cpu_second(replace(WITH_IMAGES, has_images=False), trace, given.repeats)
        rate = requests_per_cpu_second(WITH_IMAGES, trace, given.repeats)
        suspending = requests_per_cpu_second(
            replace(WITH_IMAGES, suspension=SuspensionRules()), trace, given.repeats
        )
        print(
            f"{len(trace.submissions)} requests on {nodes} nodes with images: {rate:.0f} per CPU-second, "
            f"{rate / target:.2f} of the target of {target}; {rate / plain:.2f} of the rate without images "
            f"({plain:.0f}); with suspension {suspending:.0f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
