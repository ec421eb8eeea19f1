"""Policies and users of an experiment on leases: what best effort lost, and what reservations got."""

from __future__ import annotations

import os
from collections.abc import Sequence

from outrider.sim.leases.experiment import LeaseRow
from outrider.sim.plots.style import COLOURS, grid, new_figure, save

_PANELS = (
    ("slowdown_ratio", "slowdown of best effort,\nover that without reservations"),
    ("acceptance", "reservations accepted (%)"),
    ("served", "served, both kinds (%)"),
)


def draw_leases(rows: Sequence[LeaseRow], path: str | os.PathLike[str]) -> None:
    """A group of bars for each system and policy, a bar for each model of users, with 95 % intervals."""
    groups = list(dict.fromkeys(_group(row) for row in rows))
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    figure = new_figure(max(7.0, 1.6 * len(groups)), 8.5)
    for axes, (metric, label) in zip(figure.subplots(len(_PANELS), 1, sharex=True), _PANELS, strict=True):
        width = 0.8 / len(kinds)
        for number, kind in enumerate(kinds):
            own = {_group(row): row.metrics[metric] for row in rows if _kind(row) == kind}
            places = [place for place, group in enumerate(groups) if group in own]
            found = [own[groups[place]] for place in places]
            axes.bar(
                [place + (number - (len(kinds) - 1) / 2) * width for place in places],
                [each.mean for each in found],
                yerr=[each.half_width for each in found],
                width=width,
                color=COLOURS[number % len(COLOURS)],
                label=kind,
                capsize=2,
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
        axes.set_xticks(range(len(groups)), groups)
        grid(axes)
    # Above the panels, so that it covers no bar.
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    save(figure, path)


def _group(row: LeaseRow) -> str:
    return f"{row.case.system}\n{row.case.policy}"


def _kind(row: LeaseRow) -> str:
    case = row.case
    premium = f" at {case.premium_percent} %" if case.users == "choosing" else ""
    return f"{case.users}{premium}, {case.injection.name}"
