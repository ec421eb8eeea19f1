"""Leases of every kind as one list: reservations, those with a deadline, those that recur, and offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.leases import LeaseDetails, LeaseKind, LeaseList, LeaseView
from outrider.service.answers.reply import Trouble
from outrider.service.desk.state.offers import HeldOffer, HeldOffers
from outrider.service.desk.state.permissions import may_read
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.views.reservations import ReservationViews
from outrider.service.requests import Caller, ListLeases
from outrider.store.states import State

OFFERED = "offered"
"""The state of what is held and not accepted. All others are those of the store."""


class LeaseViews:
    """Answers to whoever looks. What is over is among the reservations."""

    def __init__(self, site: Site, reservations: ReservationViews, offers: HeldOffers) -> None:
        self._site = site
        self._reservations = reservations
        self._offers = offers

    def leases(self, request: ListLeases, caller: Caller) -> LeaseList:
        """In the order of their starts; offers are told to those who have them."""
        found = sorted(self._all(request, caller), key=lambda each: (each.start_s, each.name))
        return LeaseList(leases=tuple(found[: request.most]), is_complete=len(found) <= request.most)

    def details(self, name: str, caller: Caller) -> LeaseDetails | Trouble:
        """One lease, with the reservations that it consists of."""
        for offer in self._offers.of(caller.uid, self._site.now_s):
            if offer.name == name:
                return LeaseDetails(lease=_of_offer(offer, caller), reservations=())
        parts = self._reservations.series(name)
        if not parts:
            found = self._reservations.find(name, caller)
            if isinstance(found, Trouble):
                return found
            if not isinstance(found, Live):
                words = f"lease {found.name} is over: see outrider show {found.name}"
                return Trouble(code="not-found", message=words)
            parts = [found]
        views = tuple(self._reservations.reservation(each, caller) for each in parts)
        kind, lease_name = kind_of(parts[0]), name if len(parts) > 1 else parts[0].name
        if parts[0].document.series and parts[0].name == name:
            # One occurrence, role or piece was meant.
            kind = LeaseKind.RESERVATION
        return LeaseDetails(lease=_of_parts(lease_name, kind, parts, caller), reservations=views)

    def _all(self, request: ListLeases, caller: Caller) -> Iterator[LeaseView]:
        series: dict[str, list[Live]] = {}
        for live in self._site.live.values():
            if request.user in (None, live.record.owner.user):
                series.setdefault(live.document.series or live.name, []).append(live)
        for name, parts in series.items():
            kind = kind_of(parts[0])
            if request.kind in (None, kind.value):
                yield _of_parts(name, kind, parts, caller)
        is_own = request.user in (None, caller.user)
        if is_own and request.kind in (None, LeaseKind.OFFER.value):
            for offer in self._offers.of(caller.uid, self._site.now_s):
                yield _of_offer(offer, caller)


def kind_of(live: Live) -> LeaseKind:
    if live.document.role:
        return LeaseKind.ROLES
    if live.document.pieces:
        return LeaseKind.DEADLINE
    if live.document.series:
        return LeaseKind.RECURRING
    has_deadline = live.reservation.workspace.finish_by_s is not None
    return LeaseKind.DEADLINE if has_deadline else LeaseKind.RESERVATION


def state_of(states: Iterable[State]) -> State:
    """Of one that recurs: what somebody has to know first, else that of the next occurrence, which is the
    first."""
    known = list(states)
    return next((each for each in (State.ENDANGERED, State.ACTIVE) if each in known), known[0])


def _of_parts(name: str, kind: LeaseKind, parts: list[Live], caller: Caller) -> LeaseView:
    """Reservations that are not over, as one lease with the times of the first."""
    first = min(parts, key=lambda live: (live.reservation.start_s, live.document.occurrence))
    ordered = sorted(parts, key=lambda live: live.reservation.start_s)
    is_shown = may_read(first.record, caller)
    prices = [live.kept.price for live in parts if live.kept.price is not None]
    return LeaseView(
        name=name,
        kind=kind.value,
        state=state_of(live.record.state for live in ordered).value,
        user=first.record.owner.user,
        account=first.record.owner.account,
        workspace=first.document.workspace,
        start_s=first.reservation.start_s,
        end_s=first.reservation.end_s,
        nodes=fold(first.nodes),
        node_count=len(first.nodes),
        left=len(parts),
        last_end_s=max(live.reservation.end_s for live in parts),
        price=sum(prices) if prices and is_shown else None,
    )


def _of_offer(offer: HeldOffer, caller: Caller) -> LeaseView:
    workspace = offer.workspace
    assert workspace.start_s is not None
    end_s = workspace.start_s + workspace.duration_s
    return LeaseView(
        name=offer.name,
        kind=LeaseKind.OFFER.value,
        state=OFFERED,
        user=caller.user,
        account=offer.request.account,
        workspace=offer.request.workspace.metadata.name,
        start_s=workspace.start_s,
        end_s=end_s,
        nodes="",
        node_count=workspace.instances,
        left=1,
        last_end_s=end_s,
        price=offer.request.offered_price,
    )
