"""`outrider sim options`: requests with several options under several schemes, the paper's beside ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError
from outrider.cli.output import print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import positive
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.sim.experiments.parallel import Progress
    from outrider.sim.workload.options.example import ExampleRun
    from outrider.sim.workload.options.experiment import OptionsCell

WORKLOADS = {
    "example": "Table I and Figure 1: eleven requests on two nodes",
    "synthetic": "Figure 4: regular options, loads 0.8 to 1.4",
    "benchmark": "Figures 2a and 3a: irregular options, loads 0.8 to 1.4",
    "spikes": "Figures 2bc and 3bc: the same, with spikes of load",
    "moldable": "the jobs of a log on other numbers of processors",
}
READINGS = ("plain", "printed", "golden")
SEEDS, INTERVALS, JOBS = 10, 1000, 1000
CSV_HEADER = (
    "workload", "load", "scheme", "trials", "discarded_percent", "discarded_error", "discarded_half_width",
    "benefit_percent", "benefit_error", "benefit_half_width", "wait_min", "wait_half_width",
    "utilisation_percent", "utilisation_half_width",
)  # fmt: skip

_EPILOG = "workloads:\n" + "\n".join(f"  {name:<10} {what}" for name, what in WORKLOADS.items())
_EPILOG += """

After R. Begam and others, "Flexible VM Provisioning for Time-Sensitive Applications with Multiple
Execution Options". What is shown is a mean over seeds and half the width of its 95 % confidence interval.

examples:
  outrider sim options example
  outrider sim options synthetic --seeds 3 --intervals 300 -o figure-4.svg
  outrider sim options moldable log.swf.gz --model downey --csv
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "options", show, "run requests that have several options", _EPILOG)
    parser.add_argument("workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("log", nargs="?", metavar="LOG", help="of moldable: a log in SWF, also with .gz")
    parser.add_argument(
        "--seeds", type=positive, default=SEEDS, metavar="N",
        help="draws, or stretches of a log (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--first-seed", type=positive, default=1, metavar="N", help="of the first draw (default: 1)"
    )
    parser.add_argument(
        "--intervals", type=positive, default=INTERVALS, metavar="N",
        help="of ten minutes in each draw (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs",
        type=positive,
        default=JOBS,
        metavar="N",
        help="in each stretch of a log (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        choices=("amdahl", "downey"),
        default="amdahl",
        help="how jobs scale (default: %(default)s)",
    )
    parser.add_argument(
        "--reading", choices=READINGS,
        help="of the paper's Equation 2; docs/research/papers.md has them (default: plain; example: golden)",
    )  # fmt: skip
    parser.add_argument(
        "--overshoot", choices=("carried", "kept"), default="carried",
        help="of a load by its last request: the next interval gets less, or not (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--drawing", choices=("literal", "bounded", "truncated"), default="literal",
        help="of synthetic requests: as the paper says; whole minutes, none larger than the cluster … "
        "(bounded); or so with times shortened by the ratio before it is rounded (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--all-plans", action="store_true", help="the plan in each of its orders")
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes to run in (default: one for each core)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture: .svg, .png or .pdf")
    add_form_options(parser)


def show(arguments: argparse.Namespace) -> None:
    if (arguments.workload == "moldable") != (arguments.log is not None):
        raise InputError("a log is named for moldable, and only for it")
    if arguments.output:
        if arguments.workload == "moldable":
            raise InputError("-o: moldable has no picture; leave it out")
        check_picture(arguments.output)
    if arguments.drawing != "literal" and arguments.workload != "synthetic":
        raise InputError("--drawing is of synthetic requests: leave it out")
    if arguments.workload == "example":
        _show_example(arguments)
        return
    with progress(f"options, {arguments.workload}") as on_progress:
        cells = _measured(arguments, on_progress)
    if arguments.output:
        from outrider.cli.output import complete_file
        from outrider.sim.plots.options import draw_options

        with complete_file(arguments.output) as path:
            draw_options(cells, path)
    if arguments.json:
        print_json(cells)
    elif arguments.csv:
        print_csv(CSV_HEADER, [_row(cell) for cell in cells])
    else:
        print(cells_text(cells))


def _measured(arguments: argparse.Namespace, on_progress: Progress) -> Sequence[OptionsCell]:
    from outrider.core.options.priority import FactorReading
    from outrider.sim.workload.options import experiment as runs
    from outrider.sim.workload.options.generators import Drawing, Overshoot, RequestKind
    from outrider.sim.workload.options.moldable import Model
    from outrider.sim.workload.trace import WorkloadError

    chosen = runs.ways(FactorReading(arguments.reading or "plain"), all_plans=arguments.all_plans)
    if arguments.workload == "moldable":
        try:
            return runs.moldable(
                arguments.log, Model(arguments.model), chosen, windows=arguments.seeds, jobs=arguments.jobs,
                workers=arguments.workers, on_progress=on_progress,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{arguments.log}: {error.strerror}") from error
        except (WorkloadError, ValueError) as error:
            raise InputError(str(error)) from error
    return runs.experiment(
        RequestKind.SYNTHETIC if arguments.workload == "synthetic" else RequestKind.BENCHMARK,
        runs.SPIKES if arguments.workload == "spikes" else runs.LOADS,
        chosen,
        seeds=arguments.seeds,
        first_seed=arguments.first_seed,
        intervals=arguments.intervals,
        overshoot=Overshoot(arguments.overshoot),
        drawing=Drawing(arguments.drawing),
        workers=arguments.workers,
        on_progress=on_progress,
    )


def _row(cell: OptionsCell) -> tuple[object, ...]:
    return (
        cell.workload, cell.load, cell.scheme, cell.trials, cell.discarded.mean, cell.discarded.error,
        cell.discarded.half_width, cell.benefit.mean, cell.benefit.error, cell.benefit.half_width,
        cell.wait_min.mean, cell.wait_min.half_width, cell.utilisation.mean, cell.utilisation.half_width,
    )  # fmt: skip


def cells_text(cells: Sequence[OptionsCell]) -> str:
    """A row for each scheme, under a heading for each load."""
    lines = [
        f"requests with several options, {cells[0].workload}, {cells[0].trials} draws, ± 95 % of the mean"
    ]
    load = None
    for cell in cells:
        if cell.load != load:
            load = cell.load
            names = ("discarded (%)", "benefit (%)", "wait (min)", "utilisation (%)")
            lines += ["", f"{'load ' + load:<24} " + " ".join(f"{name:>15}" for name in names)]
        values = " ".join(
            f"{f'{each.mean:.1f} ± {each.half_width:.1f}':>15}"
            for each in (cell.discarded, cell.benefit, cell.wait_min, cell.utilisation)
        )
        lines.append(f"{cell.scheme:<24} {values}")
    return "\n".join(lines)


def _show_example(arguments: argparse.Namespace) -> None:
    from outrider.core.options.priority import FactorReading
    from outrider.sim.workload.options.example import example

    reading = FactorReading(arguments.reading or "golden")
    found = example(reading)
    if arguments.output:
        from outrider.cli.output import complete_file
        from outrider.sim.plots.options import draw_example

        with complete_file(arguments.output) as path:
            draw_example(reading, path)
    if arguments.json:
        print_json(found)
    elif arguments.csv:
        rows = [(each.scheme, each.benefit, " ".join(each.lost), " ".join(each.schedule)) for each in found]
        print_csv(("scheme", "benefit", "lost", "schedule"), rows)
    else:
        print("\n".join(_example_lines(found)))


def _example_lines(found: Sequence[ExampleRun]) -> list[str]:
    lines = ["Table I of the paper: 11 requests on nodes of 4 and 16 cores, intervals of 10", ""]
    for each in found:
        lost = ", ".join(each.lost) or "none"
        printed = "" if each.printed_lost is None else f"   (paper: {', '.join(each.printed_lost) or 'none'})"
        lines.append(f"{each.scheme:<18} benefit {100 * each.benefit:5.1f} %   lost: {lost}{printed}")
        lines.append(f"{'':<18} {' '.join(each.schedule)}")
    return lines
