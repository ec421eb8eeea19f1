"""The workload of an experiment: a piece of a log as best effort, and reservations put into it.

The reservations are drawn as those with which Haizea was measured (HPDC 2008): 5 to 30 % of what the machine
could do, each of 1 to 4 hours (± 25 %), on few, more or many of its nodes, known 24 hours before. What is
not known of that generator is how starts were spread: here each lies in its own of as many equal stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.workload.formats.swf import SwfLog
from outrider.sim.workload.formats.swf_trace import log_trace
from outrider.sim.workload.images import ImageShares, uniform_images
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError

DAY_S = 86_400
HOUR_S = 3_600
MEMORY_MIB = 1024
INSTANCE = Resources.of(cpus=1, memory_mib=MEMORY_MIB)

SIZES = {"small": (1, 24), "medium": (25, 48), "large": (49, 72)}
"""Nodes of a reservation, on a machine of `SIZED_NODES`."""
SIZED_NODES = 144
WORK_PERCENTS = (5, 10, 15, 20, 25, 30)
HOURS = (1, 2, 3, 4)
DURATION_SPREAD = 0.25
NOTICE_S = DAY_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Injection:
    """Reservations to be put into a log. A no-show never comes; who ends early uses 10 to 90 % of it."""

    work_percent: int = 20
    hours: int = 2
    size: str = "medium"
    notice_s: int = NOTICE_S
    no_show_percent: int = 0
    early_percent: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"reservations of size {self.size!r}: choose from {', '.join(SIZES)}")
        if not 0 <= self.work_percent <= 100:
            raise ValueError(f"reservations for {self.work_percent} % of the machine: use 0 to 100")
        if self.hours < 1 or self.notice_s < 0:
            raise ValueError(f"{self.hours} h, {self.notice_s} s of notice: 1 or more, and 0 or more")
        if (
            min(self.no_show_percent, self.early_percent) < 0
            or self.no_show_percent + self.early_percent > 100
        ):
            raise ValueError("no-shows and early ends are parts of all reservations: 0 to 100 % together")

    @property
    def name(self) -> str:
        return f"{self.work_percent}%x{self.hours}hx{self.size}"


ALL_INJECTIONS = tuple(
    Injection(work_percent=percent, hours=hours, size=size)
    for percent, hours, size in product(WORK_PERCENTS, HOURS, SIZES)
)
"""The 72 of the paper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPiece:
    """Some days of a log on nodes that hold `processors_per_node` of its processors each."""

    log: SwfLog
    name: str
    from_day: int
    days: int
    processors_per_node: int = 1

    @property
    def nodes(self) -> tuple[Node, ...]:
        if self.log.max_processors is None:
            raise WorkloadError(f"{self.name}: its header has no MaxProcs, so nobody knows the nodes")
        return uniform_nodes(self.log.max_processors // self.processors_per_node, INSTANCE)

    @property
    def length_s(self) -> int:
        return self.days * DAY_S


def best_effort(piece: LogPiece, *, images: int = 0, seed: int | str = 1) -> tuple[TraceSubmission, ...]:
    """The jobs that were handed in during the piece, from second 0 on. What needs more nodes than there are
    is left out."""
    log, from_s = piece.log, piece.from_day * DAY_S
    rows = [row for row, at_s in enumerate(log.submit_s) if from_s <= at_s < from_s + piece.length_s]
    if not rows:
        raise WorkloadError(f"{piece.name}: no jobs in {piece.days} days from day {piece.from_day} on")
    chosen = _dealt(uniform_images(images), len(rows), f"{seed}/{piece.name}/images") if images else None
    trace = log_trace(
        log.rows(rows),
        name=piece.name,
        processors_per_instance=piece.processors_per_node,
        resources=INSTANCE,
        images=chosen,
        origin_s=from_s,
    )
    most = len(piece.nodes)
    return tuple(each for each in trace.submissions if each.workspace.instances <= most)


def _dealt(shares: ImageShares, count: int, seed: str) -> list[Image]:
    random = Random(seed)
    return [shares.draw(random) for _ in range(count)]


def injected(
    injection: Injection, *, nodes: int, length_s: int, seed: int | str, images: int = 0
) -> tuple[TraceSubmission, ...]:
    """Reservations until their work is that part of what the nodes could do in that time."""
    random = Random(f"{seed}/{injection.name}")
    shapes = _shapes(injection, nodes, nodes * length_s * injection.work_percent // 100, random)
    share = uniform_images(images) if images else None
    submissions = []
    for number, (instances, duration_s) in enumerate(shapes):
        room_s = max(1, length_s - duration_s)
        start_s = min(room_s - 1, round((number + random.random()) * room_s / len(shapes)))
        workspace = Workspace(
            name=f"lease{number + 1}",
            instances=instances,
            resources=INSTANCE,
            duration_s=duration_s,
            start_s=start_s,
            image=share.draw(random) if share is not None else None,
        )
        run_s = _run_s(injection, duration_s, random)
        at_s = max(0, start_s - injection.notice_s)
        submissions.append(TraceSubmission(at_s=at_s, workspace=workspace, run_s=run_s, user="lessee"))
    submissions.sort(key=lambda each: each.at_s)
    return tuple(submissions)


def _shapes(injection: Injection, nodes: int, work: int, random: Random) -> list[tuple[int, int]]:
    """Instances and seconds, as many as leave the least of the work over."""
    low, high = SIZES[injection.size]
    low, high = max(1, -(-nodes * low // SIZED_NODES)), max(1, nodes * high // SIZED_NODES)
    shapes: list[tuple[int, int]] = []
    while work > 0:
        instances = random.randint(min(low, high), high)
        mean_s = injection.hours * HOUR_S
        duration_s = round(random.uniform(1 - DURATION_SPREAD, 1 + DURATION_SPREAD) * mean_s)
        if instances * duration_s > 2 * work:
            break
        shapes.append((instances, duration_s))
        work -= instances * duration_s
    return shapes


def _run_s(injection: Injection, duration_s: int, random: Random) -> int:
    """How long it is really used. Two draws each, so that shares do not change what is drawn after them."""
    lot, part = 100 * random.random(), random.uniform(0.1, 0.9)
    if lot < injection.no_show_percent:
        return 0
    return (
        round(part * duration_s) if lot < injection.no_show_percent + injection.early_percent else duration_s
    )


def mixed_with(
    name: str, jobs: Sequence[TraceSubmission], leases: Sequence[TraceSubmission], nodes: tuple[Node, ...]
) -> Trace:
    """Both in the order of their arrival."""
    together = sorted((*jobs, *leases), key=lambda each: each.at_s)
    return Trace(name=name, submissions=tuple(together), nodes=nodes)
