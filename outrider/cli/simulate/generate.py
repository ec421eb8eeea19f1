"""`outrider sim generate`: a workload drawn from parameters, or one of the thesis' own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import InputError, OutputError
from outrider.cli.output import check_writable, say
from outrider.cli.quantities import not_negative, percent, positive, size_bytes

if TYPE_CHECKING:
    from outrider.sim.workload.trace import Trace

_EPILOG = """examples:
  outrider sim generate mixed --row short,075-100,75-25 -o mixed.jsonl
  outrider sim generate mixed --row short,075-100,75-25 --row long,000-025,25-75 --images 6 -o both.jsonl
  outrider sim generate leases --best-effort 1000 --reservations 50 --nodes 16 -o leases.jsonl
  outrider sim generate published --trace III -o III.jsonl
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "generate", _nothing, "draw a workload and write it as .jsonl", _EPILOG)
    kinds = parser.add_subparsers(metavar="KIND", title="kinds", parser_class=Parser)
    mixed = _kind(kinds, "mixed", "best effort and reservations, a row of the thesis' section 8.3")
    _add_mixed(mixed)
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


def _add_mixed(parser: Parser) -> None:
    parser.add_argument("--row", required=True, action="append", metavar="ROW",
                        help="duration,nodes,share: for instance short,075-100,75-25; again for a trace that "
                        "is a mixture of several")  # fmt: skip
    changes = parser.add_argument_group("instead of what the thesis has, for every row")
    for option, kind, metavar, words in (
        ("requests", positive, "N", "how many"),
        ("length", positive, "SECONDS", "within which they arrive and begin"),
        ("nodes", positive, "N", "of the site"),
        ("slots", positive, "N", "instances that a node has room for"),
        ("best-effort-share", percent, "PERCENT", "of requests, and of the work"),
        ("tolerance", not_negative, "PERCENT", "by which the share of the work may be off"),
        ("best-effort-mean", positive, "SECONDS", "for which best effort runs"),
        ("best-effort-deviation", not_negative, "PERCENT", "of that mean"),
        ("spread", not_negative, "PERCENT", "of intervals, instances and lengths, either way of their means"),
        ("work", span, "FROM-TO", "seconds for which all of it keeps every slot busy"),
        ("reservation-nodes", span, "FROM-TO", "instances of a reservation"),
        ("reservation-duration", span, "FROM-TO", "seconds of a reservation"),
        ("lead", span, "FROM-TO", "per cent of its transfers, by which a reservation starts after them"),
        ("transfer", positive, "SECONDS", "for one image"),
        ("instances-per-transfer", positive, "N", "that count as one transfer"),
        ("granularity", positive, "SECONDS", "to which starts and lengths are rounded"),
        ("attempts", positive, "N", "draws until one has the wanted work and share"),
        ("images", positive, "N", "as popular as one another, in place of the 37"),
        ("image-size", size_bytes, "SIZE", "of each image (default: 600MB)"),
    ):  # fmt: skip
        changes.add_argument(f"--{option}", type=kind, metavar=metavar, help=words)
    changes.add_argument("--late", action="store_true",
                         help="reservations are known when they arrive, not from the beginning")  # fmt: skip


def _mixed(arguments: argparse.Namespace) -> Trace:
    """A trace of the rows, with what is given in place of the thesis' values."""
    from dataclasses import replace

    from outrider.sim.workload import mixed
    from outrider.sim.workload.images import THESIS_IMAGE_BYTES, skewed_images, uniform_images

    same = {
        "requests": "requests", "length_s": "length", "nodes": "nodes", "slots_per_node": "slots",
        "best_effort_mean_s": "best_effort_mean", "transfer_s": "transfer", "granularity_s": "granularity",
        "instances_per_transfer": "instances_per_transfer", "attempts": "attempts",
        "ar_duration_s": "reservation_duration",
    }  # fmt: skip
    hundredths = {
        "share_best_effort": "best_effort_share", "share_tolerance": "tolerance", "spread": "spread",
        "best_effort_deviation": "best_effort_deviation",
    }  # fmt: skip
    given = {field: getattr(arguments, name) for field, name in same.items()}
    given |= {
        field: value / 100
        for field, name in hundredths.items()
        if (value := getattr(arguments, name)) is not None
    }
    for fields, ends, unit in (
        (("work_low_s", "work_high_s"), arguments.work, 1),
        (("ar_nodes_low", "ar_nodes_high"), arguments.reservation_nodes, 1),
        (("lead_low", "lead_high"), arguments.lead, 100),
    ):
        if ends is not None:
            given |= {field: end / unit if unit > 1 else end for field, end in zip(fields, ends, strict=True)}
    size = arguments.image_size or THESIS_IMAGE_BYTES
    if arguments.images:
        given["images"] = uniform_images(arguments.images, size_bytes=size)
    elif arguments.image_size:
        shares = skewed_images()
        images = tuple(replace(image, size_bytes=size) for image in shares.images)
        given["images"] = replace(shares, images=images)
    changes = {field: value for field, value in given.items() if value is not None}
    changes["is_known_early"] = not arguments.late
    rows = [replace(mixed.row_parameters(row, arguments.seed), **changes) for row in arguments.row]
    if len(rows) == 1:
        return mixed.mixed_trace(rows[0], name=arguments.row[0])
    return mixed.mixture(rows, name=" + ".join(arguments.row))


def span(text: str) -> tuple[int, int]:
    """Two whole numbers, the smaller one first: 1-4."""
    low, _, high = text.partition("-")
    if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit() and int(low) <= int(high)):
        raise argparse.ArgumentTypeError(f"{text!r} is no range: write one like 1-4")
    return int(low), int(high)


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
    from outrider.sim.workload import reservations, synthetic
    from outrider.sim.workload.formats.thesis import published_trace

    if arguments.kind == "published":
        return published_trace(arguments.trace)
    seed = arguments.seed
    if arguments.kind == "mixed":
        return _mixed(arguments)
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
