"""Schemes that choose among options: over loads, discarded requests above and benefit below; the example."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from outrider.core.options.priority import FactorReading
from outrider.core.options.schemes import Scheme, Service
from outrider.sim.plots.style import COLOURS, GREY, PALE, grid, new_figure, save, title
from outrider.sim.workload.options.example import INTERVAL, requests, served
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


def draw_example(reading: FactorReading, path: str | os.PathLike[str]) -> None:
    """Draw Table I's requests on the cores of both nodes over time, a row for each of four schemes."""
    figure = new_figure(9, 10)
    drawn = (Scheme.FIRST, Scheme.LAST, Scheme.ADAPTIVE, Scheme.PLAN_SCALED)
    asked = requests()
    colours = {each.name: COLOURS[number % len(COLOURS)] for number, each in enumerate(asked)}
    for axes, scheme in zip(figure.subplots(len(drawn), 1, sharex=True), drawn, strict=True):
        runs = served(scheme, reading)
        for node, lowest in _CORES.items():
            for first, each in _stacked([run for run in runs if run.places[0][0] == node]):
                cores, start_s = each.option.total("cpus"), each.start_s
                axes.barh(
                    lowest + first, each.end_s - start_s, cores, start_s, align="edge", alpha=0.55,
                    color=colours[each.request.name], edgecolor="white",
                )  # fmt: skip
                words = f"{each.request.name} o{each.index + 1}"
                axes.text(start_s + 0.3, lowest + first + cores / 2, words, va="center", fontsize=7.5)
        lost = ", ".join(each.name for each in asked if each.name not in {run.request.name for run in runs})
        axes.set_title(f"{scheme.value}: {len(runs)} of {len(asked)} served; lost: {lost or 'none'}")
        axes.set_yticks([2, 13], ["N1, 4 cores", "N2, 16 cores"])
        axes.axhline(4.5, color=GREY, linewidth=0.7)
        axes.set_ylim(0, 21)
        for at in range(0, 50, INTERVAL):
            axes.axvline(at, color=PALE, linewidth=0.7, zorder=0)
    axes.set_xlabel("time")
    title(figure, "Table I under four schemes", "o1, o2, …: which option; Figure 1 of the paper")
    save(figure, path)


_CORES = {0: 0, 1: 5}
"""By node, where its cores begin on the axis."""


def _stacked(runs: Sequence[Service]) -> list[tuple[int, Service]]:
    """Each run with the first of its cores, so that none overlap."""
    placed: list[tuple[int, Service]] = []
    for each in sorted(runs, key=lambda run: (run.start_s, -run.option.total("cpus"))):
        beside = sorted(
            (first, first + other.option.total("cpus"))
            for first, other in placed
            if other.start_s < each.end_s and each.start_s < other.end_s
        )
        first = 0
        for low, high in beside:
            if first + each.option.total("cpus") <= low:
                break
            first = max(first, high)
        placed.append((first, each))
    return placed


def _lines(
    axes: Axes, cells: Sequence[OptionsCell], label: str, value: Callable[[OptionsCell], Estimate]
) -> None:
    loads = list(dict.fromkeys(cell.load for cell in cells))
    schemes = list(dict.fromkeys(cell.scheme for cell in cells))
    for number, scheme in enumerate(schemes):
        found = [value(cell) for cell in cells if cell.scheme == scheme]
        # Patterns of other spikes are another line.
        for pattern in dict.fromkeys(load.partition(" of ")[2] for load in loads):
            places = [place for place, load in enumerate(loads) if load.partition(" of ")[2] == pattern]
            axes.errorbar(
                places,
                [found[place].mean for place in places],
                yerr=[found[place].half_width for place in places],
                color=COLOURS[number % len(COLOURS)],
                linestyle="-" if number < len(COLOURS) else "--",
                marker="o",
                markersize=4,
                capsize=3,
                label=scheme if places[0] == 0 else None,
            )
    axes.set_xticks(range(len(loads)), loads, rotation=0 if len(loads) < 6 else 45)
    axes.set_ylabel(label)
    grid(axes)
