"""What a site would have saved, month by month: bytes of the server, and node-hours spent on fetching."""

from __future__ import annotations

import os
from collections.abc import Callable

from matplotlib.axes import Axes

from outrider.sim.plots.style import BLUE, RED, grid, new_figure, save
from outrider.sim.workload.savings.summary import HOUR_S, Period, Savings, Side

GB = 10**9


def draw_savings(savings: Savings, path: str | os.PathLike[str]) -> None:
    """Draw a replay into a file."""
    figure = new_figure(9, 8)
    sent, lost, waits = figure.subplots(3, 1, sharex=True)
    _bars(sent, savings.months, "sent by the server (GB)", lambda side: side.sent_bytes / GB)
    _bars(lost, savings.months, "node-hours spent on fetching", lambda side: side.lost_node_hours)
    _bars(waits, savings.months, "submission to image, mean (h)", lambda side: side.wait_mean_s / HOUR_S)
    sent.legend()
    waits.set_xticks(range(len(savings.months)), [each.name for each in savings.months], rotation=45)
    save(figure, path)


def _bars(axes: Axes, months: tuple[Period, ...], label: str, value: Callable[[Side], float]) -> None:
    places = range(len(months))
    before = [value(each.before) for each in months]
    after = [value(each.after) for each in months]
    axes.bar([place - 0.2 for place in places], before, width=0.4, color=RED, label="jobs fetch their images")
    axes.bar([place + 0.2 for place in places], after, width=0.4, color=BLUE, label="with Outrider")
    axes.set_ylabel(label)
    grid(axes)
