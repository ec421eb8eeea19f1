"""`outrider sim demo`: the main result on one screen, in a few seconds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.progress import progress
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.sim.experiments.flagship import ComparisonLine, RefusedExample

_SEEDS = 3
_BAR_WIDTH = 16
_WIDTH = 80
_NAMES = {
    "short,075-100,75-25": "Many short jobs beside reservations of most nodes:",
    "long,075-100,75-25": "Few long jobs beside the same reservations:",
}
_WORDS = {
    "no virtualisation": "no virtual machines",
    "predeployed": "every image on every node",
    "no reuse": "images transferred each time",
    "reuse": "transferred, joined, reused",
    "all of these": "with pools, relay, one link",
}


def add(commands: Subparsers) -> None:
    parser = add_command(
        commands, "demo", show, "show the main result in a few seconds", "example:\n  outrider sim demo"
    )
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes (default: one for each core)"
    )


def show(arguments: argparse.Namespace) -> None:
    from outrider.sim.experiments.flagship import flagship, refused_example

    with progress("demo") as on_progress:
        lines = flagship(seeds=_SEEDS, workers=arguments.workers, on_progress=on_progress)
    print("\n".join(_text(lines, refused_example())))


def _text(lines: tuple[ComparisonLine, ...], refused: RefusedExample) -> Iterator[str]:
    longest_s = max(line.finish_s for line in lines)
    yield f"Hours until all best-effort jobs are done; 8 nodes, 100 Mbit/s, mean of {_SEEDS} draws"
    row = ""
    for line in lines:
        if line.row != row:
            row = line.row
            yield ""
            yield f"{_NAMES[row]:<56}  ours thesis    moved"
        bar = "█" * round(_BAR_WIDTH * line.finish_s / longest_s)
        thesis = f"{line.published_s / 3600:6.1f}" if line.published_s else f"{'-':>6}"
        moved = f"{line.moved_gigabytes:6.0f} GB" if line.moved_gigabytes else f"{'-':>6}   "
        yield (
            f"  {_WORDS[line.configuration]:<30} {bar:<{_BAR_WIDTH}}       "
            f"{line.finish_s / 3600:6.1f} {thesis} {moved}"
        ).rstrip()
    request = refused.request
    yield ""
    yield "It is 12:00, and a reservation for 12:12 is in the book. Another is asked for:"
    yield f"  {request.instances} instances of {request.name}.qcow2 from 12:13 on"
    yield from wrap(f"  refused: {refused.reason}", _WIDTH, subsequent_indent="    ")
    earliest_s = refused.earliest_start_s
    yield f"  earliest start: {12 + earliest_s // 3600}:{earliest_s // 60 % 60:02}:{earliest_s % 60:02}"
    yield ""
    yield "next: outrider sim table 8.5 | outrider sim figure 8.7 -o lead.svg | outrider sim --help"
