"""The thesis' drawings of its algorithms: boxes in lanes over time."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from outrider.sim.drawings.values import Box, BoxKind, LaneDrawing, LanePanel, Mark
from outrider.sim.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, SKY, new_figure, save, title

_LOOKS: dict[BoxKind, tuple[str, str | None]] = {
    BoxKind.BEST_EFFORT: (SKY, None),
    BoxKind.RESERVATION: ("#CCCCCC", "////"),
    BoxKind.OVERHEAD: (RED, None),
    BoxKind.TRANSFER: (ORANGE, None),
    BoxKind.IMAGE: (GREEN, None),
    BoxKind.AGREEMENT: ("#EEEEEE", None),
    BoxKind.ASKED: ("none", None),
}
_UNITS = {1: "s", 60: "minutes", 3600: "hour of the day"}
_GAP = 0.35
_LANE_INCHES = 0.42
_MARKED_INCHES = 0.3
_MARKS = 0.8
"""Of a lane's height, for the words of its marks."""
_LETTER = 0.0095
"""Of the axis' width that a letter takes at the size of a label."""


def draw_lanes(drawing: LaneDrawing, path: str | os.PathLike[str]) -> None:
    heights = [_height(panel) for panel in drawing.panels]
    figure = new_figure(9, 1.9 + _LANE_INCHES * sum(heights) + 0.35 * len(heights))
    last_s = max(box.end_s for panel in drawing.panels for box in panel.boxes)
    first_s = min(
        [box.start_s for panel in drawing.panels for box in panel.boxes]
        + [mark.at_s for panel in drawing.panels for mark in panel.marks]
    )
    rows = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    margin_s = (last_s - first_s) / 60
    for axes, panel in zip(rows[:, 0], drawing.panels, strict=True):
        axes.set_xlim((first_s - margin_s) / drawing.unit_s, (last_s + margin_s) / drawing.unit_s)
        _panel(axes, panel, drawing.unit_s)
    rows[-1, 0].set_xlabel(f"time ({_UNITS[drawing.unit_s]})")
    kinds = [
        kind for kind in _LOOKS if any(box.kind is kind for panel in drawing.panels for box in panel.boxes)
    ]
    handles = [_patch(kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    title(figure, drawing.title, f"Figure {drawing.number} of the thesis: a run of an example of it")
    save(figure, path)


def _height(panel: LanePanel) -> float:
    """Of a panel, in lanes."""
    return sum(_lane_height(panel, number) + _GAP for number in range(len(panel.lanes)))


def _lane_height(panel: LanePanel, number: int) -> float:
    lane = panel.lanes[number]
    height = 3.0 if lane.units > 64 else 0.4 + 0.6 * lane.units
    return height + (_MARKS if any(mark.lane == lane.name for mark in panel.marks) else 0.0)


def _panel(axes: Axes, panel: LanePanel, unit_s: int) -> None:
    """Lanes from top to bottom; in each, what is above its boxes is for the words of its marks."""
    top, ticks = 0.0, []
    for number, lane in enumerate(panel.lanes):
        height = _lane_height(panel, number)
        marks = [mark for mark in panel.marks if mark.lane == lane.name]
        room = height - (_MARKS if marks else 0.0)
        bottom = top - height
        for box in panel.boxes:
            if box.lane == lane.name:
                _box(axes, box, bottom, room / lane.units, unit_s)
        if lane.unit and lane.units > 1:
            axes.add_patch(_frame(axes, bottom, room))
        _marks(axes, marks, bottom, bottom + room, unit_s)
        ticks.append((bottom + room / 2, _name(lane.name, lane.units, lane.unit)))
        top = bottom - _GAP
    axes.set_ylim(top + _GAP / 2, 0.1)
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=14))
    if panel.title:
        axes.set_title(panel.title)


def _marks(axes: Axes, marks: Sequence[Mark], bottom: float, above: float, unit_s: int) -> None:
    """Lines at instants; where words would meet, every other one is higher."""
    left, right = axes.get_xlim()
    ends = -1.0
    is_high = False
    for mark in sorted(marks, key=lambda each: each.at_s):
        at = mark.at_s / unit_s
        is_high = at < ends and not is_high
        ends = at + len(mark.words) * _LETTER * (right - left)
        top = above + (0.4 if is_high else 0.1)
        axes.plot([at, at], [bottom, top], color=BLUE, linewidth=1.4, zorder=5)
        axes.text(at, top + 0.04, mark.words, fontsize=7.5, color=BLUE, ha="left", va="bottom")


def _name(name: str, units: int, unit: str) -> str:
    return f"{name}\n({units} {unit})" if unit else name


def _frame(axes: Axes, bottom: float, height: float) -> Rectangle:
    """All there is of what a lane counts."""
    left, right = axes.get_xlim()
    return Rectangle((left, bottom), right - left, height, facecolor="none", edgecolor=GREY, linewidth=0.8)


def _box(axes: Axes, box: Box, bottom: float, unit: float, unit_s: int) -> None:
    colour, hatch = _LOOKS[box.kind]
    left, width = box.start_s / unit_s, (box.end_s - box.start_s) / unit_s
    low, height = bottom + box.low * unit, (box.high - box.low) * unit
    is_asked = box.kind is BoxKind.ASKED
    is_named = box.kind not in (BoxKind.ASKED, BoxKind.AGREEMENT)
    axes.add_patch(
        Rectangle(
            (left, low), width, height, facecolor=colour, hatch=hatch, edgecolor=BLACK if is_asked else GREY,
            linewidth=1.2 if is_asked else 0.6, linestyle="--" if is_asked else "-",
            zorder=3 if is_asked else 2,
        )
    )  # fmt: skip
    span = axes.get_xlim()[1] - axes.get_xlim()[0]
    if is_named and len(box.name) * _LETTER * span < width and height > _MARKED_INCHES:
        axes.text(
            left + width / 2, low + height / 2, box.name, fontsize=7.5, ha="center", va="center", zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8} if hatch else None,
        )  # fmt: skip


def _patch(kind: BoxKind) -> Patch:
    colour, hatch = _LOOKS[kind]
    return Patch(
        facecolor=colour, edgecolor=GREY, hatch=hatch, linestyle="--" if kind is BoxKind.ASKED else "-",
        label=kind.value,
    )  # fmt: skip
