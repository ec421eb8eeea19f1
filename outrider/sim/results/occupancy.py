"""Which processors a simulated job had, and when: for pictures and logs, no decision needs it.

The scheduler hands out numbers of instances on nodes. Here every node's processors get
numbers of their own, and each job takes the lowest that are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from outrider.sim.batch.counted import BatchLog, BatchResult, Intervals, assign_processors, joined_intervals
from outrider.sim.results.joblog import JobRow
from outrider.sim.results.measures import amounts_over_time, disks_over_time, processor_resource
from outrider.sim.world import SimulationResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A job had these processors throughout [start_s, end_s)."""

    job: int
    start_s: int
    end_s: int
    processors: Intervals
    is_reservation: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A whole schedule, job by job and bar by bar. What was suspended has several bars."""

    jobs: tuple[JobRow, ...]
    bars: tuple[Bar, ...]
    processors: int
    names: tuple[str, ...] = ()
    """By job number, what each is called; empty where it has no other name."""
    transfers: tuple[tuple[int, int], ...] = ()
    """When each transfer began and was over."""
    disks: tuple[tuple[int, int], ...] = ()
    """An instant, and the bytes of images on all nodes' disks from then on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """So many processors of one node for a time."""

    job: int
    node: int
    width: int
    start_s: int
    end_s: int
    is_reservation: bool


def batch_occupancy(log: BatchLog, result: BatchResult, capacity: int, workload: str) -> Schedule:
    """A log over a counted pool."""
    taken = assign_processors(result.start_s, result.end_s, log.processors)
    jobs, bars = [], []
    for index, processors in enumerate(taken):
        start_s, end_s = result.start_s[index], result.end_s[index]
        jobs.append(
            JobRow(
                number=index + 1, workload=workload, submit_s=log.submit_s[index],
                requested_s=log.requested_s[index], start_s=start_s, end_s=end_s, allocated=processors,
            )
        )  # fmt: skip
        if end_s > start_s:
            bars.append(Bar(job=index + 1, start_s=start_s, end_s=end_s, processors=processors))
    return Schedule(jobs=tuple(jobs), bars=tuple(bars), processors=capacity)


def world_occupancy(outcome: SimulationResult, workload: str) -> Schedule:
    """A site of nodes: reservations first, then best-effort runs, in the order of their starts.

    A job's row spans the time in which it was suspended, and names the processors that it
    had first; its bars are what it really had. A reservation counts as handed in at its
    start, because nobody waits for it.
    """
    processors = processor_resource(outcome.nodes)
    offsets = _offsets(outcome)
    pieces: list[_Piece] = []
    heads: list[tuple[str, int, int, int, int]] = []
    number_of = {node.name: number for number, node in enumerate(outcome.nodes)}
    for reservation in sorted(outcome.kept, key=lambda each: (each.start_s, each.workspace.name)):
        workspace = reservation.workspace
        cpus = workspace.resources[processors]
        heads.append(
            (
                workspace.name,
                reservation.start_s,
                workspace.duration_s,
                reservation.start_s,
                reservation.end_s,
            )
        )
        pieces += [
            _Piece(
                job=len(heads), node=number_of[placement.node], width=placement.instances * cpus,
                start_s=start_s, end_s=end_s, is_reservation=True,
            )
            for start_s, end_s in reservation.spans
            for placement in reservation.placements
        ]  # fmt: skip
    for done in sorted(outcome.done, key=lambda each: (each.start_s, each.workspace, each.index)):
        workspace = outcome.workspaces[done.workspace]
        cpus = workspace.resources[processors]
        name = f"{done.workspace}/{done.index}" if not workspace.is_parallel else done.workspace
        heads.append((name, done.submit_s, workspace.duration_s, done.start_s, done.end_s))
        pieces += [
            _Piece(
                job=len(heads), node=share.node, width=share.instances * cpus,
                start_s=segment.start_s, end_s=segment.end_s, is_reservation=False,
            )
            for segment in done.segments
            for share in segment.shares
        ]  # fmt: skip
    bars = _placed(pieces, offsets)
    first: dict[int, list[Bar]] = {}
    for bar in bars:
        known = first.setdefault(bar.job, [])
        if not known or bar.start_s == known[0].start_s:
            known.append(bar)
    jobs = tuple(
        JobRow(
            number=job, workload=workload, submit_s=submit_s, requested_s=requested_s, start_s=start_s,
            end_s=end_s,
            allocated=tuple(sorted(part for bar in first.get(job, []) for part in bar.processors)),
            name=name,
        )
        for job, (name, submit_s, requested_s, start_s, end_s) in enumerate(heads, 1)
    )  # fmt: skip
    names = tuple(name for name, _, _, _, _ in heads)
    return Schedule(
        jobs=jobs,
        bars=bars,
        processors=offsets[-1],
        names=names,
        transfers=_transfers(outcome),
        disks=tuple(disks_over_time(outcome.stays)),
    )


def _transfers(outcome: SimulationResult) -> tuple[tuple[int, int], ...]:
    """When each began and was over, in the order of their beginnings."""
    arrived_s = outcome.arrived_s
    begun = sorted(outcome.begun_s.items(), key=lambda each: (each[1], each[0]))
    return tuple((begun_s, arrived_s[number]) for number, begun_s in begun if number in arrived_s)


def used_over_time(bars: Sequence[Bar]) -> list[tuple[int, int]]:
    """(instant, processors in use from then on)."""
    widths = [(bar, sum(high - low + 1 for low, high in bar.processors)) for bar in bars]
    return amounts_over_time(
        change for bar, width in widths for change in ((bar.start_s, width), (bar.end_s, -width))
    )


def queued_over_time(jobs: Sequence[JobRow]) -> list[tuple[int, int]]:
    """(instant, jobs that have been handed in and have not begun, from then on)."""
    return amounts_over_time(change for job in jobs for change in ((job.submit_s, 1), (job.start_s, -1)))


def _offsets(outcome: SimulationResult) -> list[int]:
    """The number of each node's first processor, and at the end how many there are."""
    processors = processor_resource(outcome.nodes)
    offsets = [0]
    for node in outcome.nodes:
        offsets.append(offsets[-1] + node.capacity[processors])
    return offsets


def _placed(pieces: Sequence[_Piece], offsets: Sequence[int]) -> tuple[Bar, ...]:
    """The lowest free processors of its node for each piece. Within an instant, ends come first."""
    free = [list(range(low, high)) for low, high in pairwise(offsets)]
    events = []
    for index, piece in enumerate(pieces):
        if piece.end_s > piece.start_s and piece.width:
            events += [(piece.end_s, 0, index), (piece.start_s, 1, index)]
    taken: dict[int, list[int]] = {}
    bars: list[Bar] = []
    for _, kind, index in sorted(events):
        piece = pieces[index]
        processors = free[piece.node]
        if kind == 0:
            processors += taken.pop(index)
            processors.sort()
            continue
        taken[index], processors[:] = processors[: piece.width], processors[piece.width :]
        bars.append(
            Bar(
                job=piece.job, start_s=piece.start_s, end_s=piece.end_s,
                processors=tuple(joined_intervals((each, each) for each in taken[index])),
                is_reservation=piece.is_reservation,
            )
        )  # fmt: skip
    return tuple(bars)
