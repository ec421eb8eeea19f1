"""All 144 mixed runs of the thesis: 36 workloads in four configurations, in one process.

Prints the CPU seconds as a share of the limit of 20, instances per CPU-second, and what each
configuration costs relative to the one without images in the same run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from outrider.sim.experiments.mixed import CONFIGURATIONS
from outrider.sim.setup import thesis_nodes
from outrider.sim.workload.mixed import ROWS, mixed_trace, row_parameters
from outrider.sim.world import Simulation

LIMIT_S = 20
NAMES = ("no virtualisation", "predeployed", "no reuse", "reuse")


def main() -> int:
    rows = ROWS[:2] if Arguments(__doc__).given().quick else ROWS
    spent = dict.fromkeys(NAMES, 0.0)
    instances = 0
    for row in rows:
        trace = mixed_trace(row_parameters(row, 1), name=row)
        for name in NAMES:
            began = process_time()
            outcome = Simulation(CONFIGURATIONS[name], thesis_nodes(), trace).run()
            spent[name] += process_time() - began
            instances += len(outcome.done)
    total = sum(spent.values())
    print(
        f"{len(rows) * len(NAMES)} runs in {total:.1f} CPU-s, "
        f"{total / LIMIT_S:.2f} of the limit of {LIMIT_S}; {instances / total:.0f} instances per CPU-second"
    )
    for name, seconds in spent.items():
        print(f"{name}: {seconds:.2f} CPU-s, {seconds / spent['predeployed']:.2f} x predeployed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
