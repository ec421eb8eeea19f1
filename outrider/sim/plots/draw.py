"""The thesis' Figures 8.2 to 8.7, each from its data."""

from __future__ import annotations

import os
from collections.abc import Callable

from matplotlib import figure as mpl_figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from outrider.sim.experiments.figures import LEAD_AT_S, RATE_EVERY_S, Figure, Series
from outrider.sim.plots.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    grid,
    new_figure,
    save,
    title,
)

_STRATEGY_COLOURS = {"job-style": RED, "just in time": ORANGE, "aggressive": BLUE, "scheduled": GREEN}


def draw(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Draw a figure of the thesis into a file."""
    save(_DRAWERS[figure.number](figure), path)


def _satisfaction(data: Figure) -> mpl_figure.Figure:
    """One row of bars a strategy: who gets how much of their time, in the order of starts."""
    figure = new_figure(9, 8.2)
    all_axes = figure.subplots(len(data.panels), 1, sharex=True)
    lowest = min(share for panel in data.panels for _, share in panel.series[0].points)
    floor = max(0.0, lowest // 10 * 10 - 10)
    for axes, panel in zip(all_axes, data.panels, strict=True):
        colour = _STRATEGY_COLOURS[panel.title]
        places, shares = _columns(panel.series[0])
        # Stems hang from 100 %, so that what is seen is what was lost, wherever the axis begins.
        axes.vlines(places, shares, 100, color=colour, linewidth=4, alpha=0.45, label="lost")
        axes.plot(places, shares, "o", color=colour, markersize=5, label="got")
        mean = data.finding(f"{panel.title}: mean").ours
        worst = data.finding(f"{panel.title}: worst").ours
        fully = data.finding(f"{panel.title}: got all they asked for").ours
        axes.axhline(mean, color=BLACK, linestyle="--", linewidth=1, label="mean")
        axes.set_ylim(floor, 102)
        axes.yaxis.set_major_locator(MultipleLocator(10))
        axes.set_ylabel(panel.y_label)
        axes.set_title(
            f"{panel.title}: mean {mean:.1f} %, worst {worst:.1f} %, {fully:.0f} % of workspaces get all"
        )
        axes.set_xlim(0.3, len(places) + 0.7)
        axes.legend(loc="lower left", bbox_to_anchor=(1.0, 0.3))
        grid(axes)
    all_axes[-1].set_xlabel(data.panels[-1].x_label)
    all_axes[-1].xaxis.set_major_locator(MultipleLocator(5))
    title(figure, data.title, f"Figure {data.number} of the thesis; transfers at the nominal 100 Mbit/s")
    return figure


def _disk(data: Figure) -> mpl_figure.Figure:
    """EDF above EDF/JIT: a step curve a node, with the thesis' peak dashed."""
    figure = new_figure(9, 7.4)
    all_axes = figure.subplots(2, 1, sharex=True)
    for axes, panel in zip(all_axes, data.panels, strict=True):
        for series, colour in zip(panel.series, COLOURS, strict=False):
            axes.step(*_columns(series), where="post", color=colour, linewidth=1, label=series.name)
        shown = data.finding(f"{panel.title}: peak shown")
        mean = data.finding(f"{panel.title}: mean peak").ours
        low = data.finding(f"{panel.title}: lowest peak").ours
        high = data.finding(f"{panel.title}: highest peak").ours
        axes.axhline(
            shown.published, color=BLACK, linestyle="--", linewidth=1.2,
            label=f"thesis' peak, {shown.published} GB",
        )  # fmt: skip
        axes.set_title(
            f"{panel.title}: peak {shown.ours:.1f} GB here, {mean:.1f} GB on average of all draws "
            f"({low:.1f} to {high:.1f})"
        )
        axes.set_ylabel(panel.y_label)
        if shown.ours < 6:
            axes.yaxis.set_major_locator(MultipleLocator(0.6))
        axes.set_ylim(0, 1.15 * max(shown.ours, shown.published or 0))
        axes.set_xlim(0, 1.01 * max(x for series in panel.series for x, _ in series.points))
        grid(axes)
    all_axes[0].legend(ncols=1, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="node")
    all_axes[1].legend(
        handles=all_axes[1].get_legend_handles_labels()[0][-1:], loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )
    all_axes[1].set_xlabel(data.panels[1].x_label)
    all_axes[1].xaxis.set_major_locator(MultipleLocator(1))
    title(figure, data.title, "Figure 8.4 of the thesis; 94 reservations of 1 to 16 instances, 600 MB each")
    return figure


def _submissions(data: Figure) -> mpl_figure.Figure:
    """How many so far, and how many a minute."""
    figure = new_figure(9, 6.6)
    above, below = figure.subplots(2, 1, sharex=True)
    so_far, rate = data.panels
    for series, colour in zip(so_far.series, (BLUE, ORANGE), strict=True):
        axes_points = ((0.0, 0.0), *series.points)
        above.step(*_columns(Series(name=series.name, points=axes_points)), where="post", color=colour,
                   linewidth=1.6, label=f"{series.name} ({series.points[-1][1]:.0f})")  # fmt: skip
    above.set_ylabel(so_far.y_label)
    above.legend(loc="center right")
    begins, counts = _columns(rate.series[0])
    below.bar(begins, counts, width=0.9 * RATE_EVERY_S, align="edge", color=GREEN, label=rate.series[0].name)
    below.set_ylabel(rate.y_label)
    below.yaxis.set_major_locator(MaxNLocator(integer=True))
    flurry = next(finding for finding in data.findings if finding.name.startswith("most within"))
    busiest_s, most = max(rate.series[0].points, key=lambda point: point[1])
    below.annotate(
        f"the flurry: {flurry.ours:.0f} of 62 submissions within 80 s",
        (busiest_s + RATE_EVERY_S, most), (busiest_s + 400, most), va="center",
        arrowprops={"arrowstyle": "-", "color": GREY},
    )  # fmt: skip
    below.legend(loc="center right")
    for axes in (above, below):
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        grid(axes)
    below.set_xlabel(rate.x_label)
    title(figure, data.title, "Figure 8.5 of the thesis; 80 minutes of the DataStar log's express queue")
    return figure


def _deployed(data: Figure) -> mpl_figure.Figure:
    """With and without a pool, and how far one is ahead at the thesis' instant."""
    figure = new_figure(9, 5.4)
    axes = figure.subplots()
    panel = data.panels[0]
    last_s = max(x for series in panel.series for x, _ in series.points)
    for series, colour, style in zip(panel.series, (BLUE, RED), ("-", "--"), strict=True):
        points = (*series.points, (last_s, series.points[-1][1]))
        xs, ys = _columns(Series(name=series.name, points=points))
        axes.step(xs, ys, where="post", color=colour, linestyle=style, linewidth=1.8, label=series.name)
    lead = data.finding(f"lead at {LEAD_AT_S} s")
    ahead, behind = (_value_at(series, LEAD_AT_S) for series in panel.series)
    axes.annotate("", (LEAD_AT_S, ahead), (LEAD_AT_S, behind),
                  arrowprops={"arrowstyle": "<->", "color": BLACK, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
    axes.annotate(
        f"lead at {LEAD_AT_S} s:\n{lead.ours:.1f} GB\n(thesis: {lead.published} GB)",
        (LEAD_AT_S, (ahead + behind) / 2), (LEAD_AT_S + 80, (ahead + behind) / 2 + 8.5), va="center",
    )  # fmt: skip
    plain, cached = data.finding("mean deployment, not cached"), data.finding("mean deployment, cached")
    axes.text(
        0.985, 0.03,
        f"mean deployment of an image: {plain.ours:.0f} s without a pool (thesis: {plain.published:.0f} s),\n"
        f"{cached.ours:.0f} s with one (thesis: {cached.published:.0f} s)",
        transform=axes.transAxes, ha="right", va="bottom", fontsize=9, color=GREY,
    )  # fmt: skip
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    grid(axes)
    title(
        figure, data.title, f"Figure {data.number} of the thesis; 144 images of 600 MB to 8 hosts, 100 Mbit/s"
    )
    return figure


def _columns(series: Series) -> tuple[list[float], list[float]]:
    return [x for x, _ in series.points], [y for _, y in series.points]


def _value_at(series: Series, at: float) -> float:
    """A step curve's value."""
    return max((y for x, y in series.points if x <= at), default=0.0)


_DRAWERS: dict[str, Callable[[Figure], mpl_figure.Figure]] = {
    "8.2": _satisfaction,
    "8.3": _satisfaction,
    "8.4": _disk,
    "8.5": _submissions,
    "8.6": _deployed,
    "8.7": _deployed,
}
