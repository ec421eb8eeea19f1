"""Schemes that choose among options, over loads: discarded requests above, benefit below."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from outrider.sim.plots.style import COLOURS, grid, new_figure, save, title
from outrider.sim.workload.options.experiment import Estimate, OptionsCell


def draw_options(cells: Sequence[OptionsCell], path: str | os.PathLike[str]) -> None:
    """Draw an experiment into a file; bars are 95 % confidence intervals."""
    figure = new_figure(9, 7.4)
    above, below = figure.subplots(2, 1, sharex=True)
    _lines(above, cells, "discarded (%)", lambda cell: cell.discarded)
    _lines(below, cells, "benefit (%)", lambda cell: cell.benefit)
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    below.set_xlabel("load")
    trials = cells[0].trials
    title(figure, f"Requests with several options, {cells[0].workload}", f"means of {trials} draws")
    save(figure, path)


def _lines(
    axes: Axes, cells: Sequence[OptionsCell], label: str, value: Callable[[OptionsCell], Estimate]
) -> None:
    loads = list(dict.fromkeys(cell.load for cell in cells))
    schemes = list(dict.fromkeys(cell.scheme for cell in cells))
    for number, scheme in enumerate(schemes):
        found = [value(cell) for cell in cells if cell.scheme == scheme]
        axes.errorbar(
            range(len(loads)),
            [each.mean for each in found],
            yerr=[each.half_width for each in found],
            color=COLOURS[number % len(COLOURS)],
            linestyle="-" if number < len(COLOURS) else "--",
            marker="o",
            markersize=4,
            capsize=3,
            label=scheme,
        )
    axes.set_xticks(range(len(loads)), loads, rotation=0 if len(loads) < 6 else 45)
    axes.set_ylabel(label)
    grid(axes)
