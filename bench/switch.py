"""How near to their bounds plans of a cluster-wide context switch are, and how long that takes.

Sites of the paper's section 5.1, of 1,000 and of 5,000 nodes. Prints for each the heuristic's cost and
the solver's as ratios to the bound, and the processor time of both. With `--instances` those of the shape
of BtrPlace's `std-perf`, through its format: migrations as a ratio to the fewest that are possible node by
node, and the processor time of reading, placing and checking.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from outrider.core.switch.planner import Improve, Switch, plan_switch
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.datacentres import draw_instance
from outrider.sim.switch.instances import read_instance
from outrider.sim.switch.situations import MIXES, draw
from outrider.sim.switch.solving import solve
from outrider.solver.placement import improver

SITES = ((1000, 2430), (5000, 12150))
QUICK = ((200, 486),)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one site of 200 nodes")
    parser.add_argument("--mix", choices=MIXES, default="six-two-two", help="(default: %(default)s)")
    parser.add_argument("--instances", action="store_true", help="instances of BtrPlace's shape instead")
    arguments = parser.parse_args()
    if arguments.instances:
        _instances(200 if arguments.quick else 5000)
        return
    print(f"{'nodes':>6}{'machines':>9}{'heuristic':>11}{'processor':>11}{'solver':>9}{'processor':>11}")
    for nodes, machines in QUICK if arguments.quick else SITES:
        alone, alone_s = _planned(nodes, machines, arguments.mix, None)
        solved, solved_s = _planned(nodes, machines, arguments.mix, improver())
        bound = max(1, solved.bound)
        print(
            f"{nodes:>6}{machines:>9}{alone.cost / bound:>11.4f}{alone_s:>9.1f} s"
            f"{solved.cost / bound:>9.4f}{solved_s:>9.1f} s"
        )


def _instances(nodes: int) -> None:
    print(f"{'instance':>9}{'machines':>9}{'starts':>8}{'moves':>7}{'to least':>10}{'stages':>8}{'time':>11}")
    for kind in ("li", "nr"):
        for machines_a_node in (3, 4, 5, 6):
            with TemporaryDirectory() as folder:
                path = Path(folder) / "instance.json"
                path.write_text(json.dumps(draw_instance(kind, nodes, machines_a_node, 1)))
                begun_s = process_time()
                solved, _ = solve(read_instance(path, counts_moves=True))
                spent_s = process_time() - begun_s
            ratio = solved.moves / solved.least_moves if solved.least_moves else 1.0
            print(
                f"{kind}{machines_a_node}".rjust(9)
                + f"{solved.machines:>9}{solved.actions['run']:>8}{solved.moves:>7}{ratio:>10.4f}"
                f"{solved.stages:>8}{spent_s:>9.1f} s"
            )


def _planned(nodes: int, machines: int, mix: str, improve: Improve | None) -> tuple[Switch, float]:
    situation = draw(nodes, machines, MIXES[mix], 1)
    begun_s = process_time()
    switch = plan_switch(situation, range(len(situation.jobs)), improve=improve)
    spent_s = process_time() - begun_s
    if found := faults(situation, staged(switch.plan), switch.target.hosts):
        raise SystemExit(f"{nodes} nodes: {found[0]}")
    return switch, spent_s


if __name__ == "__main__":
    main()
