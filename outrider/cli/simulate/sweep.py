"""`outrider sim sweep`: many experiments on leases from one file, on all cores or in parts, resumable."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError, MissingPartError, OutputError
from outrider.cli.output import complete_file, print_csv, print_json, say
from outrider.cli.progress import progress
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.sim.leases.experiment import LeaseCase

_EPILOG = """The file says what outrider sim leases takes as options; every combination is a row:

  logs: [KTH-SP2-1996-2.1-cln.swf.gz]     # as seen from the file's folder
  work: [5, 10, 15, 20, 25, 30]           # this and the next four are what there is without them
  hours: [1, 2, 3, 4]
  sizes: [small, medium, large]
  policies: [none, all, hour-share=25, hour-share=50, protect=20]
  users: [steadfast, insistent, falling-back, choosing]
  systems: [suspend]
  premiums: [50]
  seeds: 1
  days: 30                                # from_day, processors_per_node, images, first_seed, notice_h,
  terms: {slowdown_percent: 10}           # no_show_percent, early_percent, waiting_price; write_mb_per_s,
                                          # read_mb_per_s, is_shared, checkpoint_s

Each run's result is a file in the folder. What is there is not run again, so a sweep that was killed goes on
when it is begun again. --part 2/8 does the second of eight parts and no table: for array jobs, whose tasks
see one folder. --cluster has the same done by workers of Dask that are jobs, as dask-jobqueue is configured
(queue, walltime, memory). The table, results.csv in the folder, has the same bytes whoever did which part;
--csv and --json print it. docs/results/leases-sweep.yaml is a file to begin with.

examples:
  outrider sim sweep sweep.yaml -o sweep
  sbatch --array=1-8 --wrap 'outrider sim sweep sweep.yaml -o sweep --part $SLURM_ARRAY_TASK_ID/8 --workers 1'
  outrider sim sweep sweep.yaml -o sweep --cluster slurm --workers 8
  qsub -t 1-8 -b y -V -cwd 'outrider sim sweep sweep.yaml -o sweep --part $SGE_TASK_ID/8 --workers 1'
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "sweep", sweep_file, "run many experiments on leases, resumable", _EPILOG)
    parser.add_argument("file", metavar="FILE", help="what is to be run, as YAML")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="of results; made if needed")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="the K-th of N parts alone")
    parser.add_argument("--workers", type=positive, metavar="N",
                        help="processes (default: one a core); of --cluster jobs (default: 4)")  # fmt: skip
    parser.add_argument("--cluster", choices=("slurm", "gridengine"),
                        help="let jobs of a batch system do it, by dask-jobqueue")  # fmt: skip
    add_form_options(parser, what="the table")


def sweep_file(arguments: argparse.Namespace) -> None:
    from outrider.sim.leases.cluster import NoEngineError
    from outrider.sim.leases.sweep import rows_of, sweep

    if arguments.part != (1, 1) and (arguments.json or arguments.csv):
        raise InputError("--part does runs and makes no table: leave --json and --csv to a call without it")
    if arguments.part != (1, 1) and arguments.cluster:
        raise InputError("--part is for array jobs, --cluster makes jobs itself: use one of them")
    cases, seeds = read_file(arguments.file)
    folder = Path(arguments.output)
    try:
        with progress("runs") as on_progress:
            count = sweep(
                cases, seeds, folder,
                part=arguments.part, workers=arguments.workers, engine=arguments.cluster,
                on_progress=on_progress,
            )  # fmt: skip
    except NoEngineError as error:
        raise MissingPartError(str(error)) from error
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error})") from error
    except ValueError as error:
        raise InputError(str(error)) from error
    say(f"{count} runs done now, results in {folder}")
    if arguments.part != (1, 1):
        return
    try:
        rows = list(rows_of(cases, seeds, folder))
    except ValueError as error:
        raise InputError(str(error)) from error
    import csv

    from outrider.cli.simulate.leases import CSV_HEADER, csv_lines

    if arguments.json:
        print_json({"rows": rows})
    elif arguments.csv:
        print_csv(CSV_HEADER, csv_lines(rows))
    with complete_file(folder / "results.csv") as path, open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_HEADER)
        writer.writerows(csv_lines(rows))


def read_file(name: str) -> tuple[list[LeaseCase], list[int]]:
    """What a sweep's file asks for."""
    try:
        from outrider.metadata.yamlfile import parse_yaml, read_bytes
    except ImportError as error:
        raise MissingPartError("reading YAML needs PyYAML: install outrider[service]") from error
    from outrider.metadata.errors import FaultyFileError
    from outrider.sim.leases.sweep import SweepError, cases_of

    try:
        document = parse_yaml(read_bytes(name), file=name)
        document.raise_problems()
        if not isinstance(document.data, dict):
            raise InputError(f"{name}: not a table of keys; see outrider sim sweep --help")
        return cases_of(document.data, Path(name).parent)
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from error
    except FaultyFileError as error:
        raise InputError(str(error.problems[0])) from error
    except SweepError as error:
        raise InputError(f"{name}: {error}") from error


def part(text: str) -> tuple[int, int]:
    """2/8: the second of eight."""
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part: write one like 2/8")
    return int(number), int(parts)
