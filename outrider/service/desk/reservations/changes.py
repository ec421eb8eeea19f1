"""Other terms for a reservation that was accepted: it is renegotiated until it begins; afterwards it may get
another end, or more or fewer nodes.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.renegotiation import (
    Renegotiated,
    change_end,
    give_back,
    renegotiate,
    take_more,
)
from outrider.core.restart.snapshot import keep_reservation
from outrider.metadata.decision import PolicyRefusal
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.nodes.fixed_parts import extension_fault, uncrowded
from outrider.service.desk.nodes.giving_back import spare_nodes, unchangeable
from outrider.service.desk.reservations import decision as replies
from outrider.service.desk.reservations.admission import (
    Doubtful,
    Doubts,
    Judged,
    ReservationAdmission,
)
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Modify
from outrider.store.states import TransferState

CHANGED = "changed by its user"


class ReservationChanges:
    """Decides about changes, and notes what follows from them."""

    def __init__(self, site: Site, admission: ReservationAdmission) -> None:
        self._site = site
        self._admission = admission

    def modify(
        self, live: Live, wish: Wish, request: Modify, program: PolicyRefusal | None, doubts: Doubts
    ) -> Judged | Doubtful | Trouble:
        """Renegotiate a reservation, or with `is_plan` say what would become of that. Where there are doubts
        whether other nodes have the room, or are free, nothing is decided."""
        site, admission = self._site, self._admission
        rejected = admission.assess(wish, program)
        if rejected is not None:
            return self._refused(live, wish, rejected)
        if live.name not in site.book.entries:
            words = f"reservation {live.name} has lost its nodes: cancel it, or ask again later"
            return Trouble(code="conflict", message=words)
        if live.reservation.end_s <= site.now_s:
            return Trouble(code="conflict", message=f"reservation {live.name} is over: its time has passed")
        if live.reservation.start_s <= site.now_s:
            return self._extend(live, wish, request, doubts)
        answer = self._renegotiate(live, wish, is_plan=True).admission
        if not request.is_plan and (nodes := _in_doubt(live, answer, doubts)):
            return Doubtful(nodes=nodes)
        decision = replace(admission.decision(wish, answer), name=live.name)
        if not request.is_plan:
            admission.note("modify", live.name, decision, wish.caller)
            if isinstance(answer, ReservationPlan):
                admission.moved(live, self._renegotiate(live, wish, is_plan=False), CHANGED)
                site.change(live, receipt=replace(live.kept, price=decision.price))
        return Judged(decision=decision, rejected=answer if isinstance(answer, Rejected) else None)

    def _renegotiate(self, live: Live, wish: Wish, *, is_plan: bool) -> Renegotiated:
        site, admission = self._site, self._admission
        policy, review = admission.policy(wish, without=live), admission.review(live.name, wish)
        with uncrowded(site, wish.workspace, live.name):
            return renegotiate(
                site.book,
                wish.workspace,
                site.now_s,
                policy=policy,
                tells_earliest=False,
                is_plan=is_plan,
                review=review,
            )

    def _extend(self, live: Live, wish: Wish, request: Modify, doubts: Doubts) -> Judged | Doubtful | Trouble:
        """Another end, or fewer nodes, for a reservation that has begun; both or neither."""
        site, admission, before = self._site, self._admission, live.reservation
        duration_s = request.duration_s or before.end_s - before.start_s
        end_s = before.start_s + duration_s
        words = unchangeable(site, live, request)
        if words:
            return Trouble(code="conflict", message=words)
        if end_s <= site.now_s:
            words = f"reservation {live.name} would be over already: cancel it instead"
            return Trouble(code="conflict", message=words)
        if len(live.nodes) < (request.nodes or 0):
            return self._grow(live, wish, request, doubts)
        refusal: Refusal | None = None
        words = admission.policy(wish, without=live)(wish.workspace, site.now_s)
        words = words or extension_fault(site, live, end_s)
        if words:
            refusal = Refusal(cause=Cause.POLICY, start_s=before.start_s, end_s=end_s, message=words)
        else:
            refusal = change_end(site.book, live.name, end_s, site.now_s, is_plan=request.is_plan)
        if refusal is not None:
            return self._refused(live, wish, Rejected(refusal=refusal))
        price = admission.prices.of_more(admission.policies, live, end_s)
        spare = spare_nodes(site, live, request)
        decision = replace(replies.extended(site, live, end_s, spare), price=price)
        if not request.is_plan:
            if spare:
                dropped = give_back(site.book, live.name, spare, site.now_s)
                site.end_transfers(dropped, TransferState.WITHDRAWN)
                live.ready -= spare
            self._write(live, wish, decision)
        return Judged(decision=decision)

    def _grow(self, live: Live, wish: Wish, request: Modify, doubts: Doubts) -> Judged | Doubtful | Trouble:
        """More nodes for a reservation that has begun, which have its image already."""
        site, admission, name = self._site, self._admission, live.name
        count = (request.nodes or 0) - len(live.nodes)
        words, end_s = (
            admission.policy(wish, without=live)(wish.workspace, site.now_s),
            live.reservation.end_s,
        )
        if words:
            refusal = Refusal(cause=Cause.POLICY, start_s=site.now_s, end_s=end_s, message=words)
            return self._refused(live, wish, Rejected(refusal=refusal))
        review = admission.review("", wish)
        found = take_more(site.book, name, count, site.now_s, review, is_plan=True)
        if isinstance(found, Refusal):
            return self._refused(live, wish, Rejected(refusal=found))
        if not request.is_plan and (in_doubt := _in_doubt(live, found, doubts)):
            return Doubtful(nodes=in_doubt)
        nodes = {site.book.timeline.nodes[each.node].name for each in found.fits}
        price = admission.prices.of_plan(admission.policies, found, name)
        if price is not None and live.kept.price is not None:
            price += live.kept.price
        decision = replace(replies.grown(site, live, nodes - set(live.nodes)), price=price)
        if not request.is_plan:
            take_more(site.book, name, count, site.now_s, review)
            live.grow(nodes)
            self._write(live, wish, decision)
        return Judged(decision=decision)

    def _refused(self, live: Live, wish: Wish, rejected: Rejected) -> Judged:
        return Judged(decision=replace(self._admission.decision(wish, rejected), name=live.name))

    def _write(self, live: Live, wish: Wish, decision: Decision) -> None:
        """What has begun has another end, or other nodes, by its user's wish."""
        site = self._site
        receipt = replace(live.kept, price=decision.price)
        site.change(live, kept=keep_reservation(site.book, live.name), why=CHANGED, receipt=receipt)
        site.note("modify", live.name, decision.result, decision.reason, uid=wish.caller.uid)
        self._admission.confirm(live)


def _in_doubt(live: Live, answer: ReservationPlan | Rejected, doubts: Doubts) -> dict[str, int]:
    """Whom a change has to wait for. The nodes that it has already keep its image for it."""
    found = doubts(answer) if isinstance(answer, ReservationPlan) else {}
    return {name: size_bytes for name, size_bytes in found.items() if name not in live.nodes}
