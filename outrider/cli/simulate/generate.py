"""`outrider sim generate`: a workload drawn from parameters, or one of the thesis' own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import InputError, OutputError
from outrider.cli.output import check_writable, say
from outrider.cli.quantities import not_negative, positive

if TYPE_CHECKING:
    from outrider.sim.workload.trace import Trace

_EPILOG = """examples:
  outrider sim generate mixed --row short,075-100,75-25 -o mixed.jsonl
  outrider sim generate leases --best-effort 1000 --reservations 50 --nodes 16 -o leases.jsonl
  outrider sim generate published --trace III -o III.jsonl
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "generate", _nothing, "draw a workload and write it as .jsonl", _EPILOG)
    kinds = parser.add_subparsers(metavar="KIND", title="kinds", parser_class=Parser)
    mixed = _kind(kinds, "mixed", "best effort and reservations, a row of the thesis' section 8.3")
    mixed.add_argument("--row", required=True, metavar="ROW",
                       help="duration,nodes,share: for instance short,075-100,75-25")  # fmt: skip
    _kind(kinds, "disk", "94 reservations known from the beginning, section 8.1")
    feasible = _kind(kinds, "feasible", "reservations whose images can all come in time, as traces I and II")
    feasible.add_argument("--reservations", type=positive, default=36, metavar="N",
                          help="how many (default: %(default)s)")  # fmt: skip
    feasible.add_argument("--window", type=positive, metavar="SECONDS",
                          help="starts lie within so many of 900 s, as in trace II")  # fmt: skip
    leases = _kind(
        kinds, "leases", "best-effort gangs and reservations over images, as Haizea was measured with"
    )
    how_many = "how many (default: %(default)s)"
    leases.add_argument("--best-effort", type=not_negative, default=1000, metavar="N", help=how_many)
    leases.add_argument("--reservations", type=not_negative, default=50, metavar="N", help=how_many)
    leases.add_argument("--nodes", type=positive, default=8, metavar="N", help=how_many)
    leases.add_argument(
        "--load",
        type=float,
        default=0.9,
        metavar="SHARE",
        help="part of the nodes that is asked for (default: %(default)s)",
    )
    published = _kind(kinds, "published", "one of the thesis' own four traces", is_random=False)
    published.add_argument("--trace", choices=("I", "II", "III", "IV"), required=True, help="which one")


def _kind(kinds: Subparsers, name: str, summary: str, *, is_random: bool = True) -> Parser:
    parser = add_command(kinds, name, generate, summary, "")
    parser.set_defaults(kind=name)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="named .jsonl or .jsonl.gz")
    if is_random:
        parser.add_argument("--seed", type=not_negative, default=1, metavar="N", help="default: %(default)s")
    return parser


def generate(arguments: argparse.Namespace) -> None:
    if not arguments.output.removesuffix(".gz").endswith(".jsonl"):
        raise InputError(f"{arguments.output}: name the workload .jsonl or .jsonl.gz")
    check_writable(arguments.output)
    from outrider.sim.workload.formats.native import write_native
    from outrider.sim.workload.trace import WorkloadError

    try:
        trace = _drawn(arguments)
    except ValueError as error:
        raise InputError(str(error)) from error
    try:
        write_native(arguments.output, trace)
    except WorkloadError as error:
        raise OutputError(str(error)) from error
    say(f"{len(trace.submissions)} submissions written to {arguments.output}")


def _drawn(arguments: argparse.Namespace) -> Trace:
    from outrider.sim.workload import mixed, reservations, synthetic
    from outrider.sim.workload.formats.thesis import published_trace

    if arguments.kind == "published":
        return published_trace(arguments.trace)
    seed = arguments.seed
    if arguments.kind == "mixed":
        return mixed.mixed_trace(mixed.row_parameters(arguments.row, seed), name=arguments.row)
    if arguments.kind == "disk":
        return reservations.disk_usage_trace(reservations.DiskUsageParameters(seed=seed))
    if arguments.kind == "feasible":
        return reservations.feasible_trace(
            reservations.FeasibleParameters(
                seed=seed, reservations=arguments.reservations, window_s=arguments.window
            )
        )
    return synthetic.synthetic_leases(
        arguments.best_effort, arguments.reservations, arguments.nodes, arguments.load, seed
    )


def _nothing(arguments: argparse.Namespace) -> None:
    raise InputError("no kind given; one of mixed, disk, feasible, leases, published (see --help)")
