"""What is booked beside a request, as the policies count it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from outrider.core.leases.admission import PlannedLease, first_refusal
from outrider.core.reservations.admission import Review
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.decision import BookedUsage
from outrider.metadata.leases import admission_policies
from outrider.metadata.policies import Policies
from outrider.service.desk.state.site import Live, Site


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
        raise NotImplementedError("the batch system's queue is not predicted: the policies are refused")


def review_of(site: Site, policies: Policies, without: str) -> Review:
    """What the site's policies about leases say of a plan."""
    asked = () if policies.leases is None else admission_policies(policies.leases)

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
