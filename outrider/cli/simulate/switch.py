"""`outrider sim switch`: what a cluster-wide context switch costs, on random sites."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.output import complete_file, print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import positive
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.sim.switch.experiment import ReductionRow, Sample

MOST_MACHINES = 200_000
DEFAULT_SEEDS = 15
DEFAULT_EFFORT = 10
_SAMPLE_COLUMNS = (
    "mix", "machines", "seed", "cost", "packed_cost", "longest", "packed_longest", "bound", "stages",
    "actions", "in_stages_s", "continuous_s", "by",
)  # fmt: skip

_EPILOG = """A site has nodes of 2 processors and 4 GB, and jobs of 9 or 18 virtual machines that run, sleep
or wait. A switch goes from there to the placement in which as many jobs as possible run, in the order of
the queue. Its cost is the paper's: of every action what it moves (MB of memory) and the stages before it.
It is compared with the plan that leads to First Fit Decreasing's placement.

Every plan is carried out by an independent check, instant by instant. A cost is optimal if the solver
has proven that no plan costs less in which each machine does no more than its own action.

mixes: running, sleeping and waiting jobs in parts; the paper does not say which it had
  thirds          1:1:1           thirds-busy     1:1:1, 95 % of machines compute
  mostly-running  8:1:1           six-two-two     6:2:2
  halves          1:0:1           running         all run

examples:
  outrider sim switch --mix six-two-two --seeds 3
  outrider sim switch --machines 486 --picture figure10.svg
  outrider sim switch --nodes 1000 --machines 2430 --no-solver --seeds 1 --json
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "switch", switch, "say what a cluster-wide context switch costs", _EPILOG)
    parser.add_argument(
        "--nodes", type=positive, default=200, metavar="N", help="nodes of a site (default: %(default)s)"
    )
    parser.add_argument(
        "--machines", type=positive, action="append", metavar="N",
        help="virtual machines of a site; again for more sizes (default: 54, 108, … 486)",
    )  # fmt: skip
    parser.add_argument(
        "--mix", action="append", metavar="MIX", help="again for more than one (default: all but six-two-two)"
    )
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, metavar="N",
        help="sites of each mix and size (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--first-seed", type=positive, default=1, metavar="N", help="of the first one")
    parser.add_argument(
        "--order", choices=("memory", "processors"), default="memory",
        help="by what First Fit Decreasing sorts first (default: memory)",
    )  # fmt: skip
    parser.add_argument(
        "--effort", type=positive, default=DEFAULT_EFFORT, metavar="N",
        help="the solver's, in its own units: about seconds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--no-solver", action="store_true", help="the heuristic alone")
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes to run in (default: one for each core)"
    )
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--json", action="store_true", help="print rows and samples as JSON")
    outputs.add_argument("--csv", action="store_true", help="print a line for each sample")
    outputs.add_argument("--picture", metavar="FILE", help="draw the reductions: .svg, .png or .pdf")


def switch(arguments: argparse.Namespace) -> None:
    if arguments.picture:
        check_picture(arguments.picture)
    from outrider.core.switch.selection import Decreasing
    from outrider.sim.switch.experiment import SIZES, rows, samples
    from outrider.sim.switch.situations import MIXES

    mixes = arguments.mix or [name for name in MIXES if name != "six-two-two"]
    if unknown := [name for name in mixes if name not in MIXES]:
        raise InputError(f"--mix {unknown[0]}: choose from {', '.join(MIXES)}")
    sizes = arguments.machines or SIZES
    if max(sizes) > MOST_MACHINES:
        raise InputError(f"--machines {max(sizes)}: at most {MOST_MACHINES} are drawn")
    if not arguments.no_solver and find_spec("ortools") is None:
        raise MissingPartError(
            "the solver needs OR-tools: install outrider[switch], or give --no-solver for the heuristic alone"
        )
    with progress("switches") as on_progress:
        found = samples(
            nodes=arguments.nodes,
            sizes=sizes,
            mixes=mixes,
            seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
            order=Decreasing[arguments.order.upper()],
            effort=0 if arguments.no_solver else arguments.effort,
            workers=arguments.workers,
            on_progress=on_progress,
        )
    summed = rows(found)
    if arguments.picture:
        from outrider.sim.plots.switch import draw_reductions

        with complete_file(arguments.picture) as path:
            draw_reductions(summed, path)
    _print(summed, found, arguments)


def _print(summed: list[ReductionRow], found: list[Sample], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"rows": summed, "samples": found})
    elif arguments.csv:
        print_csv(_SAMPLE_COLUMNS, ([getattr(each, name) for name in _SAMPLE_COLUMNS] for each in found))
    else:
        print(screen(summed))


def screen(summed: list[ReductionRow]) -> str:
    """A line for each mix and size."""
    lines = [
        f"{'mix':<15}{'machines':>9}{'reduction of the cost':>24}{'by stages':>11}"
        f"{'optimal':>11}{'gap':>8}{'stages':>8}{'in stages':>11}{'continuous':>12}"
    ]
    for row in summed:
        share = f"{row.reduction_percent:.1f} ± {row.reduction_error:.1f} %"
        lines.append(
            f"{row.mix:<15}{row.machines:>9}{share:>24}{row.longest_reduction_percent:>9.1f} %"
            f"{f'{row.optimal} of {row.samples}':>11}{row.gap_percent:>6.2f} %{row.stages:>8.1f}"
            f"{row.in_stages_s:>9.0f} s{row.continuous_s:>10.0f} s"
        )
    return "\n".join(lines)
