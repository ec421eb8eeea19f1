"""What one gang costs the simulator, in a short queue and in a long one: all are handed in at once.

The workload is that of `leases.py` without reservations, on the honest profile. Measured is CPU time per
gang, of whole runs; the ratio says how that grows when the queue is longer. It is to stay below 1.5. 100,000
gangs are for those who have minutes: `--gangs 100000`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments, judged
from outrider.collector import collector_paused
from outrider.sim.setup import HONEST, ranked_by
from outrider.sim.workload.synthetic import synthetic_leases
from outrider.sim.world import Simulation

AT_ONCE = 1e9
"""A load for which nobody comes later than the first."""
POOL_BYTES = 20 * 10**9
SETUP = replace(HONEST, pool_bytes=POOL_BYTES, keep_bytes=POOL_BYTES, rank=ranked_by("lru"))
MOST_RATIO = 1.5


def milliseconds_each(gangs: int, nodes: int) -> float:
    """CPU time for each of so many gangs that wait together."""
    trace = synthetic_leases(gangs, 0, nodes, AT_ONCE)
    world = Simulation(SETUP, trace.nodes, trace)
    # As `outrider sim run` does.
    with collector_paused():
        began = process_time()
        world.run()
        return (process_time() - began) * 1_000 / gangs


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--gangs", 10_000, 300, "gangs in the long queue")
    parser.add("--short", 1_000, 100, "gangs in the short queue")
    parser.add("--nodes", (64, 1_024), (8,), "nodes", lambda text: tuple(map(int, text.split(","))))
    given = parser.given()
    is_good = True
    for nodes in given.nodes:
        short, long = (milliseconds_each(gangs, nodes) for gangs in (given.short, given.gangs))
        ratio = long / short
        is_good = is_good and ratio <= MOST_RATIO
        print(
            f"{nodes} nodes: {short:.2f} ms for each of {given.short} gangs, {long:.2f} ms for each of "
            f"{given.gangs}; {ratio:.2f} times as much",
            flush=True,
        )
    return judged(given, is_good=is_good)


if __name__ == "__main__":
    sys.exit(main())
