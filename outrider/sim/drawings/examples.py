"""The thesis' drawings 3.1 to 6.3 and 8.1: what each lets the scheduler do, and which of it is shown.

Where its text has numbers (a workspace from 2 to 4 pm with 512 MB, 4 GB of memory on a node, 600 MB of
an image, 5 GB of a large one) the workloads have the same; the rest is chosen so that each case that the text
names occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.sim.drawings.recording import LINK, Played, example, play
from outrider.sim.drawings.values import Box, BoxKind, Lane, LaneDrawing, LanePanel, Mark
from outrider.sim.experiments.satisfaction import NOMINAL_BYTES_PER_S, VirtualReservations, staged
from outrider.sim.experiments.stager import StagedRequest, Strategy
from outrider.sim.workload.trace import TraceSubmission

MINUTE_S, HOUR_S = 60, 3600
MONITOR_MIB = 64
"""What drawing 5.2 takes a monitor of virtual machines to need; the thesis says that it is constant."""


def drawing(number: str) -> LaneDrawing:
    return _DRAWINGS[number]()


def availability() -> LaneDrawing:
    """3.1: how exactly it is known beforehand when nodes are to be there."""
    played = play("3.1")
    given = played.on_nodes()
    panels = []
    for submission in played.trace.submissions:
        name = submission.workspace.name
        lane = Lane(name=name)
        own = [replace(box, lane=name, low=0, high=1) for box in given if box.name == name]
        boxes = list(dict.fromkeys(own))
        agreed = _agreement(submission, boxes)
        panels.append((lane, [*agreed, *boxes], _instants(submission, played)))
    return LaneDrawing(
        number="3.1",
        title="Availability scenarios",
        says=(
            "a closed reservation begins and ends at fixed times, an open one at its event, best effort "
            "when the resource manager can, an immediate one at once or not at all"
        ),
        differs="the node of an open one is its own from the window's beginning on",
        unit_s=HOUR_S,
        panels=(
            LanePanel(
                title="",
                lanes=tuple(lane for lane, _, _ in panels),
                boxes=tuple(box for _, boxes, _ in panels for box in boxes),
                marks=tuple(mark for _, _, marks in panels for mark in marks),
            ),
        ),
        notes=played.refusals(),
    )


def _agreement(submission: TraceSubmission, boxes: list[Box]) -> list[Box]:
    """From when until when the provider is bound: an open one until its event may no longer come."""
    workspace = submission.workspace
    if not boxes:
        return []
    start_s, end_s = boxes[0].start_s, boxes[-1].end_s
    if workspace.is_best_effort:
        start_s = submission.at_s
    if submission.open_until_s is not None:
        start_s, end_s = workspace.start_s or 0, max(end_s, submission.open_until_s)
    box = Box(lane=workspace.name, name="agreement", kind=BoxKind.AGREEMENT, start_s=start_s, end_s=end_s)
    return [box] if (start_s, end_s) != (boxes[0].start_s, boxes[-1].end_s) else []


def _instants(submission: TraceSubmission, played: Played) -> list[Mark]:
    name = submission.workspace.name
    is_refused = any(refused.workspace.name == name for refused, _ in played.outcome.refused)
    marks = [Mark(lane=name, at_s=submission.at_s, words="refused" if is_refused else "agreed")]
    if submission.trigger_s is not None:
        marks.append(Mark(lane=name, at_s=submission.trigger_s, words="event"))
    return marks


def resource_slots() -> LaneDrawing:
    """5.1: a part of two slots, bound to a workspace for a time."""
    played = play("5.1")
    (node,), (kept,) = played.trace.nodes, played.outcome.kept
    lanes, boxes = [], []
    for resource, words, unit in (("memory_mib", "memory", "MB"), ("cpus", "CPUs", "CPUs")):
        lane = f"{words} of {node.name}"
        lanes.append(Lane(name=lane, units=node.capacity[resource], unit=unit))
        boxes.append(
            Box(
                lane=lane, name="virtual resource", kind=BoxKind.RESERVATION, start_s=kept.start_s,
                end_s=kept.end_s, high=kept.workspace.resources[resource],
            )
        )  # fmt: skip
    return LaneDrawing(
        number="5.1",
        title="Resource slots and a virtual resource",
        says="a quantum of a slot is bound to a workspace for a well-defined period of time",
        unit_s=HOUR_S,
        panels=(LanePanel(title="", lanes=tuple(lanes), boxes=tuple(boxes)),),
    )


def overheads() -> LaneDrawing:
    """5.2: what a user gets where overhead is taken from it, and where it is scheduled."""
    played = play("5.2")
    (submission,), (kept,) = played.trace.submissions, played.outcome.kept
    workspace = submission.workspace
    asked_mib = workspace.resources["memory_mib"]
    memory = Lane(name="memory", units=played.trace.nodes[0].capacity["memory_mib"] + MONITOR_MIB, unit="MB")
    as_job = _staged(submission, Strategy.JOB_STYLE)
    wanted = Box(
        lane="memory", name="asked for", kind=BoxKind.ASKED, start_s=workspace.start_s or 0,
        end_s=(workspace.start_s or 0) + workspace.duration_s, high=asked_mib,
    )  # fmt: skip

    def monitor(below_mib: int, start_s: int) -> Box:
        return Box(
            lane="memory", name="monitor", kind=BoxKind.OVERHEAD, start_s=start_s, end_s=wanted.end_s,
            low=below_mib, high=below_mib + MONITOR_MIB,
        )  # fmt: skip

    def workspace_box(start_s: int, end_s: int, mib: int) -> Box:
        return replace(
            wanted, name="workspace", kind=BoxKind.RESERVATION, start_s=start_s, end_s=end_s, high=mib
        )

    (ready_s,) = as_job.ready_s
    got_mib = asked_mib - MONITOR_MIB
    taken = [
        wanted,
        workspace_box(ready_s, wanted.end_s, got_mib),
        monitor(got_mib, wanted.start_s),
        *_on_the_link(as_job),
    ]
    apart = [
        workspace_box(kept.start_s, kept.end_s, asked_mib),
        monitor(asked_mib, kept.start_s),
        *(replace(box, name="image") for box in played.on_the_link()),
    ]
    lanes = (memory, Lane(name=LINK))
    return LaneDrawing(
        number="5.2",
        title="Virtual resources and overhead",
        says=(
            "(a) the transfer delays the start and the monitor takes some of the 512 MB; (b) the image "
            "is there by 2 pm and memory for the monitor is set aside"
        ),
        differs=(
            "(a) is a baseline of section 8.1, not the scheduler; that a monitor takes 64 MB and the image "
            "has 5 GB is assumed"
        ),
        unit_s=HOUR_S,
        panels=(
            LanePanel(title="(a) overhead taken from the workspace", lanes=lanes, boxes=tuple(taken)),
            LanePanel(title="(b) overhead scheduled by itself", lanes=lanes, boxes=tuple(apart)),
        ),
    )


def before_a_reservation() -> LaneDrawing:
    """6.1: nodes drained, backfilled, and used until the last second."""
    never = SuspensionRules(is_allowed=False)
    ways = {
        "draining": play("6.1", backfilling=Backfilling.OFF, suspension=never),
        "backfilling": play("6.1", suspension=never),
        "suspending and resuming": play("6.1"),
    }
    panels = []
    for title, played in ways.items():
        boxes = played.on_nodes()
        end_s = max(box.end_s for box in boxes if box.kind is BoxKind.BEST_EFFORT)
        full = f"{title}: best effort ends after {end_s // MINUTE_S} minutes"
        panels.append(LanePanel(title=full, lanes=tuple(played.nodes()), boxes=tuple(boxes)))
    return LaneDrawing(
        number="6.1",
        title="Best effort before an advance reservation",
        says=(
            "draining leaves nodes unused before a reservation, backfilling fewer of them; what is "
            "suspended uses them, and is resumed as soon as the reservation ends"
        ),
        differs="suspending takes no time, as in its simulator",
        unit_s=MINUTE_S,
        panels=tuple(panels),
    )


def staging() -> LaneDrawing:
    """6.2: transfers in the order of their deadlines, as early and as late as can be."""
    ways = {"EDF": play("6.2", push_back_s=None), "EDF/JIT": play("6.2")}
    panels = tuple(
        LanePanel(
            title=title,
            lanes=(Lane(name=LINK), *played.nodes()[:4]),
            boxes=(*(replace(box, name=box.name[0]) for box in played.on_the_link()), *played.on_nodes()),
            marks=tuple(played.deadlines()),
        )
        for title, played in ways.items()
    )
    return LaneDrawing(
        number="6.2",
        title="EDF and EDF/JIT file staging",
        says=(
            "EDF sends in the order of deadlines as soon as possible, EDF/JIT as close as possible to the "
            "deadlines; what is not feasible is rejected"
        ),
        differs="what is under way is finished first, whatever comes",
        panels=panels,
        notes=ways["EDF/JIT"].refusals(),
    )


def redundant_transfers() -> LaneDrawing:
    """6.3: two that need the same image on the same node."""
    ways = {
        "best effort, a transfer each": play("6.3"),
        "best effort, the second joins the first's transfer": play("6.3", is_reusing=True),
        "reservations, the same (section 6.3.1)": play("6.3-reservations", is_reusing=True),
    }
    panels = []
    for title, played in ways.items():
        disk = _stacked(played.on_disks())
        panels.append(
            LanePanel(
                title=title,
                lanes=(Lane(name=LINK), *played.nodes(), *_lanes_of(disk)),
                boxes=(*played.on_the_link(), *played.on_nodes(), *disk),
                marks=tuple(played.deadlines()),
            )
        )
    return LaneDrawing(
        number="6.3",
        title="Avoiding redundant transfers",
        says=(
            "with a transfer of its own VM2 would start later by what a transfer takes; it joins VM1's. For "
            "reservations the image stays until the last of them ends"
        ),
        panels=tuple(panels),
    )


def naive_staging() -> LaneDrawing:
    """8.1: transfers at fixed instants, whatever else the link carries."""
    (submission,) = example("8.1").submissions
    workspace = submission.workspace
    start_s, end_s = workspace.start_s or 0, (workspace.start_s or 0) + workspace.duration_s
    lanes = (Lane(name=LINK), Lane(name="workspace"))
    asked = Box(lane="workspace", name="asked for", kind=BoxKind.ASKED, start_s=start_s, end_s=end_s)
    panels = []
    for strategy in (Strategy.JOB_STYLE, Strategy.JUST_IN_TIME, Strategy.AGGRESSIVE):
        way = _staged(submission, strategy)
        begun_s = max(start_s, way.ready_s[0])
        got = replace(asked, name="workspace", kind=BoxKind.RESERVATION, start_s=begun_s)
        marks = (Mark(lane="workspace", at_s=submission.at_s, words="submitted"),)
        panels.append(
            LanePanel(title=strategy.value, lanes=lanes, boxes=(asked, *_on_the_link(way), got), marks=marks)
        )
    return LaneDrawing(
        number="8.1",
        title="Naive file staging strategies",
        says=(
            "job-style transfers begin at the start, just in time ones just before it, aggressive ones "
            "once the request is accepted"
        ),
        differs="none of them is the scheduler's: they are the baselines of section 8.1",
        panels=tuple(panels),
    )


def _staged(submission: TraceSubmission, strategy: Strategy) -> VirtualReservations:
    workspace = submission.workspace
    assert workspace.start_s is not None
    assert workspace.image is not None
    request = StagedRequest(
        submit_s=submission.at_s,
        start_s=workspace.start_s,
        nodes=workspace.instances,
        size_bytes=workspace.image.size_bytes,
        duration_s=workspace.duration_s,
    )
    return staged([request], strategy, NOMINAL_BYTES_PER_S)


def _on_the_link(way: VirtualReservations) -> list[Box]:
    return [
        Box(lane=LINK, name="image", kind=BoxKind.TRANSFER, start_s=begun_s or 0, end_s=ready_s)
        for begun_s, ready_s in zip(way.begun_s, way.ready_s, strict=True)
    ]


def _stacked(boxes: Iterable[Box]) -> list[Box]:
    """What is in a lane at the same time, one above the other."""
    placed: list[Box] = []
    for box in sorted(boxes, key=lambda each: (each.lane, each.start_s)):
        beside = [other.low for other in placed if other.lane == box.lane and other.end_s > box.start_s]
        low = next(level for level in range(len(beside) + 1) if level not in beside)
        placed.append(replace(box, low=low, high=low + 1))
    return placed


def _lanes_of(boxes: Iterable[Box]) -> list[Lane]:
    heights: dict[str, int] = {}
    for box in boxes:
        heights[box.lane] = max(heights.get(box.lane, 0), box.high)
    return [Lane(name=name, units=units) for name, units in heights.items()]


_DRAWINGS: dict[str, Callable[[], LaneDrawing]] = {
    "3.1": availability,
    "5.1": resource_slots,
    "5.2": overheads,
    "6.1": before_a_reservation,
    "6.2": staging,
    "6.3": redundant_transfers,
    "8.1": naive_staging,
}
