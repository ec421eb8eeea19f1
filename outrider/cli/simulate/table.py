"""`outrider sim table`: a table of the thesis, ours beside its own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError
from outrider.cli.output import print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.sim.experiments.comparison import TableReport
    from outrider.sim.experiments.parallel import Progress

TABLES = {
    "4.1": "few long jobs: does virtualisation pay without suspend/resume?",
    "4.2": "many short jobs: the same",
    "8.1": "the four published traces",
    "8.2": "distribution of images in traces III and IV",
    "8.3": "time: no virtualisation against predeployed images",
    "8.4": "utilisation: no virtualisation against predeployed images",
    "8.5": "time: images predeployed, transferred, reused",
    "8.6": "utilisation: images predeployed, transferred, reused",
    "8.7": "time: no virtualisation against images transferred, reused",
    "beyond": "the same workloads with pools, relay and one shared link",
    "disk": "peak disk usage of a node",
}
_WITH_REUSE = ("8.5", "8.6", "8.7")
DEFAULT_SEEDS = 12

_EPILOG = "tables:\n" + "\n".join(f"  {name:<7} {what}" for name, what in TABLES.items())
_EPILOG += """

examples:
  outrider sim table 8.5
  outrider sim table 8.3 --seeds 3 --csv > table.csv
  outrider sim table 8.5 --joins-any-image

The 36 workloads of section 8.3 are drawn anew for each seed, because the thesis' own are
lost: it shows one draw, we show the mean of ours and its standard deviation. A row marked
with * is further from the thesis than two standard deviations.
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "table", show, "run a table of the thesis and compare", _EPILOG)
    parser.add_argument("name", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, metavar="N",
        help="draws of each workload (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--first-seed", type=positive, metavar="N",
                        help="of the first draw; the next ones follow (default: 1)")  # fmt: skip
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes to run in (default: one for each core)"
    )
    parser.add_argument(
        "--joins-any-image", action="store_true",
        help="keep the original simulator's fault of joining a transfer of another image",
    )  # fmt: skip
    add_form_options(parser, what="the table")


def show(arguments: argparse.Namespace) -> None:
    if arguments.joins_any_image and arguments.name not in _WITH_REUSE:
        raise InputError(
            f"--joins-any-image is about the reuse column of tables {', '.join(_WITH_REUSE)}; "
            f"table {arguments.name} has none, leave it out"
        )
    with progress(f"table {arguments.name}") as on_progress:
        report = measured(arguments, on_progress)
    if arguments.json:
        from outrider.cli.simulate.tables.data import report_data

        print_json(report_data(report))
    elif arguments.csv:
        from outrider.cli.simulate.tables.data import CSV_HEADER, report_rows

        print_csv(CSV_HEADER, report_rows(report))
    else:
        from outrider.cli.simulate.tables.text import report_text

        print(report_text(report))


def measured(arguments: argparse.Namespace, on_progress: Progress) -> TableReport:
    """Run the experiment behind a table."""
    from outrider.sim.experiments import disk, submissions, tables

    name, seeds, workers = arguments.name, arguments.seeds, arguments.workers
    if name in ("8.1", "8.2"):
        if arguments.first_seed:
            raise InputError(f"--first-seed: nothing in table {name} is random; leave it out")
        return submissions.traces() if name == "8.1" else submissions.distribution()
    first = arguments.first_seed or 1
    if name == "disk":
        return disk.disk(seeds=seeds, first_seed=first, workers=workers, on_progress=on_progress)
    if name == "beyond":
        return tables.beyond(seeds=seeds, first_seed=first, workers=workers, on_progress=on_progress)
    if name in tables.SPECIFICATIONS:
        return tables.table_of_the_thesis(
            name,
            seeds=seeds,
            first_seed=first,
            joins_any_image=arguments.joins_any_image,
            workers=workers,
            on_progress=on_progress,
        )
    return tables.motivation(name, seeds=seeds, first_seed=first, workers=workers, on_progress=on_progress)
