"""What is booked beside a request, as the policies count it."""

from __future__ import annotations

from outrider.metadata.decision import BookedUsage
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
) -> BookedUsage:
    """What a user has, and what is booked between two instants; `without` a reservation to be replaced.

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
        peak_nodes = _peak(overlapping, from_s)
        of_account = [live for live in overlapping if live.record.owner.account == account]
        peak_nodes_of_account = _peak(of_account, from_s)
    return BookedUsage(
        machine_nodes=len(site.book.timeline.nodes),
        peak_nodes=peak_nodes,
        peak_nodes_of_account=peak_nodes_of_account,
        reservations=len(own),
        node_seconds=sum(_node_seconds(live, site.now_s) for live in own),
    )


def _is_personal(policies: Policies) -> bool:
    return any(rule.reservations is not None or rule.node_hours is not None for rule in policies.rules)


def _is_shared(policies: Policies) -> bool:
    return policies.machine_share_percent is not None or any(
        rule.machine_share_percent is not None or rule.account_share_percent is not None
        for rule in policies.rules
    )


def _peak(overlapping: list[Live], from_s: int) -> int:
    """The most nodes that are reserved at any instant from `from_s` on."""
    changes: list[tuple[int, int]] = []
    for live in overlapping:
        nodes = len(live.nodes)
        changes.append((max(live.reservation.start_s, from_s), nodes))
        changes.append((live.reservation.end_s, -nodes))
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
