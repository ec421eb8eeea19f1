"""How near to their bounds plans of a cluster-wide context switch are, and how long that takes.

Sites of the paper's section 5.1, of 1,000 and of 5,000 nodes. Prints for each the heuristic's cost and
the solver's as ratios to the bound, and the processor time of both.
"""

from __future__ import annotations

import argparse
from time import process_time

from outrider.core.switch.planner import Improve, Switch, plan_switch
from outrider.sim.switch.check import faults, staged
from outrider.sim.switch.situations import MIXES, draw
from outrider.solver.placement import improver

SITES = ((1000, 2430), (5000, 12150))
QUICK = ((200, 486),)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one site of 200 nodes")
    parser.add_argument("--mix", choices=MIXES, default="six-two-two", help="(default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{'nodes':>6}{'machines':>9}{'heuristic':>11}{'processor':>11}{'solver':>9}{'processor':>11}")
    for nodes, machines in QUICK if arguments.quick else SITES:
        alone, alone_s = _planned(nodes, machines, arguments.mix, None)
        solved, solved_s = _planned(nodes, machines, arguments.mix, improver())
        bound = max(1, solved.bound)
        print(
            f"{nodes:>6}{machines:>9}{alone.cost / bound:>11.4f}{alone_s:>9.1f} s"
            f"{solved.cost / bound:>9.4f}{solved_s:>9.1f} s"
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
