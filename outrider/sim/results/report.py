"""What a run of a workload was like, as values: waiting, slowdown, utilisation, disks, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.sim.results.measures import amounts_over_time, peak_disk_bytes, processor_resource, utilisation
from outrider.sim.results.metrics import TAIL, Summary, bounded_slowdown
from outrider.sim.results.metrics import utilisation as batch_utilisation
from outrider.sim.workload.trace import TraceSubmission
from outrider.sim.world import SimulationResult

if TYPE_CHECKING:
    from outrider.sim.batch.counted import BatchLog, BatchResult


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedReservation:
    """A reservation that was not promised, and why."""

    workspace: str
    start_s: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Revenue:
    """In thousandths: what was charged, and what was lost in two ways."""

    charged: int
    too_dear: int
    """Offers that their users did not take."""
    lost_to_price: int
    """What these would have paid."""
    lost_to_refusals: int
    """What those would have paid for whom there was no place, or whom another policy refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservations:
    accepted: int
    late: int
    """Accepted ones that began without their image on every node."""
    broken: int
    """Accepted ones that lost a node, with no other to take its place."""
    refused: tuple[RefusedReservation, ...]
    moved: int = 0
    """How often a lease with a deadline was given another place for another one."""
    yielded: int = 0
    """Those that gave up their nodes for others; the rest of their work was best effort."""
    revenue: Revenue | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """What became of one workspace. A serial one begins with its first instance and ends with its last."""

    name: str
    user: str
    is_reservation: bool
    submit_s: int
    start_s: int | None
    end_s: int | None
    state: str
    """done, cancelled, refused, broken (lost its nodes) or waiting (never ran)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    moved_bytes: int
    transfers: int
    peak_disk_bytes: int
    peak_disk_node: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """`jobs` are best-effort runs: each job of a log, each instance of a serial workspace."""

    workload: str
    jobs: int
    waiting_s: Summary | None
    bounded_slowdown: Summary | None
    tail_jobs: int
    makespan_s: int
    utilisation: float
    longest_queue: int
    never_fit: tuple[str, ...] = ()
    reservations: Reservations | None = None
    images: Images | None = None
    leases: tuple[Lease, ...] | None = None
    """By name, in the order in which they were handed in; None of a log, whose jobs have numbers."""


def batch_report(
    workload: str, log: BatchLog, result: BatchResult, *, capacity: int, never_fit: Sequence[str] = ()
) -> RunReport:
    """Of a log without images, run over a counted pool."""
    jobs = list(zip(log.submit_s, result.start_s, result.end_s, log.run_s, strict=True))
    first_s, last_s = min(log.submit_s, default=0), max(result.end_s, default=0)
    return _report(
        workload,
        jobs,
        makespan_s=last_s - first_s,
        utilisation=batch_utilisation(
            result.start_s, result.end_s, log.processors, capacity=capacity, from_s=first_s, until_s=last_s
        ),
        never_fit=never_fit,
    )


def world_report(
    workload: str,
    outcome: SimulationResult,
    submissions: Sequence[TraceSubmission],
    *,
    never_fit: Sequence[str] = (),
) -> RunReport:
    """Of a site with nodes. `submissions` are as handed in; what could never run is named as well."""
    jobs = [
        (done.submit_s, done.start_s, done.end_s, sum(segment.useful_s for segment in done.segments))
        for done in outcome.done
    ]
    begun = {done.workspace for done in outcome.done}
    begun |= {submission.workspace.name for submission in outcome.cancelled}
    impossible = {submission.workspace.name for submission in outcome.impossible}
    known = begun | impossible
    stranded = [
        submission.workspace.name
        for submission in submissions
        if submission.workspace.is_best_effort and submission.workspace.name not in known
    ]
    submissions = [part for submission in submissions for part in submission.parts()]
    first_s = min((submission.at_s for submission in submissions), default=0)
    ends_s = [job[2] for job in jobs] + [reservation.end_s for reservation in outcome.kept]
    return _report(
        workload,
        jobs,
        makespan_s=max(ends_s, default=first_s) - first_s,
        utilisation=utilisation(outcome, processor_resource(outcome.nodes)),
        never_fit=[*never_fit, *sorted(impossible), *stranded],
        reservations=_reservations(outcome),
        images=_images(outcome),
        leases=_leases(outcome, submissions),
    )


def _leases(outcome: SimulationResult, submissions: Sequence[TraceSubmission]) -> tuple[Lease, ...]:
    spans: dict[str, tuple[int, int]] = {}
    for name, start_s, end_s in (
        *((done.workspace, done.start_s, done.end_s) for done in outcome.done),
        *((kept.workspace.name, kept.start_s, kept.end_s) for kept in outcome.kept),
    ):
        first_s, last_s = spans.get(name, (start_s, end_s))
        spans[name] = min(first_s, start_s), max(last_s, end_s)
    states = dict.fromkeys(spans, "done")
    states |= {each.workspace.name: "broken" for each in outcome.broken}
    states |= {each.workspace.name: "refused" for each, _ in outcome.refused}
    states |= {each.workspace.name: "cancelled" for each in outcome.cancelled}
    found: list[Lease] = []
    for submission in submissions:
        name = submission.workspace.name
        span = spans.get(name)
        found.append(
            Lease(
                name=name,
                user=submission.user,
                is_reservation=not submission.workspace.is_best_effort,
                submit_s=submission.at_s,
                start_s=None if span is None else span[0],
                end_s=None if span is None else span[1],
                state=states.get(name, "waiting"),
            )
        )
    return tuple(found)


def in_hours(at_s: int) -> str:
    """An instant of the simulation: h:mm:ss from its beginning."""
    return f"{at_s // 3600}:{at_s // 60 % 60:02}:{at_s % 60:02}"


def _report(
    workload: str,
    jobs: Sequence[tuple[int, int, int, int]],
    *,
    makespan_s: int,
    utilisation: float,
    never_fit: Sequence[str],
    reservations: Reservations | None = None,
    images: Images | None = None,
    leases: tuple[Lease, ...] | None = None,
) -> RunReport:
    """Jobs are (submitted, started, ended, seconds of work). What is not work was waiting."""
    slowdowns = [bounded_slowdown(end_s - submit_s - work_s, work_s) for submit_s, _, end_s, work_s in jobs]
    queued = amounts_over_time(change for job in jobs for change in ((job[0], 1), (job[1], -1)))
    return RunReport(
        workload=workload,
        jobs=len(jobs),
        waiting_s=Summary.of([start_s - submit_s for submit_s, start_s, _, _ in jobs]) if jobs else None,
        bounded_slowdown=Summary.of(slowdowns) if jobs else None,
        tail_jobs=sum(each >= TAIL for each in slowdowns),
        makespan_s=makespan_s,
        utilisation=utilisation,
        longest_queue=max(waiting for _, waiting in queued),
        never_fit=tuple(never_fit),
        reservations=reservations,
        images=images,
        leases=leases,
    )


def _reservations(outcome: SimulationResult) -> Reservations | None:
    if not outcome.kept and not outcome.refused and not outcome.broken:
        return None
    accepted = {each.workspace.name for each in (*outcome.kept, *outcome.broken, *outcome.yielded)}
    return Reservations(
        accepted=len(accepted),
        moved=outcome.moved_leases,
        yielded=len(outcome.yielded),
        revenue=_revenue(outcome),
        late=len(outcome.late),
        broken=len(outcome.broken),
        refused=tuple(
            RefusedReservation(
                workspace=submission.workspace.name,
                start_s=submission.workspace.start_s or 0,
                reason=rejected.refusal.sentence(in_hours),
            )
            for submission, rejected in outcome.refused
        ),
    )


def _revenue(outcome: SimulationResult) -> Revenue | None:
    priced = [(offer, offer.price) for offer in outcome.offers if offer.price is not None]
    if not priced:
        return None
    too_dear = [price for offer, price in priced if offer.is_too_dear]
    return Revenue(
        charged=sum(price for offer, price in priced if offer.is_accepted),
        too_dear=len(too_dear),
        lost_to_price=sum(too_dear),
        lost_to_refusals=sum(
            price for offer, price in priced if not offer.is_accepted and not offer.is_too_dear
        ),
    )


def _images(outcome: SimulationResult) -> Images | None:
    if all(workspace.image is None for workspace in outcome.workspaces.values()):
        return None
    peaks = peak_disk_bytes(outcome.stays)
    fullest = max(peaks, key=lambda node: peaks[node], default=None)
    return Images(
        moved_bytes=outcome.moved_bytes,
        transfers=outcome.transfers,
        peak_disk_bytes=peaks[fullest] if fullest is not None else 0,
        peak_disk_node=outcome.nodes[fullest].name if fullest is not None else "",
    )
