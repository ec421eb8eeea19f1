"""A schedule as the field draws it: who had which processors when, with use and queue above."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from outrider.sim.batch.counted import joined_intervals
from outrider.sim.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    YELLOW,
    grid,
    new_figure,
    save,
    title,
)
from outrider.sim.results.occupancy import Bar, Schedule, queued_over_time, used_over_time

_JOB_COLOURS = (SKY, ORANGE, GREEN, YELLOW, PURPLE, RED, "#8FBCE6", "#B5D99C")
# More labels than this, or on narrower bars, only darken the picture.
_MOST_LABELS = 250
_LABEL_SHARE = 0.018
# From here on a vector file would be larger than its picture is worth.
_MOST_VECTORS = 5_000


def draw_schedule(
    occupancy: Schedule, path: str | os.PathLike[str], *, name: str, has_gantt: bool = True
) -> None:
    """Use and queue as step curves; below them, if wanted, one rectangle for each interval."""
    figure = new_figure(11, 8 if has_gantt else 5)
    if has_gantt:
        use, queue, chart = figure.subplots(3, 1, sharex=True, height_ratios=(1, 1, 3))
    else:
        use, queue = figure.subplots(2, 1, sharex=True)
        chart = None
    used, queued = used_over_time(occupancy.bars), queued_over_time(occupancy.jobs)
    last_s = max((bar.end_s for bar in occupancy.bars), default=1)
    unit_s, unit = (3600, "h") if last_s > 7200 else (1, "s")
    _steps(use, used, last_s, unit_s, BLUE, "processors in use", maximum=occupancy.processors)
    _steps(queue, queued, last_s, unit_s, RED, "jobs waiting")
    if chart is not None:
        _bars(chart, occupancy, unit_s)
        chart.set_xlabel(f"time ({unit})")
    else:
        queue.set_xlabel(f"time ({unit})")
    use.set_xlim(0, last_s / unit_s)
    what = "Schedule" if has_gantt else "Load"
    title(figure, f"{what} of {name}", f"{len(occupancy.jobs):,} jobs on {occupancy.processors:,} processors")
    save(figure, path)


def _steps(
    axes: Axes,
    steps: Sequence[tuple[int, int]],
    last_s: int,
    unit_s: int,
    colour: str,
    label: str,
    maximum: int | None = None,
) -> None:
    """A curve with its mean over time in the legend, and the most there is or was, dashed."""
    times_s = [at_s for at_s, _ in steps] + [max(last_s, steps[-1][0])]
    amounts = [amount for _, amount in steps] + [steps[-1][1]]
    area = sum(amount * (end_s - at_s) for (at_s, amount), end_s in zip(steps, times_s[1:], strict=True))
    mean = area / (times_s[-1] or 1)
    top = maximum if maximum is not None else max(amounts)
    share = f" ({100 * mean / maximum:.1f} %)" if maximum else ""
    hours = [at_s / unit_s for at_s in times_s]
    axes.step(hours, amounts, where="post", color=colour, linewidth=1, label=f"mean {mean:,.1f}{share}")
    axes.fill_between(hours, amounts, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.axhline(top, color=BLACK, linestyle="--", linewidth=1,
                 label=f"{'all' if maximum is not None else 'most'}: {top:,}")  # fmt: skip
    axes.set_ylabel(label.replace(" ", "\n", 1))
    axes.set_ylim(0, max(1, top) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    grid(axes)


def _bars(axes: Axes, occupancy: Schedule, unit_s: int) -> None:
    """Colours repeat by job; a reservation is grey and hatched."""
    for is_reservation in (False, True):
        bars = [bar for bar in _merged(occupancy.bars) if bar.is_reservation is is_reservation]
        boxes = [_box(bar, low, high, unit_s) for bar in bars for low, high in bar.processors]
        colours = [
            "#CCCCCC" if is_reservation else _JOB_COLOURS[bar.job % len(_JOB_COLOURS)]
            for bar in bars
            for _ in bar.processors
        ]
        axes.add_collection(
            PolyCollection(
                boxes, facecolors=colours, edgecolors=GREY if len(boxes) < _MOST_VECTORS else "none",
                linewidths=0.4, hatch="////" if is_reservation else None,
                rasterized=len(boxes) > _MOST_VECTORS,
            )
        )  # fmt: skip
    _label_bars(axes, occupancy, unit_s)
    axes.set_ylim(-0.5, occupancy.processors - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("processor")
    handles = [Patch(facecolor=_JOB_COLOURS[0], edgecolor=GREY, label="job (any colour)")]
    if any(bar.is_reservation for bar in occupancy.bars):
        handles.append(Patch(facecolor="#CCCCCC", edgecolor=GREY, hatch="////", label="reservation"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _merged(bars: Sequence[Bar]) -> list[Bar]:
    """What one job has on neighbouring nodes at the same time is one bar."""
    together: dict[tuple[int, int, int, bool], list[tuple[int, int]]] = {}
    for bar in bars:
        together.setdefault((bar.job, bar.start_s, bar.end_s, bar.is_reservation), []).extend(bar.processors)
    return [
        Bar(
            job=job,
            start_s=start_s,
            end_s=end_s,
            processors=tuple(joined_intervals(parts)),
            is_reservation=is_reservation,
        )
        for (job, start_s, end_s, is_reservation), parts in together.items()
    ]


def _box(bar: Bar, low: int, high: int, unit_s: int) -> list[tuple[float, float]]:
    left, right = bar.start_s / unit_s, bar.end_s / unit_s
    return [(left, low - 0.5), (right, low - 0.5), (right, high + 0.5), (left, high + 0.5)]


def _label_bars(axes: Axes, occupancy: Schedule, unit_s: int) -> None:
    """Names on the bars that are wide and high enough to carry them."""
    last_s = max((bar.end_s for bar in occupancy.bars), default=1)
    boxes = [
        (bar, low, high)
        for bar in _merged(occupancy.bars)
        for low, high in bar.processors
        if (bar.end_s - bar.start_s) > _LABEL_SHARE * last_s and (high - low + 1) > occupancy.processors / 40
    ]
    for bar, low, high in boxes if len(boxes) <= _MOST_LABELS else ():
        label = occupancy.names[bar.job - 1] if occupancy.names else str(bar.job)
        width = (bar.end_s - bar.start_s) / last_s
        if len(label) * 0.0065 > width:
            continue
        axes.text(
            (bar.start_s + bar.end_s) / 2 / unit_s, (low + high) / 2, label,
            ha="center", va="center", fontsize=6, clip_on=True,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5} if bar.is_reservation else None,
        )  # fmt: skip
