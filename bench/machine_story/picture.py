"""The story as a picture: for each node a bar as predicted, and below it one as measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.patches import Patch

from bench.machine_story.prediction import origin_s
from outrider.sim.plots.style import BLUE, GREY, ORANGE, PALE, SKY, new_figure, save, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.machine_story.live import Told
    from bench.machine_story.prediction import Prediction

HEIGHT = 0.34
RUNS, ASIDE, RESERVED, RESUMES = "the machine runs", "saved, on disk", "the reservation", "is resumed"
FACES = {RUNS: BLUE, ASIDE: PALE, RESERVED: ORANGE, RESUMES: SKY}
Span = tuple[str, float, float]


def drawn(told: Told, prediction: Prediction, path: Path, origin: str) -> None:
    figure = new_figure(8, 4.2)
    axes = figure.subplots()
    zero_s, asked = origin_s(told), told.reservation
    for place, each in enumerate(told.jobs):
        said, times = prediction.jobs[each.node], each.times
        began_s = (times.began_s or 0) - zero_s
        above = _spans(
            (round(began_s), said.stopped_s, said.stopped_s, said.continued_s, said.over_s),
            (prediction.start_s, prediction.end_s),
        )
        below = _spans(
            (began_s, _since(times.saving_s, zero_s), _since(times.saved_s, zero_s),
             _since(times.continued_s, zero_s), _since(times.over_s, zero_s)),
            (asked.start_s - zero_s, asked.end_s - zero_s),
        )  # fmt: skip
        _bars(axes, place - HEIGHT / 2, above, alpha=0.55)
        _bars(axes, place + HEIGHT / 2, below, alpha=1)
    for at_s, words in ((asked.asked_s - zero_s, "asked for"), (asked.start_s - zero_s, "starts")):
        axes.axvline(at_s, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(words, (at_s, -0.6), ha="center", fontsize=8.5, color=GREY, backgroundcolor="white")
    axes.set_yticks(range(len(told.jobs)), [each.node for each in told.jobs])
    axes.set_ylim(len(told.jobs) - 0.4, -0.75)
    axes.set_xlim(0, None)
    axes.set_xlabel("seconds since the first machine began")
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=face, label=kind) for kind, face in FACES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(FACES))
    title(
        figure,
        "Machines make way for a reservation of three nodes, and come back",
        f"{origin}. Pale: the simulator's prediction of the same trace; full: as measured",
    )
    save(figure, path)


def _since(at_s: float | None, zero_s: float) -> float | None:
    return None if at_s is None else at_s - zero_s


def _spans(
    times: tuple[float, float | None, float | None, float | None, float | None],
    reserved: tuple[float, float],
) -> list[Span]:
    began_s, told_s, _, continued_s, over_s = times
    end_s = over_s or 0.0
    if told_s is None or continued_s is None:
        return [(RUNS, began_s, end_s)]
    return [
        (RUNS, began_s, told_s),
        (ASIDE, told_s, reserved[0]),
        (RESERVED, *reserved),
        (RESUMES, reserved[1], continued_s),
        (RUNS, continued_s, end_s),
    ]


def _bars(axes: Axes, at: float, spans: list[Span], *, alpha: float) -> None:
    for kind, begin_s, end_s in spans:
        axes.barh(
            at, end_s - begin_s, HEIGHT * 0.92, left=begin_s, color=FACES[kind], alpha=alpha, linewidth=0
        )  # fmt: skip
