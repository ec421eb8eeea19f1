"""An answer that is no says what would be yes: offers, which can be accepted by name for a while."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.alternatives import Alternative, Question, alternatives, can_wait
from outrider.core.model import Workspace
from outrider.core.nodes.free_lengths import longest_free
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.conversion import deployment_of
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import Offer
from outrider.service.answers.reply import Trouble
from outrider.service.desk.leases.early_starts import with_earliest
from outrider.service.desk.leases.offer_searches import OfferSearch, Slices
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.state.offers import HeldNames, HeldOffers
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Accept, Caller, Reserve

UNSEARCHED = (
    "its earliest start was not searched for, since too many searches are under way: ask again when other "
    "requests are answered"
)


class Negotiation:
    """Makes offers and takes them back. A plan shows them, and they are not held."""

    def __init__(self, site: Site, admission: ReservationAdmission, offers: HeldOffers) -> None:
        self._site = site
        self._admission = admission
        self._offers = offers

    def offered(self, request: Accept, caller: Caller) -> Reserve | Trouble:
        """What is reserved if an offer is accepted."""
        found = self._offers.find(request.name, caller, self._site.now_s)
        if found is None:
            held_s = self._site.settings.offers_held_s
            words = (
                f"there is no offer {request.name} for {caller.user}: offers are held for {held_s} s, until "
                "the next request is refused, and not over a restart of the service; ask again"
            )
            return Trouble(code="not-found", message=words)
        return replace(found.request, is_plan=False, key=request.key, request_hash=request.request_hash)

    def drop_offers(self, caller: Caller) -> None:
        """Whose request is accepted needs none any more."""
        self._offers.drop(caller.uid)

    def search(
        self, request: Reserve, wish: Wish, decision: Decision, rejected: Rejected
    ) -> OfferSearch | None:
        """The earliest start and what would be accepted instead are looked for, in slices; else None."""
        if wish.document.open is not None:
            # Its start is not its own to choose.
            return None
        # To look for offers takes longer than to refuse, and nobody has as much of that as they like.
        is_brief = not wish.caller.is_admin and self._site.refusals.is_full(wish.caller.uid)
        if is_brief and rejected.refusal.message:
            return None
        # The number of the last decision on the disk: the refusal that is decided now gets a later one.
        serial = self._site.store.last_decision()
        slices = self._slices(request, wish, decision, rejected, serial, is_brief=is_brief)
        unsearched = (
            decision if rejected.refusal.message else replace(decision, notes=(*decision.notes, UNSEARCHED))
        )
        return OfferSearch(decision=unsearched, slices=slices)

    def _slices(
        self,
        request: Reserve,
        wish: Wish,
        decision: Decision,
        rejected: Rejected,
        serial: int,
        *,
        is_brief: bool,
    ) -> Slices:
        """Each takes at most the time of one decision. Others may be dealt with in between."""
        site, held_s = self._site, self._site.settings.offers_held_s
        began = site.writes, site.now_s
        rejected = yield from with_earliest(site, self._admission, wish, rejected)
        told = self._admission.decision(wish, rejected)
        decision = replace(decision, earliest_start_s=told.earliest_start_s, remedies=told.remedies)
        if is_brief:
            return decision
        yield
        lengths = None if rejected.refusal.room is None else self._lengths(wish.workspace)
        yield
        search, answer = alternatives(wish.workspace, rejected, held_s, lengths), None
        while True:
            try:
                question = next(search) if answer is None else search.send(answer)
            except StopIteration as ended:
                found: tuple[Alternative, ...] = ended.value
                break
            answer = self._ask(wish, rejected, question)
            yield
            if question.tells_earliest and isinstance(answer, Rejected):
                asked = replace(wish, workspace=question.workspace)
                answer = yield from with_earliest(site, self._admission, asked, answer)
                yield
        if (site.writes, site.now_s) != began:
            # Others may have taken what was found first.
            kept: list[Alternative] = []
            for each in found:
                still = self._ask(wish, rejected, Question(workspace=each.workspace))
                if isinstance(still, ReservationPlan):
                    kept.append(replace(each, plan=still))
                yield
            found = tuple(kept)
        return self._told(request, wish, decision, found, serial)

    def _told(
        self,
        request: Reserve,
        wish: Wish,
        decision: Decision,
        found: tuple[Alternative, ...],
        serial: int,
    ) -> Decision:
        """The refusal with what was found, which is held."""
        held = HeldNames()
        if not request.is_plan:
            terms = [
                (each, replace(_with_terms(request, each.workspace), offered_price=self._price(each)))
                for each in found
            ]
            held = self._offers.hold(wish.caller, terms, self._site.now_s, serial)
        names = held.names or ("",) * len(found)
        return replace(
            decision,
            offers=tuple(self._offer(each, name) for each, name in zip(found, names, strict=True)),
            offers_until_s=held.until_s,
            are_offers_protected=held.is_protected,
        )

    def _ask(self, wish: Wish, rejected: Rejected, question: Question) -> ReservationPlan | Rejected:
        """What other terms would be answered, as long as offers are held. The site's own program is asked
        when they are accepted."""
        asked = replace(wish, workspace=question.workspace)
        answer = self._admission.answer(asked, None)
        until_s = self._site.now_s + self._site.settings.offers_held_s
        if isinstance(answer, ReservationPlan) and not can_wait(answer, until_s):
            return Rejected(refusal=rejected.refusal)
        return answer

    def _lengths(self, workspace: Workspace) -> list[int] | None:
        """For how long there is room for one instance, for two, and so on; None if that depends on more than
        nodes."""
        book, start_s = self._site.book, workspace.start_s
        if start_s is None or workspace.finish_by_s is not None or workspace.is_immediate:
            return None
        return longest_free(
            book.timeline,
            need=book.timeline.layout.pack(workspace.resources),
            instances=workspace.instances,
            at_s=start_s,
            within_s=workspace.duration_s,
            available=book.available,
            most_per_node=workspace.most_per_node,
        )

    def _offer(self, found: Alternative, name: str) -> Offer:
        nodes = self._site.book.timeline.nodes
        return Offer(
            name=name,
            kind=found.kind.value,
            start_s=found.plan.start_s,
            end_s=found.plan.end_s,
            node_count=len(found.plan.fits),
            nodes=fold(nodes[chosen.node].name for chosen in found.plan.fits),
            price=self._price(found),
        )

    def _price(self, found: Alternative) -> int | None:
        return self._admission.prices.of_plan(self._admission.policies, found.plan)


def _with_terms(request: Reserve, workspace: Workspace) -> Reserve:
    """The same request with the terms of an alternative."""
    terms = {
        "nodes": workspace.instances,
        "duration_s": workspace.duration_s,
        "start_s": workspace.start_s,
        "finish_by_s": workspace.finish_by_s,
    }
    deployment = deployment_of(request.workspace).model_copy(update=terms)
    file = request.workspace.model_copy(update={"deployment": deployment})
    return replace(request, workspace=file)
