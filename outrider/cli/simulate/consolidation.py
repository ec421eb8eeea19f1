"""`outrider sim consolidation`: jobs with processors for good, against a switch whenever it lets more run."""

from __future__ import annotations

import argparse
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError
from outrider.cli.output import complete_file, print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import positive
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.sim.switch.consolidation import ComparedRuns

DEFAULT_SEEDS = 10
MOST_STRETCH = 100.0
_COLUMNS = ("seed", "static_s", "consolidated_s", "at_s", "cost", "longest", "took_s", "actions")
_EPILOG = """Eight jobs of nine virtual machines on eleven nodes of two processors and 3,584 MB: section 5.2
of the paper on cluster-wide context switches. A queue in order gives each machine a processor until its job
is over; consolidation gives one to machines that compute, and looks every so often whether a switch lets
more run.

The paper has neither the memory of each machine, which is drawn, nor what each computes when: shapes are
those of the NAS grid benchmarks, with tasks of one length. Alone its jobs take 90 minutes in all, and its
queue 250: --stretch makes them longer. A cost is that of the paper's section 4.2, and the longest that of
its Figure 11.

examples:
  outrider sim consolidation
  outrider sim consolidation --stretch 4.7 --picture consolidation.svg
  outrider sim consolidation --memory 512 --seeds 1 --json
"""


def add(commands: Subparsers) -> None:
    parser = add_command(
        commands, "consolidation", show, "compare jobs in lanes with jobs that are moved together", _EPILOG
    )
    parser.add_argument(
        "--memory", type=positive, action="append", metavar="MB",
        help="what machines have, drawn from these; again for more (default: 512, 1024, 2048)",
    )  # fmt: skip
    parser.add_argument(
        "--stretch",
        type=_stretch,
        default=1.0,
        metavar="X",
        help="how much longer than in the paper jobs compute",
    )
    parser.add_argument(
        "--every",
        type=positive,
        default=30,
        metavar="S",
        help="seconds from look to look (default: %(default)s)",
    )
    parser.add_argument(
        "--continuous", action="store_true", help="each action as early as it can be, not in stages"
    )
    parser.add_argument(
        "--seeds",
        type=positive,
        default=DEFAULT_SEEDS,
        metavar="N",
        help="draws of memory (default: %(default)s)",
    )
    parser.add_argument("--first-seed", type=positive, default=1, metavar="N", help="of the first one")
    parser.add_argument("--picture", metavar="FILE", help="draw the first one: .svg, .png or .pdf")
    add_form_options(parser, what="each run, with its switches")


def show(arguments: argparse.Namespace) -> None:
    if arguments.picture:
        check_picture(arguments.picture)
    from outrider.core.switch.planner import NoSwitch
    from outrider.sim.switch.consolidation import NODE_MEMORY_MB, compared
    from outrider.sim.switch.grid_jobs import MEMORIES_MB

    memories = tuple(arguments.memory or MEMORIES_MB)
    if max(memories) > NODE_MEMORY_MB:
        raise InputError(f"--memory {max(memories)}: a node has {NODE_MEMORY_MB} MB for machines")
    found: list[ComparedRuns] = []
    try:
        with progress("runs") as on_progress:
            for number in range(arguments.seeds):
                found.append(
                    compared(
                        arguments.first_seed + number,
                        memories_mb=memories,
                        stretch=arguments.stretch,
                        every_s=arguments.every,
                        is_continuous=arguments.continuous,
                    )
                )
                on_progress(number + 1, arguments.seeds)
    except NoSwitch as error:
        raise InputError(str(error)) from error
    if arguments.picture:
        from outrider.sim.plots.consolidation import draw_consolidation

        with complete_file(arguments.picture) as path:
            draw_consolidation(found[0], path)
    if arguments.json:
        print_json({"runs": found})
    elif arguments.csv:
        print_csv(
            _COLUMNS,
            (
                (run.seed, run.static.total_s, run.consolidated.total_s, each.at_s, each.cost, each.longest,
                 each.took_s, _done(each.actions))
                for run in found
                for each in run.consolidated.switches
            ),
        )  # fmt: skip
    else:
        print(screen(found))


def screen(found: list[ComparedRuns]) -> str:
    """A line for each draw, and the mean."""
    head = f"{'draw':>4}{'in lanes':>11}{'moved':>10}{'less':>8}{'switches':>10}{'resumed in place':>18}"
    lines = [f"{head}  actions"]
    for run in found:
        consolidated = run.consolidated
        resumed = f"{consolidated.local_resumes} of {consolidated.actions['resume']}"
        lines.append(
            f"{run.seed:>4}{run.static.total_s / 60:>7.0f} min{consolidated.total_s / 60:>6.0f} min"
            f"{run.reduction_percent:>6.0f} %{len(consolidated.switches):>10}"
            f"{resumed:>18}  {_done(consolidated.actions)}"
        )
    less = [run.reduction_percent for run in found]
    error = f" ± {stdev(less) / sqrt(len(less)):.1f}" if len(less) > 1 else ""
    lines.append(f"mean {fmean(less):.1f}{error} % less time (the paper: 40 %, from 250 to 150 minutes)")
    return "\n".join(lines)


def _done(actions: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in actions.items() if count)


def _stretch(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST_STRETCH:
        raise argparse.ArgumentTypeError(
            f"{text!r}: how many times as long, above 0 and at most {MOST_STRETCH:.0f}"
        )
    return found
