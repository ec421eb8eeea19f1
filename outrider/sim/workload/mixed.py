"""The 36 mixed traces of section 8.3 of the thesis: best effort and reservations.

The traces themselves are lost; their parameters are the thesis', and what its text leaves
open (spreads, lead times, what happens past the end) follows its trace generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from outrider.core.model import Resources, Workspace
from outrider.sim.workload.images import ImageShares, skewed_images
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError

ONE_CPU = Resources.of(cpus=1)

# The thesis says 5, 10 and 15 minutes. With 285 s instead of 300 the short traces have the
# number of VMs from which its tables follow (1,876, not 1,800).
BEST_EFFORT_MEANS_S = {"long": 900, "medium": 600, "short": 285}
AR_NODES = {"000-025": (1, 4), "025-050": (5, 8), "050-075": (9, 12), "075-100": (13, 16)}
SHARES_BEST_EFFORT = {"25-75": 0.25, "50-50": 0.50, "75-25": 0.75}


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedParameters:
    """What one mixed trace is drawn from.

    `share_best_effort` is both the chance that a request is best effort and the share of
    the work that best effort must have in the end, within `share_tolerance`; so requests
    of both kinds have the same mean work. Work is counted in slot-seconds, and all of it
    would keep every slot busy for `work_low_s` to `work_high_s`.

    A spread of 0.5 means uniform from 0.5 to 1.5 times the mean. A reservation starts
    1 + U[lead_low, lead_high] transfer times after its arrival, where its transfer time
    counts one image for each `instances_per_transfer` instances. The thesis' generator,
    which knows nothing of placement, counts one for each instance, and so do we; 2 would
    be what two instances on a node that share a transfer need.
    """

    share_best_effort: float
    best_effort_mean_s: int
    ar_nodes_low: int
    ar_nodes_high: int
    seed: int | str
    requests: int = 95
    length_s: int = 36_000
    work_low_s: int = 36_000
    work_high_s: int = 37_800
    spread: float = 0.5
    best_effort_deviation: float = 0.05
    lead_low: float = 0.1
    lead_high: float = 2.0
    transfer_s: int = 50
    instances_per_transfer: int = 1
    granularity_s: int = 60
    share_tolerance: float = 0.015
    nodes: int = 8
    slots_per_node: int = 2
    attempts: int = 5_000
    images: ImageShares = field(default_factory=skewed_images)
    ar_duration_s: tuple[int, int] | None = None
    """Lengths of reservations are uniform between these; None: as wide as work and share ask for."""
    is_known_early: bool = True
    """Whether every reservation is known from the beginning, or only when its request arrives."""

    def __post_init__(self) -> None:
        if not 0 < self.share_best_effort < 1:
            raise ValueError(f"a share of {self.share_best_effort}: write one between 0 and 1")
        if not 1 <= self.ar_nodes_low <= self.ar_nodes_high <= self.slots:
            raise ValueError(
                f"reservations of {self.ar_nodes_low} to {self.ar_nodes_high} instances "
                f"do not fit {self.slots} slots"
            )
        if min(self.requests, self.best_effort_mean_s, self.instances_per_transfer) < 1:
            raise ValueError("requests, durations and instances per transfer are 1 or more")
        if not 0 < self.work_low_s <= self.work_high_s:
            raise ValueError(f"work of {self.work_low_s} to {self.work_high_s} s is not a range")
        if self.ar_duration_s is not None and not 0 < self.ar_duration_s[0] <= self.ar_duration_s[1]:
            raise ValueError(f"reservations of {self.ar_duration_s} s are not a range")
        if not (0 <= self.lead_low <= self.lead_high and 0 <= self.spread <= 1 and self.granularity_s > 0):
            raise ValueError("leads are a range, a spread is 0 to 1, and times are rounded to 1 s or more")

    @property
    def slots(self) -> int:
        return self.nodes * self.slots_per_node

    @property
    def interval_mean_s(self) -> int:
        return round(self.length_s / self.requests)

    @property
    def work_per_request(self) -> int:
        """Mean slot-seconds of a request of either kind: 6215 with the thesis' values."""
        return round((self.work_low_s + self.work_high_s) / 2 * self.slots / self.requests)

    @property
    def best_effort_instances_mean(self) -> float:
        """About 22, 10 and 7 for short, medium and long requests."""
        return self.work_per_request / self.best_effort_mean_s

    @property
    def ar_mean_s(self) -> int:
        """2486, 956, 592 and 429 s for 1-4, 5-8, 9-12 and 13-16 nodes."""
        return round(2 * self.work_per_request / (self.ar_nodes_low + self.ar_nodes_high))


def mixed_trace(parameters: MixedParameters, *, name: str = "mixed") -> Trace:
    """Draw traces until one has the wanted work and share of it; the seed decides all."""
    random = Random(parameters.seed)
    for _ in range(parameters.attempts):
        submissions = _draw(parameters, random)
        if _is_wanted(submissions, parameters):
            submissions.sort(key=lambda submission: submission.at_s)
            return Trace(
                name=name,
                submissions=tuple(submissions),
                nodes=uniform_nodes(parameters.nodes, Resources.of(cpus=parameters.slots_per_node)),
            )
    raise WorkloadError(
        f"trace {name}: none of {parameters.attempts} draws has the wanted work and share; "
        "widen share_tolerance or the range of work, or allow more attempts"
    )


def row_parameters(label: str, seed: int | str) -> MixedParameters:
    """One row of the thesis' tables, named as there: "short,075-100,75-25".

    The last part is the share of best effort before that of reservations. The row is part
    of the seed, so that rows are independent draws.
    """
    try:
        duration, nodes, share = label.split(",")
        low, high = AR_NODES[nodes]
        return MixedParameters(
            share_best_effort=SHARES_BEST_EFFORT[share],
            best_effort_mean_s=BEST_EFFORT_MEANS_S[duration],
            ar_nodes_low=low,
            ar_nodes_high=high,
            seed=f"{seed}/{label}",
        )
    except (KeyError, ValueError) as error:
        raise ValueError(f"no row {label!r}; rows are like {ROWS[0]!r}") from error


def mixture(parts: Sequence[MixedParameters], *, name: str = "mixture") -> Trace:
    """Several kinds of mixed trace in one: each has its part of the requests and of the work.

    A workspace's name begins with the number of its kind, from 1 on.
    """
    share = len(parts)
    submissions: list[TraceSubmission] = []
    for number, whole in enumerate(parts, 1):
        part = replace(
            whole,
            requests=max(1, whole.requests // share),
            work_low_s=whole.work_low_s // share,
            work_high_s=whole.work_high_s // share,
        )
        submissions += [
            replace(each, workspace=replace(each.workspace, name=f"{number}-{each.workspace.name}"))
            for each in mixed_trace(part, name=f"{name}, part {number}").submissions
        ]
    submissions.sort(key=lambda submission: submission.at_s)
    nodes = max((part.nodes, part.slots_per_node) for part in parts)
    return Trace(
        name=name,
        submissions=tuple(submissions),
        nodes=uniform_nodes(nodes[0], Resources.of(cpus=nodes[1])),
    )


ROWS = tuple(
    f"{duration},{nodes},{share}"
    for duration in BEST_EFFORT_MEANS_S
    for nodes in AR_NODES
    for share in SHARES_BEST_EFFORT
)


def requested_work(submissions: list[TraceSubmission]) -> tuple[int, int]:
    """Slot-seconds that best effort and reservations ask for."""
    best_effort = reserved = 0
    for submission in submissions:
        work = submission.workspace.instances * submission.workspace.duration_s
        if submission.workspace.is_best_effort:
            best_effort += work
        else:
            reserved += work
    return best_effort, reserved


def _is_wanted(submissions: list[TraceSubmission], parameters: MixedParameters) -> bool:
    best_effort, reserved = requested_work(submissions)
    total = best_effort + reserved
    if not parameters.work_low_s <= total / parameters.slots <= parameters.work_high_s:
        return False
    return abs(best_effort / total - parameters.share_best_effort) <= parameters.share_tolerance


def _draw(parameters: MixedParameters, random: Random) -> list[TraceSubmission]:
    """One candidate; a request past the end of the trace is dropped, not moved."""
    arrival_s = 0
    submissions: list[TraceSubmission] = []
    for number in range(1, parameters.requests + 1):
        arrival_s += round(_spread(parameters.interval_mean_s, parameters.spread, random))
        if random.random() < parameters.share_best_effort:
            workspace = _best_effort(parameters, number, random)
            at_s, last_s = arrival_s, arrival_s
        else:
            workspace = _reservation(parameters, number, arrival_s, random)
            # Who is known from the beginning keeps its start.
            at_s, last_s = 0 if parameters.is_known_early else arrival_s, workspace.start_s or 0
        if last_s <= parameters.length_s:
            submissions.append(TraceSubmission(at_s=at_s, workspace=workspace, run_s=workspace.duration_s))
    return submissions


def _best_effort(parameters: MixedParameters, number: int, random: Random) -> Workspace:
    mean_s = parameters.best_effort_mean_s
    instances = _spread(parameters.best_effort_instances_mean, parameters.spread, random)
    duration_s = random.normalvariate(mean_s, parameters.best_effort_deviation * mean_s)
    return Workspace(
        name=f"be{number}",
        instances=max(1, round(instances)),
        resources=ONE_CPU,
        duration_s=max(1, round(duration_s)),
        image=parameters.images.draw(random),
        is_parallel=False,
    )


def _reservation(parameters: MixedParameters, number: int, arrival_s: int, random: Random) -> Workspace:
    grain_s = parameters.granularity_s
    instances = random.randint(parameters.ar_nodes_low, parameters.ar_nodes_high)
    if parameters.ar_duration_s is None:
        lasts_s = _spread(parameters.ar_mean_s, parameters.spread, random)
    else:
        lasts_s = random.uniform(*parameters.ar_duration_s)
    transfers = -(-instances // parameters.instances_per_transfer)
    lead = 1 + random.uniform(parameters.lead_low, parameters.lead_high)
    start_s = arrival_s + round(transfers * parameters.transfer_s * lead)
    return Workspace(
        name=f"ar{number}",
        instances=instances,
        resources=ONE_CPU,
        duration_s=max(1, round(lasts_s / grain_s)) * grain_s,
        image=parameters.images.draw(random),
        start_s=-(-start_s // grain_s) * grain_s,
    )


def _spread(mean: float, spread: float, random: Random) -> float:
    return random.uniform((1 - spread) * mean, (1 + spread) * mean)
