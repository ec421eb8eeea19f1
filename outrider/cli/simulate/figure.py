"""`outrider sim figure`: a figure of the thesis, drawn from our own runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.output import check_writable, complete_file, print_csv, print_json
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.sim.drawings.values import LaneDrawing
    from outrider.sim.experiments.figures import Figure

DRAWINGS = {
    "3.1": "availability scenarios",
    "5.1": "resource slots and a virtual resource",
    "5.2": "overhead taken from a workspace, and scheduled by itself",
    "6.1": "before a reservation: draining, backfilling, suspending",
    "6.2": "EDF and EDF/JIT file staging",
    "6.3": "avoiding redundant transfers",
    "8.1": "naive file staging",
}
"""Drawings of the algorithm, each from a run of its own example."""
NOT_DRAWN = {
    "2.1": "it shows what a workspace is made of",
    "2.2": "it shows the parts of a service that is not ours",
}
FIGURES = {
    "8.2": "client satisfaction under four ways of staging, trace I",
    "8.3": "the same, trace II",
    "8.4": "disk usage over time, EDF above EDF/JIT",
    "8.5": "submissions of traces III and IV",
    "8.6": "images deployed with and without pools, trace III",
    "8.7": "the same, trace IV",
}
SUFFIXES = (".svg", ".png", ".pdf")
CSV_HEADER = ("figure", "panel", "series", "x", "y")
DRAWING_HEADER = ("figure", "panel", "lane", "kind", "name", "start_s", "end_s", "low", "high")

_ALL = DRAWINGS | FIGURES
_EPILOG = "figures:\n" + "\n".join(f"  {number}  {what}" for number, what in _ALL.items())
_EPILOG += """

examples:
  outrider sim figure 6.1 -o suspended.svg
  outrider sim figure 8.7 -o lead.svg
  outrider sim figure 8.4 --seed 3 -o disk.png
  outrider sim figure 8.3 --csv > satisfaction.csv

3.1 to 6.3 and 8.1 show what the scheduler does with an example that is part of the package.
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "figure", show, "draw a figure of the thesis", _EPILOG)
    parser.add_argument("number", type=_number, metavar="FIGURE", help=", ".join(_ALL))
    parser.add_argument("-o", "--output", metavar="FILE", help=f"the picture: {', '.join(SUFFIXES)}")
    parser.add_argument(
        "--seed", type=positive, metavar="N", help="of figure 8.4: the draw to show (default: 1)"
    )
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help="of figure 8.4: the draws to take peaks of (default: 30)"
    )
    add_form_options(parser, what="the figure's data")


def show(arguments: argparse.Namespace) -> None:
    if arguments.number != "8.4" and (arguments.seed or arguments.seeds):
        raise InputError(f"--seed and --seeds are for figure 8.4; nothing in {arguments.number} is random")
    if not (arguments.output or arguments.json or arguments.csv):
        raise InputError("nothing to do: name a picture with -o, or ask for --json or --csv")
    if arguments.output:
        check_picture(arguments.output)
    if arguments.number in DRAWINGS:
        _show_drawing(arguments)
        return
    from outrider.sim.experiments.figures import figure

    data = figure(arguments.number, seed=arguments.seed or 1, seeds=arguments.seeds or 30)
    if arguments.output:
        from outrider.sim.plots.draw import draw

        with complete_file(arguments.output) as path:
            draw(data, path)
    if arguments.json:
        print_json(data)
    elif arguments.csv:
        print_csv(CSV_HEADER, _rows(data))
    else:
        print(_text(data, arguments.output))


def _number(text: str) -> str:
    """A figure that can be drawn."""
    if text in NOT_DRAWN:
        raise argparse.ArgumentTypeError(
            f"figure {text} is not drawn: {NOT_DRAWN[text]}, not the algorithm at work; "
            f"those that are: {', '.join(_ALL)}"
        )
    if text not in _ALL:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a figure of the thesis; choose from {', '.join(_ALL)}"
        )
    return text


def _show_drawing(arguments: argparse.Namespace) -> None:
    """One that shows the algorithm at work."""
    from outrider.sim.drawings.examples import drawing

    data = drawing(arguments.number)
    if arguments.output:
        from outrider.sim.plots.lanes import draw_lanes

        with complete_file(arguments.output) as path:
            draw_lanes(data, path)
    if arguments.json:
        print_json(data)
    elif arguments.csv:
        print_csv(
            DRAWING_HEADER,
            (
                (data.number, panel.title, box.lane, box.kind.value, box.name, box.start_s, box.end_s,
                 box.low, box.high)
                for panel in data.panels
                for box in panel.boxes
            ),
        )  # fmt: skip
    else:
        print(_drawing_text(data, arguments.output))


def _drawing_text(data: LaneDrawing, path: str) -> str:
    lines = [f"Figure {data.number}: {data.title}"]
    for panel in data.panels:
        lines += [f"  {panel.title}:"] if panel.title else []
        for box in panel.boxes:
            lines.append(
                f"    {box.lane:<16} {box.kind.value:<18} {box.name:<16} "
                f"{box.start_s / data.unit_s:>7g} to {box.end_s / data.unit_s:g}"
            )
    notes = [f"the thesis: {data.says}", *([f"otherwise here: {data.differs}"] if data.differs else [])]
    unit = {1: "seconds", 60: "minutes", 3600: "hours"}[data.unit_s]
    return "\n".join(
        [*lines, *(f"  {note}" for note in (*data.notes, *notes)), f"times in {unit}; drawn: {path}"]
    )


def check_picture(path: str) -> None:
    """Whether a picture of this name can be drawn at all, before anything is run."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a picture's name ends in {', '.join(SUFFIXES)}")
    check_writable(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            "drawing needs matplotlib: in a clone of Outrider, pip install '.[sim]'"
        ) from error


def _rows(data: Figure) -> Iterator[tuple[object, ...]]:
    for panel in data.panels:
        for series in panel.series:
            for x, y in series.points:
                yield data.number, panel.title, series.name, x, y


def _text(data: Figure, path: str) -> str:
    lines = [f"Figure {data.number}: {data.title}"]
    width = max(len(finding.name) for finding in data.findings)
    for finding in data.findings:
        thesis = "" if finding.published is None else f"   (thesis: {finding.published:g})"
        lines.append(f"  {finding.name.ljust(width)}  {finding.ours:8.1f} {finding.unit}{thesis}")
    return "\n".join([*lines, f"drawn: {path}"])
