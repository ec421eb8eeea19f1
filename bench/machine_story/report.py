"""What was measured beside what was predicted: a table with ratios, and whether all of it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.machine_story.prediction import origin_s, work_s

if TYPE_CHECKING:
    from bench.machine_story.live import Told, ToldJob
    from bench.machine_story.prediction import Prediction

MOST_OFF = 0.15
ACCOUNTED_S = 4
"""A run as the batch system accounts it and as its machine was seen differ by so much at most: the hooks
before and after it, and whole seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoryRow:
    """One event, in seconds since the first machine began, or one span of time."""

    event: str
    node: str
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        return self.measured_s / self.predicted_s if self.predicted_s else 1.0

    @property
    def is_near(self) -> bool:
        return abs(self.ratio - 1) <= MOST_OFF


def rows(told: Told, prediction: Prediction) -> list[StoryRow]:
    """In the order in which the simulator expects them, and then how long each was away."""
    zero_s, asked = origin_s(told), told.reservation
    found = [
        _row("image on all nodes", "", prediction.arrived_s, asked.arrived_s - zero_s),
        _row("reservation starts", "", prediction.start_s, asked.begun_s - zero_s),
    ]
    away = []
    for each in told.jobs:
        said, times = prediction.jobs[each.node], each.times
        found.append(_row("ends", each.node, said.over_s, (times.over_s or 0) - zero_s))
        if said.stopped_s is None or said.continued_s is None:
            continue
        found.append(_row("suspended", each.node, said.stopped_s, (times.saving_s or 0) - zero_s))
        found.append(_row("resumed", each.node, said.continued_s, (times.continued_s or 0) - zero_s))
        away.append(_row("is away", each.node, said.continued_s - said.stopped_s, _away_s(each)))
    return [*sorted(found, key=lambda row: (row.predicted_s, row.event, row.node)), *away]


def far(told: Told, prediction: Prediction) -> list[str]:
    """What happened at another time than predicted."""
    return [
        f"{row.event} {row.node}".rstrip() + f": {row.ratio:.2f} of what was predicted"
        for row in rows(told, prediction)
        if not row.is_near
    ]


def faults(told: Told, prediction: Prediction, came_back: tuple[str, str]) -> list[str]:
    """What must not be, however busy the machine is on which it is told."""
    asked, found = told.reservation, list[str]()
    moved = {node for node, each in prediction.jobs.items() if each.stopped_s is not None}
    really = {each.node for each in told.jobs if each.times.saving_s is not None}
    if really != moved:
        found.append(f"{sorted(really)} made way, and {sorted(moved)} were predicted")
    if not asked.is_met:
        found.append("the receipt does not say that the promise was met")
    if asked.arrived_s > asked.start_s:
        found.append("the image came after the start")
    if late := sorted(node for node in really if asked.free_s.get(node, asked.start_s) >= asked.start_s):
        found.append(f"{late} were not free before the start")
    for each in told.jobs:
        if not each.is_right:
            found.append(f"the machine of {each.node} did not count right")
        found += _accounting(each, came_back)
    if told.left:
        found.append(f"there is left on nodes: {' '.join(told.left)}")
    return found


def table(told: Told, prediction: Prediction) -> str:
    """As it is printed."""
    costs, asked = told.costs, told.reservation
    lines = [
        f"first act, medians (s): boot {costs.boot_s:.2f}, a number {costs.count_s:.2f}, leaving "
        f"{costs.leave_s:.2f}, being told {costs.order_s:.2f}, saving {costs.saving_s:.2f}, resuming "
        f"{costs.resuming_s:.2f}; so a machine alone takes {work_s(costs, told.last)}",
        f"  {'':24} {'':5} {'predicted':>9} {'measured':>9} {'ratio':>6}",
    ]
    lines += [
        f"  {row.event:24} {row.node:5} {row.predicted_s:9.1f} {row.measured_s:9.1f} {row.ratio:6.2f}"
        for row in rows(told, prediction)
    ]
    spare = [asked.start_s - at_s for at_s in asked.free_s.values()]
    if spare:
        lines.append(f"  nodes free {min(spare):.1f} to {max(spare):.1f} s before the start")
    for each in told.jobs:
        saved_s, saving_s = each.times.saved_s, each.times.saving_s
        saving = "" if saved_s is None or saving_s is None else f"saved in {saved_s - saving_s:.2f} s; "
        accounted = ", ".join(f"{run.state} {run.end_s - run.start_s} s" for run in each.runs)
        lines.append(f"  {each.node}: {saving}accounted {accounted}")
    return "\n".join(lines)


def _accounting(each: ToldJob, came_back: tuple[str, str]) -> list[str]:
    """The batch system has a record for each run, and each is as long as its machine ran."""
    times = each.times
    spans = [(times.began_s or 0, times.over_s or 0)]
    states: tuple[str, ...] = came_back[1:]
    if times.saved_s is not None:
        resumed_s = (times.over_s or 0) - (times.continued_s or 0)
        spans, states = [(times.began_s or 0, times.saved_s), (0, resumed_s)], came_back
    if tuple(run.state for run in each.runs) != states:
        return [f"the accounting of {each.node} says {[run.state for run in each.runs]}, not {states}"]
    return [
        f"a run on {each.node} is accounted with {run.end_s - run.start_s} s and took {end_s - begin_s:.1f}"
        for run, (begin_s, end_s) in zip(each.runs, spans, strict=True)
        if abs(run.end_s - run.start_s - (end_s - begin_s)) > ACCOUNTED_S
    ]


def _away_s(each: ToldJob) -> float:
    return (each.times.continued_s or 0) - (each.times.saving_s or 0)


def _row(event: str, node: str, predicted_s: float, measured_s: float) -> StoryRow:
    return StoryRow(event=event, node=node, predicted_s=predicted_s, measured_s=measured_s)
