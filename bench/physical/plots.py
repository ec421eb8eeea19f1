"""The thesis' Figures 8.2, 8.3, 8.6 and 8.7 from real hosts, over the simulator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.physical import report
from outrider.sim.experiments.figures import LEAD_AT_S
from outrider.sim.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, grid, new_figure, save, title

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLOURS = {"job-style": RED, "just in time": ORANGE, "aggressive": BLUE, "scheduled": GREEN}
ORIGIN = "hosts: Grid Engine, 8 hosts, 100 Mbit/s, time and sizes by {}; simulator: the thesis' parameters"


def draw_all(found: Sequence[report.Found], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in sorted({each["figure"] for each in found if each["figure"]}):
        some = [each for each in found if each["figure"] == number]
        path = folder / f"physical-{number}.svg"
        (_deployments if "simulated_rows" in some[0] else _satisfaction)(number, some, path)


def _satisfaction(number: str, found: Sequence[report.Found], path: Path) -> None:
    figure = new_figure(9, 1.6 + 1.65 * len(found))
    all_axes = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    shares = {each["name"]: _shares(each) for each in found}
    floor = min(min(real + simulated) for _, real, simulated in shares.values()) // 10 * 10 - 5
    for axes, each in zip(all_axes, found, strict=True):
        places, real, simulated = shares[each["name"]]
        colour = COLOURS[each["way"]]
        axes.vlines(places, real, 100, color=colour, linewidth=4, alpha=0.45, label="lost")
        axes.plot(places, real, "o", color=colour, markersize=5, label="hosts")
        axes.plot(places, simulated, "_", color=BLACK, markersize=9, label="simulator")
        axes.set_ylim(max(0, floor), 102)
        axes.set_ylabel("time got (%)")
        axes.set_title(
            f"{each['way']}: mean {sum(real) / len(real):.1f} % on hosts, "
            f"{sum(simulated) / len(simulated):.1f} % simulated"
        )
        axes.legend(loc="lower left", bbox_to_anchor=(1.0, 0.2))
        grid(axes)
    all_axes[-1].set_xlabel("workspace, in order of its start")
    what = f"Client satisfaction on real hosts, trace {found[0]['trace']} (Figure {number} of the thesis)"
    title(figure, what, ORIGIN.format(found[0]["factor"]))
    save(figure, path)


def _shares(found: report.Found) -> tuple[list[int], list[float], list[float]]:
    rows = found["rows"]
    return (
        [row["workspace"] for row in rows],
        [100 * row["got_s"] / row["asked_s"] for row in rows],
        [100 * row["simulated_got_s"] / row["asked_s"] for row in rows],
    )


def _deployments(number: str, found: Sequence[report.Found], path: Path) -> None:
    figure = new_figure(9, 5.4)
    axes = figure.subplots()
    for each in found:
        colour = RED if each["name"].endswith("no-pool") else BLUE
        for rows, style, width, body in (
            (each["rows"], "-", 1.8, "hosts"),
            (each["simulated_rows"], ":", 1.6, "simulator"),
        ):
            xs, ys = zip(*report.series(rows), strict=True)
            label = f"{each['way']}, {body}"
            axes.step(xs, ys, where="post", color=colour, linestyle=style, linewidth=width, label=label)
    axes.axvline(LEAD_AT_S, color=GREY, linewidth=0.8)
    axes.set_xlabel("time of the trace (s)")
    axes.set_ylabel("deployed so far (GB)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    grid(axes)
    what = f"Images deployed so far on real hosts, trace {found[0]['trace']} (Figure {number} of the thesis)"
    title(figure, what, ORIGIN.format(found[0]["factor"]))
    save(figure, path)
