"""Figures 11 to 13 of the context switch's paper: when jobs run, what computes, and what switches cost."""

from __future__ import annotations

import os

from matplotlib.axes import Axes

from outrider.sim.plots.style import BLUE, COLOURS, GREY, ORANGE, grid, new_figure, save
from outrider.sim.switch.consolidation import NODES, PROCESSORS, ComparedRuns, ConsolidationRun


def draw_consolidation(runs: ComparedRuns, path: str | os.PathLike[str]) -> None:
    """Both ways above one another, what computes below, and the switches at the side."""
    figure = new_figure(10, 6.5)
    places = figure.subplot_mosaic("AAD;BBD;CCE", height_ratios=(2, 2, 3))
    last_min = max(runs.static.total_s, runs.consolidated.total_s) / 60
    colours = dict(zip((name for name, _, _ in runs.static.spans), COLOURS, strict=True))
    for place, run, what in (("A", runs.static, "in lanes"), ("B", runs.consolidated, "moved together")):
        _draw_jobs(places[place], run, colours)
        places[place].set_title(f"Jobs {what}: {run.total_s / 60:.0f} minutes")
        places[place].set_xlim(0, last_min)
    _draw_load(places["C"], runs)
    places["C"].set_xlim(0, last_min)
    _draw_costs(places["D"], runs.consolidated)
    places["E"].axis("off")
    actions = "\n".join(f"{count} {kind}" for kind, count in runs.consolidated.actions.items() if count)
    words = (
        f"{len(runs.consolidated.switches)} switches:\n{actions}\n{runs.consolidated.local_resumes} resumed"
    )
    places["E"].text(0, 0.95, f"{words} where they slept", va="top", color=GREY)
    save(figure, path)


def _draw_jobs(axes: Axes, run: ConsolidationRun, colours: dict[str, str]) -> None:
    names = list(colours)
    for name, begin_s, end_s in run.spans:
        axes.barh(
            names.index(name), (end_s - begin_s) / 60, left=begin_s / 60, color=colours[name], height=0.8
        )
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()


def _draw_load(axes: Axes, runs: ComparedRuns) -> None:
    for run, what, colour in (
        (runs.static, "in lanes", ORANGE),
        (runs.consolidated, "moved together", BLUE),
    ):
        minutes = [second / 60 for second in range(len(run.computing))]
        axes.step(minutes, run.computing, where="post", color=colour, linewidth=1, label=what)
    axes.axhline(NODES * PROCESSORS, color=GREY, linestyle="--", linewidth=0.8)
    axes.set_title("Processors that compute, and those that there are")
    axes.set_xlabel("minutes")
    axes.set_ylim(0, NODES * PROCESSORS + 5)
    axes.legend(loc="upper right", ncols=2)
    grid(axes)


def _draw_costs(axes: Axes, run: ConsolidationRun) -> None:
    slow = [each for each in run.switches if each.actions["suspend"] or each.actions["resume"]]
    quick = [each for each in run.switches if each not in slow]
    for found, what, colour in (
        (quick, "run, stop, migrate", BLUE),
        (slow, "suspend or resume, too", ORANGE),
    ):
        axes.scatter(
            [each.longest for each in found], [each.took_s for each in found], 18, color=colour, label=what
        )
    axes.set_title("Switches")
    axes.set_xlabel("cost: the longest of each stage (MB)")
    axes.set_ylabel("seconds")
    axes.legend(loc="best")
    grid(axes)
