"""Workloads of section 8.1 of the thesis: advance reservations only.

Two kinds. `disk_usage_trace`: all known from the beginning, to see how much disk staging
takes. `feasible_trace`: submitted over time, filtered by an offline admission so that a
schedule of the transfers exists that delivers every image in time, like traces I and II.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from outrider.core.model import Resources, Workspace
from outrider.sim.workload.images import ImageShares, skewed_images, uniform_images
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError

ONE_CPU = Resources.of(cpus=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskUsageParameters:
    """94 reservations of 1 to 16 nodes over 10 h. The thesis does not say how long they
    last; a mean of 10 minutes gives the disk usage of its figure 8.4.

    Starts are uniform, but leave time for the own transfers of a reservation.
    """

    seed: int | str
    reservations: int = 94
    nodes_low: int = 1
    nodes_high: int = 16
    length_s: int = 36_000
    duration_mean_s: int = 600
    spread: float = 0.5
    transfer_s: int = 50
    granularity_s: int = 60
    nodes: int = 8
    slots_per_node: int = 2
    images: ImageShares = field(default_factory=skewed_images)

    def __post_init__(self) -> None:
        if not 1 <= self.nodes_low <= self.nodes_high <= self.nodes * self.slots_per_node:
            raise ValueError(
                f"reservations of {self.nodes_low} to {self.nodes_high} instances do not "
                f"fit {self.nodes * self.slots_per_node} slots"
            )
        if not 0 <= self.spread <= 1:
            raise ValueError(f"a spread of {self.spread}: from 0 to 1")
        if self.transfer_s * self.nodes_high >= self.length_s:
            raise ValueError(f"{self.length_s} s are too short for the largest reservation")


def disk_usage_trace(parameters: DiskUsageParameters) -> Trace:
    """Reservations that are all submitted at 0, in the order of their starts."""
    random = Random(parameters.seed)
    grain_s = parameters.granularity_s
    drawn = []
    for _ in range(parameters.reservations):
        instances = random.randint(parameters.nodes_low, parameters.nodes_high)
        start_s = random.uniform(instances * parameters.transfer_s, parameters.length_s)
        lasts_s = parameters.duration_mean_s * random.uniform(1 - parameters.spread, 1 + parameters.spread)
        image = parameters.images.draw(random)
        drawn.append((-(-round(start_s) // grain_s) * grain_s, lasts_s, instances, image))
    drawn.sort(key=lambda request: request[0])
    submissions = tuple(
        _submission(0, Workspace(
            name=f"ar{number}",
            instances=instances,
            resources=ONE_CPU,
            duration_s=max(1, round(lasts_s / grain_s)) * grain_s,
            image=image,
            start_s=start_s,
        ))
        for number, (start_s, lasts_s, instances, image) in enumerate(drawn, 1)
    )  # fmt: skip
    return Trace(
        name="disk-usage",
        submissions=submissions,
        nodes=uniform_nodes(parameters.nodes, Resources.of(cpus=parameters.slots_per_node)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FeasibleParameters:
    """Reservations like those of traces I (no window) and II (starts in windows).

    Tightness is the time from submission to start over the own transfer time: 1.4 to 6.2
    in the thesis' two files. Every transfer takes the link for `transfer_s` and costs
    `overhead_s` more. Durations are the 60 s of the files rather than the 1800 s of the
    text, with which 16 slots could not hold the requests.
    """

    seed: int | str
    reservations: int = 36
    nodes_low: int = 2
    nodes_high: int = 4
    length_s: int = 7_200
    duration_s: int = 60
    window_s: int | None = None
    period_s: int = 900
    tightness_low: float = 1.4
    tightness_high: float = 6.2
    transfer_s: int = 48
    overhead_s: int = 10
    slots: int = 16
    attempts: int = 100_000
    images: ImageShares = field(default_factory=lambda: uniform_images(6))

    def __post_init__(self) -> None:
        if not 1 <= self.nodes_low <= self.nodes_high <= self.slots:
            raise ValueError(
                f"reservations of {self.nodes_low} to {self.nodes_high} instances do not "
                f"fit {self.slots} slots"
            )
        if self.window_s is not None and not 0 < self.window_s <= self.period_s:
            raise ValueError(f"a window of {self.window_s} s every {self.period_s} s")


def feasible_trace(parameters: FeasibleParameters) -> Trace:
    """Draw requests one by one and keep those with which all images still come in time."""
    random = Random(parameters.seed)
    admitted: list[TraceSubmission] = []
    for _ in range(parameters.attempts):
        if len(admitted) == parameters.reservations:
            break
        candidate = _candidate(parameters, random, len(admitted) + 1)
        if candidate and _is_feasible([*admitted, candidate], parameters):
            admitted.append(candidate)
    else:
        raise WorkloadError(
            f"only {len(admitted)} of {parameters.reservations} reservations could be "
            f"admitted in {parameters.attempts} draws; ask for fewer or a longer trace"
        )
    admitted.sort(key=lambda submission: submission.at_s)
    kind = "uniform-starts" if parameters.window_s is None else "clustered-starts"
    return Trace(name=kind, submissions=tuple(admitted))


def transfers_meet_deadlines(
    submissions: list[TraceSubmission], transfer_s: int, overhead_s: int = 0
) -> bool:
    """Whether one link, earliest deadline first, brings every image before its start.

    A transfer starts after its submission and is not interrupted. To say yes is a proof,
    because the schedule was made; to say no is not, and costs a request that some cleverer
    order might have served.
    """
    cost_s = transfer_s + overhead_s
    coming = sorted(
        ((one.at_s, one.workspace.start_s or 0, one.workspace.instances) for one in submissions),
        reverse=True,
    )
    waiting: list[tuple[int, int]] = []
    now_s = 0
    while coming or waiting:
        if not waiting:
            now_s = max(now_s, coming[-1][0])
        while coming and coming[-1][0] <= now_s:
            _, deadline_s, instances = coming.pop()
            heappush(waiting, (deadline_s, instances))
        deadline_s, left = heappop(waiting)
        now_s += cost_s
        if now_s > deadline_s:
            return False
        if left > 1:
            heappush(waiting, (deadline_s, left - 1))
    return True


def _candidate(parameters: FeasibleParameters, random: Random, number: int) -> TraceSubmission | None:
    instances = random.randint(parameters.nodes_low, parameters.nodes_high)
    tightness = random.uniform(parameters.tightness_low, parameters.tightness_high)
    if parameters.window_s is None:
        start_s = random.randrange(parameters.length_s)
    else:
        window = random.randrange(1, max(2, parameters.length_s // parameters.period_s))
        start_s = window * parameters.period_s + random.randrange(parameters.window_s)
    image = parameters.images.draw(random)
    at_s = start_s - round(tightness * instances * parameters.transfer_s)
    if at_s < 0:
        return None
    workspace = Workspace(
        name=f"ar{number}",
        instances=instances,
        resources=ONE_CPU,
        duration_s=parameters.duration_s,
        image=image,
        start_s=start_s,
    )
    return _submission(at_s, workspace)


def _is_feasible(submissions: list[TraceSubmission], parameters: FeasibleParameters) -> bool:
    newest = submissions[-1].workspace
    start_s = newest.start_s or 0
    # All last equally long, so a peak that the newest adds to is at one of these starts.
    starts = [one.workspace.start_s or 0 for one in submissions]
    peak = max(
        sum(
            one.workspace.instances
            for one, other_s in zip(submissions, starts, strict=True)
            if other_s <= instant_s < other_s + parameters.duration_s
        )
        for instant_s in starts
        if start_s <= instant_s < start_s + parameters.duration_s
    )
    return peak <= parameters.slots and transfers_meet_deadlines(
        submissions, parameters.transfer_s, parameters.overhead_s
    )


def _submission(at_s: int, workspace: Workspace) -> TraceSubmission:
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=workspace.duration_s)
