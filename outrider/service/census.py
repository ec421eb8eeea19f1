"""What is booked beside a request, as the policies count it."""

from __future__ import annotations

from outrider.metadata.decision import Request, Standing
from outrider.service.site import Live, Site


def standing_of(site: Site, uid: int, account: str, request: Request, *, without: Live | None) -> Standing:
    """What is booked without the request, and without the reservation that it would replace."""
    others = [live for live in site.live.values() if live is not without]
    own = [live for live in others if live.record.owner.uid == uid]
    overlapping = [
        live
        for live in others
        if live.reservation.start_s < request.end_s and request.start_s < live.reservation.end_s
    ]
    return Standing(
        machine_nodes=len(site.book.timeline.nodes),
        peak_nodes=_peak(overlapping, request.start_s),
        peak_nodes_of_account=_peak(
            [live for live in overlapping if live.record.owner.account == account], request.start_s
        ),
        reservations=len(own),
        node_seconds=sum(_node_seconds(live, site.now_s) for live in own),
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
