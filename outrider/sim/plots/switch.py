"""Figure 10 of the context switch's paper: how much less a switch costs than First Fit Decreasing's."""

from __future__ import annotations

import os
from collections.abc import Sequence

from outrider.sim.plots.style import COLOURS, GREY, grid, new_figure, save
from outrider.sim.switch.experiment import PAPER_REDUCTION_PERCENT, ReductionRow


def draw_reductions(rows: Sequence[ReductionRow], path: str | os.PathLike[str]) -> None:
    """A curve for each mix, with standard errors, and the paper's mean."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for number, mix in enumerate(dict.fromkeys(row.mix for row in rows)):
        own = [row for row in rows if row.mix == mix]
        axes.errorbar(
            [row.machines for row in own],
            [row.reduction_percent for row in own],
            yerr=[row.reduction_error for row in own],
            label=mix,
            color=COLOURS[number % len(COLOURS)],
            marker="o",
            markersize=3,
            capsize=2,
        )
    axes.axhline(PAPER_REDUCTION_PERCENT, color=GREY, linestyle="--", label="the paper's mean")
    axes.set_xlabel("machines")
    axes.set_ylabel("reduction of the cost (%)")
    axes.legend(loc="lower right")
    grid(axes)
    save(figure, path)
