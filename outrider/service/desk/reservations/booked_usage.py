"""What is booked beside a request, as the policies count it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from outrider.core.besteffort.protection.prediction import QueuedJob, pool_slowdown_percent
from outrider.core.leases.adaptive import AdaptiveShare
from outrider.core.leases.admission import AdmissionPolicy, PlannedLease, first_refusal
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.reservations.admission import Review
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.decision import BookedUsage
from outrider.metadata.leases import admission_policies, steering_rules
from outrider.metadata.policies import Policies
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.state.site import Live, Site

DAY_S = 86_400


def standing_of(
    site: Site,
    policies: Policies,
    uid: int,
    account: str,
    from_s: int,
    until_s: int,
    *,
    without: Live | None,
    beside: Sequence[ReservationPlan] = (),
) -> BookedUsage:
    """What a user has, and what is booked between two instants; `without` a reservation to be replaced.

    `beside` is accepted with it, for the same user and account.

    What no rule asks about is not counted, since that takes as long as there are reservations.
    """
    own = [live for live in site.owned(uid) if live is not without] if _is_personal(policies) else []
    peak_nodes = peak_nodes_of_account = 0
    if _is_shared(policies):
        overlapping = [
            live
            for live in site.live.values()
            if live is not without and live.reservation.start_s < until_s and from_s < live.reservation.end_s
        ]
        more = [
            (plan.start_s, plan.end_s, len(plan.fits))
            for plan in beside
            if plan.start_s < until_s and from_s < plan.end_s
        ]
        peak_nodes = _peak([*map(_stretch, overlapping), *more], from_s)
        of_account = [live for live in overlapping if live.record.owner.account == account]
        peak_nodes_of_account = _peak([*map(_stretch, of_account), *more], from_s)
    return BookedUsage(
        machine_nodes=len(site.book.timeline.nodes),
        peak_nodes=peak_nodes,
        peak_nodes_of_account=peak_nodes_of_account,
        reservations=len(own) + len(beside),
        node_seconds=sum(_node_seconds(live, site.now_s) for live in own)
        + sum(len(plan.fits) * (plan.end_s - plan.start_s) for plan in beside),
    )


class NodesView:
    """What policies of admission may know of the site. Units are nodes: reservations take whole ones."""

    def __init__(self, site: Site, without: str) -> None:
        self._book = site.book
        self._without = without
        self._jobs = site.seen_jobs
        self.units = len(site.book.timeline.nodes)

    def lease(self, plan: ReservationPlan) -> PlannedLease:
        return PlannedLease(workspace=plan.workspace, units=len(plan.fits), spans=plan.spans)

    def leases(self, start_s: int, end_s: int) -> Iterator[PlannedLease]:
        for name, entry in self._book.entries.items():
            is_within = entry.reservation.start_s < end_s and start_s < entry.end_s
            if is_within and name != self._without:
                workspace = entry.reservation.workspace
                yield PlannedLease(workspace=workspace, units=len(entry.fits), spans=entry.spans())

    def queue_slowdown_percent(self, extra: PlannedLease, now_s: int) -> int:
        """As is predicted for the batch system's queue as it was seen last, in the order of submission.

        The machine is taken for as many processors, of which a node has its mean share.
        """
        processors = self._processors
        leases = [
            (lease.units * processors // self.units, span)
            for lease in (*self.leases(now_s, FOREVER), extra)
            for span in lease.spans
        ]
        runs, waiting = self._queue(now_s)
        return pool_slowdown_percent(processors, leases, runs, waiting, now_s)

    def best_effort_units(self, now_s: int) -> int:
        """Of the batch system's queue as it was seen last, in nodes of the mean share of processors."""
        runs, waiting = self._queue(now_s)
        wanted = sum(job.units * job.times for job in (*runs, *waiting))
        return -(-wanted * self.units // self._processors)

    @property
    def _processors(self) -> int:
        return sum(node.capacity["cpus"] for node in self._book.timeline.nodes)

    def _queue(self, now_s: int) -> tuple[list[QueuedJob], list[QueuedJob]]:
        """Who runs, and who waits in the order of submission."""
        jobs = [job for job in self._jobs if job.reservation is None]
        runs = [_queued(job, now_s) for job in jobs if job.state in (JobState.STARTING, JobState.RUNNING)]
        waiting = [
            _queued(job, now_s)
            for job in sorted(jobs, key=lambda job: (job.submitted_s, job.key))
            if job.state is JobState.PENDING or (job.state is JobState.HELD and job.is_held_by_us)
        ]
        return runs, waiting


def _queued(job: RmsJob, now_s: int) -> QueuedJob:
    """A job as the prediction has it; one without a limit takes a day."""
    duration_s = job.limit_s or DAY_S
    gone_s = max(0, now_s - job.start_s) if job.state is JobState.RUNNING and job.start_s is not None else 0
    return QueuedJob(
        submitted_s=min(job.submitted_s, now_s),
        duration_s=duration_s,
        left_s=max(1, duration_s - gone_s),
        units=max(1, job.nodes_wanted * job.resources["cpus"]),
        times=max(1, job.tasks),
    )


def share_of(site: Site, policies: Policies) -> AdaptiveShare | None:
    """The one that is in force; a new one if the file names other rules than before."""
    section = None if policies.leases is None else policies.leases.adaptive
    if section is None:
        site.share = None
    elif site.share is None or site.share.rules != steering_rules(section):
        site.share = AdaptiveShare(steering_rules(section))
    return site.share


def review_of(site: Site, policies: Policies, without: str) -> Review:
    """What the site's policies about leases say of a plan."""
    share = share_of(site, policies)
    asked: tuple[AdmissionPolicy, ...] = () if share is None else (share,)
    if policies.leases is not None:
        asked = (*admission_policies(policies.leases), *asked)

    def review(plan: ReservationPlan) -> str:
        view = NodesView(site, without)
        return first_refusal(asked, view.lease(plan), view, site.now_s) if asked else ""

    return review


def _is_personal(policies: Policies) -> bool:
    return any(rule.reservations is not None or rule.node_hours is not None for rule in policies.rules)


def _is_shared(policies: Policies) -> bool:
    return policies.machine_share_percent is not None or any(
        rule.machine_share_percent is not None or rule.account_share_percent is not None
        for rule in policies.rules
    )


def _stretch(live: Live) -> tuple[int, int, int]:
    """From when until when a reservation has how many nodes."""
    return live.reservation.start_s, live.reservation.end_s, len(live.nodes)


def _peak(overlapping: Iterable[tuple[int, int, int]], from_s: int) -> int:
    """The most nodes that are reserved at any instant from `from_s` on."""
    changes: list[tuple[int, int]] = []
    for start_s, end_s, nodes in overlapping:
        changes.append((max(start_s, from_s), nodes))
        changes.append((end_s, -nodes))
    changes.sort()
    peak = held = 0
    for _, nodes in changes:
        held += nodes
        peak = max(peak, held)
    return peak


def _node_seconds(live: Live, now_s: int) -> int:
    """What is left of a reservation, as nodes times seconds."""
    reservation = live.reservation
    return len(live.nodes) * max(0, reservation.end_s - max(reservation.start_s, now_s))
