"""What a reservation costs by the site's prices, and what of that is charged in the end.

A price is agreed when a reservation is accepted, and anew when its user changes it; what the service itself
moves costs what it did. Amounts are whole thousandths of the site's unit of money.
"""

from __future__ import annotations

from outrider.core.leases.admission import PlannedLease, price_of, thousandths
from outrider.core.leases.pricing import PriceList
from outrider.core.model import Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.leases import price_list
from outrider.metadata.policies import Policies
from outrider.service.desk.reservations.booked_usage import NodesView
from outrider.service.desk.state.documents import Document
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Caller
from outrider.store.records import EntryKind, LedgerEntry
from outrider.store.states import State


class Prices:
    """The site's prices, if it has any."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._policies: Policies | None = None
        self._list: PriceList | None = None

    def of_plan(self, policies: Policies, plan: ReservationPlan, without: str = "") -> int | None:
        """What a plan costs, with one reservation of the book left out; None where nothing has a price."""
        return self._of(policies, NodesView(self._site, without).lease(plan), without)

    def of_request(self, policies: Policies, workspace: Workspace) -> int | None:
        """What was asked for would cost at the first start that would do."""
        start_s = workspace.start_s
        assert start_s is not None
        lease = PlannedLease(
            workspace=workspace,
            units=workspace.instances,
            spans=((start_s, start_s + workspace.duration_s),),
        )
        return self._of(policies, lease, "")

    def of_more(self, policies: Policies, live: Live, end_s: int) -> int | None:
        """The price of a reservation that has begun and is to end at another time."""
        price, reservation = live.kept.price, live.reservation
        if price is None:
            return None
        if end_s <= reservation.end_s:
            return _part(price, end_s - reservation.start_s, reservation.end_s - reservation.start_s)
        more = PlannedLease(
            workspace=reservation.workspace, units=len(live.nodes), spans=((reservation.end_s, end_s),)
        )
        added = self._of(policies, more, live.name)
        return price if added is None else price + added

    def _of(self, policies: Policies, lease: PlannedLease, without: str) -> int | None:
        if policies is not self._policies:
            section = None if policies.leases is None else policies.leases.pricing
            self._policies, self._list = policies, None if section is None else price_list(section)
        if self._list is None:
            return None
        return price_of(self._list, lease, NodesView(self._site, without), self._site.now_s)


def objection(price: int | None, most_price: int | None) -> str:
    """Why a user does not want it for this price; else nothing."""
    if price is None or most_price is None or price <= most_price:
        return ""
    return (
        f"{TOO_DEAR} {thousandths(price)}, and {thousandths(most_price)} is the most that is to be paid: "
        "ask for a cheaper time, or for less, or allow more"
    )


TOO_DEAR = "it costs"
"""What a refusal for the price alone begins with."""


def charged(live: Live, state: State, now_s: int) -> int | None:
    """What is charged of a reservation that is over: nothing before its start or if it was not met, all of
    it at its end, and for the time that it has had its nodes if it is given up in between."""
    price, reservation = live.kept.price, live.reservation
    if price is None:
        return None
    if state is State.FAILED or now_s <= reservation.start_s:
        return 0
    if state is State.ENDED:
        return price
    return _part(price, now_s - reservation.start_s, reservation.end_s - reservation.start_s)


def entry_of_end(live: Live, amount: int, now_s: int) -> LedgerEntry:
    """What is written down of a reservation that is over."""
    owner, reservation = live.record.owner, live.reservation
    had_s = max(0, min(now_s, reservation.end_s) - reservation.start_s)
    return LedgerEntry(
        at_s=now_s,
        kind=EntryKind.CHARGED,
        name=live.name,
        uid=owner.uid,
        user=owner.user,
        account=owner.account,
        group=live.document.group,
        node_seconds=had_s * len(live.nodes),
        amount=amount,
    )


def entry_of_refusal(
    caller: Caller, account: str, document: Document, workspace: Workspace, amount: int, now_s: int, *,
    is_too_dear: bool,
) -> LedgerEntry:  # fmt: skip
    """What is written down of a request that is refused: the price that nobody pays."""
    return LedgerEntry(
        at_s=now_s,
        kind=EntryKind.TOO_DEAR if is_too_dear else EntryKind.REFUSED,
        name=document.workspace,
        uid=caller.uid,
        user=caller.user,
        account=account,
        group=document.group,
        node_seconds=workspace.instances * workspace.duration_s,
        amount=amount,
    )


def _part(price: int, had_s: int, whole_s: int) -> int:
    """Rounded up, as prices are."""
    return -(-price * max(0, min(had_s, whole_s)) // whole_s)
