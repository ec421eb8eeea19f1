"""`outrider sim generate`: a workload drawn from parameters, or one of the thesis' own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import InputError, OutputError
from outrider.cli.output import check_writable, say
from outrider.cli.quantities import not_negative, percent, positive, size_bytes

if TYPE_CHECKING:
    from outrider.sim.workload.images import ImageShares
    from outrider.sim.workload.trace import Trace


def span(text: str) -> tuple[int, int]:
    """Two whole numbers, the smaller one first: 1-4."""
    low, _, high = text.partition("-")
    if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit() and int(low) <= int(high)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range: write one like 1-4")
    return int(low), int(high)


@dataclass(frozen=True, slots=True)
class Change:
    """An option of a kind of workload, and the fields of its parameters that it replaces."""

    kind: Callable[[str], object]
    metavar: str
    words: str
    fields: tuple[str, ...]
    unit: int = 1
    """What a whole of the field is in the option's units."""


_EPILOG = """examples:
  outrider sim generate mixed --row short,075-100,75-25 -o mixed.jsonl
  outrider sim generate mixed --row short,075-100,75-25 --row long,000-025,25-75 --images 6 -o both.jsonl
  outrider sim generate feasible --window 100 --image-shares 55,27,6,5,3,3 -o bursts.jsonl
  outrider sim generate leases --best-effort 1000 --reservations 50 --nodes 16 -o leases.jsonl
  outrider sim generate published --trace III -o III.jsonl
"""


_DISK = {
    "reservations": Change(positive, "N", "how many (default: 94)", ("reservations",)),
    "reservation-nodes": Change(
        span, "FROM-TO", "instances of a reservation (default: 1-16)", ("nodes_low", "nodes_high")
    ),
    "length": Change(positive, "SECONDS", "the time in which they start (default: 36000)", ("length_s",)),
    "mean": Change(positive, "SECONDS", "how long they last on average (default: 600)", ("duration_mean_s",)),
    "spread": Change(
        not_negative, "PERCENT", "how far a duration may be from the mean (default: 50)", ("spread",), 100
    ),
    "transfer": Change(positive, "SECONDS", "time to transfer an image (default: 50)", ("transfer_s",)),
    "granularity": Change(
        positive, "SECONDS", "times are multiples of this (default: 60)", ("granularity_s",)
    ),
    "nodes": Change(positive, "N", "nodes of the site (default: 8)", ("nodes",)),
    "slots": Change(positive, "N", "instances that a node has room for (default: 2)", ("slots_per_node",)),
}
_FEASIBLE = {
    "reservations": Change(positive, "N", "how many (default: 36)", ("reservations",)),
    "reservation-nodes": Change(
        span, "FROM-TO", "instances of a reservation (default: 2-4)", ("nodes_low", "nodes_high")
    ),
    "length": Change(positive, "SECONDS", "the time in which they start (default: 7200)", ("length_s",)),
    "duration": Change(positive, "SECONDS", "how long each lasts (default: 60)", ("duration_s",)),
    "window": Change(positive, "SECONDS", "starts are at the beginning of each period", ("window_s",)),
    "period": Change(positive, "SECONDS", "time from one window to the next (default: 900)", ("period_s",)),
    "tightness": Change(
        span, "FROM-TO", "how long before its start one is submitted, in per cent of the time of its "
                         "transfers (default: 140-620)", ("tightness_low", "tightness_high"), 100,
    ),
    "transfer": Change(positive, "SECONDS", "time to transfer an image (default: 48)", ("transfer_s",)),
    "overhead": Change(not_negative, "SECONDS", "added to each transfer (default: 10)", ("overhead_s",)),
    "slots": Change(positive, "N", "slots of the whole site (default: 16)", ("slots",)),
    "attempts": Change(positive, "N", "how many draws are made at most (default: 100000)", ("attempts",)),
}  # fmt: skip


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "generate", _nothing, "draw a workload and write it as .jsonl", _EPILOG)
    kinds = parser.add_subparsers(metavar="KIND", title="kinds", parser_class=Parser)
    mixed = _kind(kinds, "mixed", "best effort and reservations, a row of the thesis' section 8.3")
    _add_mixed(mixed)
    disk = _kind(kinds, "disk", "94 reservations known from the beginning, section 8.1")
    _add_changes(disk, _DISK, skewed=True)
    feasible = _kind(kinds, "feasible", "reservations whose images can all come in time, as traces I and II")
    _add_changes(feasible, _FEASIBLE, skewed=False)
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
        help="the part of the nodes that requests use (default: %(default)s)",
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
        ("length", positive, "SECONDS", "the time in which they arrive and begin"),
        ("nodes", positive, "N", "nodes of the site"),
        ("slots", positive, "N", "instances that a node has room for"),
        ("best-effort-share", percent, "PERCENT", "their share of the requests, and of the work"),
        ("tolerance", not_negative, "PERCENT", "how far the share of the work may be off"),
        ("best-effort-mean", positive, "SECONDS", "how long best effort runs on average"),
        ("best-effort-deviation", not_negative, "PERCENT", "standard deviation, in per cent of that mean"),
        ("spread", not_negative, "PERCENT", "how far intervals, instances and lengths may be from their "
                                            "means"),
        ("work", span, "FROM-TO", "seconds for which all of it keeps every slot busy"),
        ("reservation-nodes", span, "FROM-TO", "instances of a reservation"),
        ("reservation-duration", span, "FROM-TO", "seconds of a reservation"),
        ("lead", span, "FROM-TO", "per cent of its transfers, by which a reservation starts after them"),
        ("transfer", positive, "SECONDS", "for one image"),
        ("instances-per-transfer", positive, "N", "that count as one transfer"),
        ("granularity", positive, "SECONDS", "to which starts and lengths are rounded"),
        ("attempts", positive, "N", "draws until one has the wanted work and share"),
    ):  # fmt: skip
        changes.add_argument(f"--{option}", type=kind, metavar=metavar, help=words)
    _add_images(changes, skewed=True)
    changes.add_argument("--late", action="store_true",
                         help="reservations are known when they arrive, not from the beginning")  # fmt: skip


def _add_changes(parser: Parser, options: Mapping[str, Change], *, skewed: bool) -> None:
    group = parser.add_argument_group("instead of what the thesis has")
    for name, change in options.items():
        group.add_argument(f"--{name}", type=change.kind, metavar=change.metavar, help=change.words)
    _add_images(group, skewed=skewed)


def _add_images(group: argparse._ArgumentGroup, *, skewed: bool) -> None:
    which = "the thesis' 37, of which seven are for 70 %" if skewed else "6"
    popular = group.add_mutually_exclusive_group()
    popular.add_argument("--images", type=positive, metavar="N",
                         help=f"as popular as one another (default: {which})".replace("%", "%%"))  # fmt: skip
    popular.add_argument("--image-shares", type=shares, metavar="N,N,...",
                         help="how popular each image is beside the others: 55,27,6,5,3,3")  # fmt: skip
    group.add_argument("--image-size", type=size_bytes, metavar="SIZE", help="of each image (default: 600MB)")


def _images(arguments: argparse.Namespace, *, skewed: bool) -> ImageShares | None:
    """The images that were asked for; None: those that the thesis has."""
    from outrider.sim.workload import images

    size = arguments.image_size or images.THESIS_IMAGE_BYTES
    if arguments.image_shares:
        return images.shared_images(arguments.image_shares, size_bytes=size)
    if arguments.images:
        return images.uniform_images(arguments.images, size_bytes=size)
    if arguments.image_size:
        return images.skewed_images(size_bytes=size) if skewed else images.uniform_images(6, size_bytes=size)
    return None


def _changes(
    arguments: argparse.Namespace, options: Mapping[str, Change], *, skewed: bool
) -> dict[str, object]:
    """By field, what is given in place of the thesis' values."""
    found: dict[str, object] = {}
    for name, change in options.items():
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None:
            ends = value if len(change.fields) > 1 else (value,)
            found |= {
                field: end if change.unit == 1 else end / change.unit
                for field, end in zip(change.fields, ends, strict=True)
            }
    images = _images(arguments, skewed=skewed)
    return found if images is None else found | {"images": images}


def _mixed(arguments: argparse.Namespace) -> Trace:
    """A trace of the rows, with what is given in place of the thesis' values."""
    from dataclasses import replace

    from outrider.sim.workload import mixed

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
    given["images"] = _images(arguments, skewed=True)
    changes = {field: value for field, value in given.items() if value is not None}
    changes["is_known_early"] = not arguments.late
    rows = [replace(mixed.row_parameters(row, arguments.seed), **changes) for row in arguments.row]
    if len(rows) == 1:
        return mixed.mixed_trace(rows[0], name=arguments.row[0])
    return mixed.mixture(rows, name=" + ".join(arguments.row))


def shares(text: str) -> tuple[int, ...]:
    """How popular each image is beside the others: 55,27,6,5,3,3."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts) or not any(int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are no shares: write whole numbers like 55,27,6,5,3,3")
    return tuple(int(part) for part in parts)


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
        changed = _changes(arguments, _DISK, skewed=True)
        return reservations.disk_usage_trace(reservations.DiskUsageParameters(seed=seed, **changed))  # type: ignore[arg-type]
    if arguments.kind == "feasible":
        changed = _changes(arguments, _FEASIBLE, skewed=False)
        return reservations.feasible_trace(reservations.FeasibleParameters(seed=seed, **changed))  # type: ignore[arg-type]
    return synthetic.synthetic_leases(
        arguments.best_effort, arguments.reservations, arguments.nodes, arguments.load, seed
    )


def _nothing(arguments: argparse.Namespace) -> None:
    raise InputError("no kind given; one of mixed, disk, feasible, leases, published (see --help)")
