"""From a request for a reservation to its answer: reserve, plan, modify, cancel.

A plan is worked out exactly as the real answer is, up to the point at which something would be
changed; so the two cannot differ for the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outrider.core.besteffort.jobs.requeueing import fewest_lost
from outrider.core.model import Workspace
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.admission import Policy, Rejected, Review, assess
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.planning import plan_at
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.renegotiation import (
    Renegotiated,
)
from outrider.core.restart.snapshot import keep_reservation, transfers_under_way
from outrider.metadata.decision import PolicyRefusal, core_policy
from outrider.metadata.leases import node_order, preemption_order
from outrider.metadata.policies import Policies
from outrider.service.answers.decision import Decision
from outrider.service.desk.batch.reservation_effects import (
    PARKED_AHEAD_S,
    park_effect,
    reserve_effect,
    unreserve_effect,
)
from outrider.service.desk.nodes.fixed_parts import objection, uncrowded
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.reservations import decision as replies
from outrider.service.desk.reservations.booked_usage import review_of, standing_of
from outrider.service.desk.reservations.making_way import (
    MOVABLE,
    Changed,
    MakingWay,
    Way,
    in_order,
    words_of,
)
from outrider.service.desk.reservations.prices import TOO_DEAR, Prices, entry_of_refusal
from outrider.service.desk.reservations.prices import objection as too_dear
from outrider.service.desk.state.documents import Record
from outrider.service.desk.state.offers import HeldOffers
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.wishes import Wish, too_large, too_much_for_pools
from outrider.service.requests import Caller
from outrider.store.records import ReservationOwner
from outrider.store.states import State, TransferState


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubtful:
    """Before this can be decided, these nodes have to keep so many bytes, and to say what others hold."""

    nodes: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """An answer, and as the core gave it if it is no. The answer names no earliest start."""

    decision: Decision
    rejected: Rejected | None = None


Doubts = Callable[[ReservationPlan], dict[str, int]]


def no_doubts(plan: ReservationPlan) -> dict[str, int]:
    """What nodes said last is believed."""
    return {}


class ReservationAdmission:
    """Decides, and notes what follows from it; the desk writes it down and tells."""

    def __init__(
        self, site: Site, policies: Policies, preemptible: PreemptibleJobs, offers: HeldOffers
    ) -> None:
        self._site = site
        self._offers = offers
        self.prices = Prices(site)
        self._preemptible = preemptible
        self._making_way = MakingWay(site)
        self._policies = policies
        self.policies = policies
        self.made_way: list[Changed] = []
        """Who made way for what was accepted last, to be told to nodes."""

    @property
    def policies(self) -> Policies:
        """The site's, as they are now."""
        return self._policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        """Follow these from now on: also in which order nodes are taken, and whose jobs yield first."""
        self._policies, leases, book = policies, policies.leases, self._site.book
        book.terms = replace(book.terms, node_order=None if leases is None else node_order(leases))
        section = None if leases is None else leases.preemption
        self._preemptible.order = None if section is None else preemption_order(section)
        self._site.holder_account = policies.holder_account or ""
        self._site.overbooking = None if policies.overbook is None else policies.overbook.packing

    def plan(self, wish: Wish, program: PolicyRefusal | None) -> Judged:
        """The answer that `reserve` would give now."""
        decision, answer, _ = self._decide(wish, program)
        rejected = answer if isinstance(answer, Rejected) else None
        return Judged(decision=replace(decision, name=""), rejected=rejected)

    def reserve(
        self, wish: Wish, program: PolicyRefusal | None, doubts: Doubts = no_doubts
    ) -> Judged | Doubtful:
        """Accept the reservation, or refuse it. The answer is put together before anything changes.

        Where there are doubts whether its nodes have the room, nothing is decided.
        """
        site = self._site
        decision, admission, way = self._decide(wish, program)
        nodes: dict[str, int] = {}
        if isinstance(admission, ReservationPlan):
            nodes = doubts(admission) if way is None else self._making_way.doubts(way, doubts)
        if nodes:
            return Doubtful(nodes=nodes)
        if isinstance(admission, Rejected):
            decision = replace(decision, name="")
            self.lose(wish, decision)
            self.note("reserve", wish.document.workspace, decision, wish.caller)
            return Judged(decision=decision, rejected=admission)
        plan = admission
        if way is None:
            site.book.commit(plan, site.now_s)
        else:
            plan = self._make_way(wish)
        self.enter(wish, plan)
        self.note("reserve", decision.name, decision, wish.caller)
        return Judged(decision=decision)

    def lose(self, wish: Wish, decision: Decision) -> None:
        """Write down what nobody pays because a request is refused."""
        site, caller = self._site, wish.caller
        if decision.price is None or (site.refusals.is_full(caller.uid) and not caller.is_admin):
            return
        is_too_dear = decision.reason.startswith(TOO_DEAR)
        entry = entry_of_refusal(
            caller, wish.account, wish.document, wish.workspace, decision.price, site.now_s,
            is_too_dear=is_too_dear,
        )  # fmt: skip
        site.write(lambda promise: promise.enter(entry))

    def note(self, kind: str, name: str, decision: Decision, caller: Caller) -> None:
        """Write a decision down. Of refusals there may be too many of one user."""
        is_bound = decision.result != "accepted" and not caller.is_admin
        note = self._site.note_refusal if is_bound else self._site.note
        note(kind, name, decision.result, decision.reason, uid=caller.uid)

    def answer(self, wish: Wish, program: PolicyRefusal | None) -> ReservationPlan | Rejected:
        """What the core says of a wish, with all that the site's policies say. Nothing is changed, and a
        refusal names no earliest start."""
        site = self._site
        never = self.assess(wish, program)
        if never is not None:
            return never

        def asked() -> ReservationPlan | Rejected:
            return assess(
                site.book,
                wish.workspace,
                site.now_s,
                policy=self.policy(wish),
                tells_earliest=False,
                choice=self._gentlest,
                review=self.review("", wish),
            )

        if not site.settings.has_fixed_parts:
            return asked()
        with uncrowded(site, wish.workspace) as is_less:
            admission = asked()
        # Of what is refused all nodes are told.
        return asked() if is_less and isinstance(admission, Rejected) else admission

    def _decide(
        self, wish: Wish, program: PolicyRefusal | None
    ) -> tuple[Decision, ReservationPlan | Rejected, Way | None]:
        """The answer; with who would make way, if it is accepted only so."""
        admission = self.answer(wish, program)
        way: Way | None = None
        if isinstance(admission, Rejected) and admission.refusal.cause in MOVABLE:
            review = self.review("", wish)
            way = self._making_way.find(wish.workspace, self.policies, review, is_plan=True)
        if way is not None:
            return replace(self.decision(wish, way.plan), reason=words_of(way)), way.plan, way
        return self.decision(wish, admission), admission, None

    def _make_way(self, wish: Wish) -> ReservationPlan:
        """Enter a request for which others make way, and write down what becomes of these."""
        site, name = self._site, wish.workspace.name
        way, changed = self._making_way.carry_out(wish.workspace, self.policies, self.review("", wish))
        self.made_way = changed
        parked_s = max(entry.end_s for entry in site.book.entries.values()) + PARKED_AHEAD_S
        for each in in_order(changed):
            live = each.live
            if each.is_parked:
                site.todo([park_effect(live, each.before, parked_s, site.now_s)])
                parked_s += each.before.end_s - each.before.start_s
                continue
            if each.after is None:
                # Before anybody else is to have its nodes.
                site.todo([unreserve_effect(live, site.now_s)])
                continue
            if live.reservation.start_s <= site.now_s:
                words = f"it yields to reservation {name}, as it may, and ends sooner"
                receipt = replace(live.kept, yielded_to=name)
                site.change(live, kept=keep_reservation(site.book, live.name), why=words, receipt=receipt)
            else:
                words = f"it was moved for reservation {name}, which its deadline allows"
                self._place_anew(live, words, replace(live.kept, moves=live.kept.moves + 1))
            site.note("move", live.name, "moved", words)
            self.confirm(live)
        return way.plan

    def _gentlest(self, plan: ReservationPlan) -> ReservationPlan:
        """The nodes on which preemptible jobs lose least by making way."""
        if not self._preemptible.all:
            return plan
        runs, now_s = self._preemptible.runs(), self._site.now_s
        return fewest_lost(self._site.book, plan, runs, now_s, places=self._preemptible.places(now_s))

    def review(self, without: str, wish: Wish) -> Review:
        """What the policies say of a plan, with one reservation of the book left out; and whether it would
        take what another user is offered."""
        site, policies = self._site, review_of(self._site, self.policies, without)

        def review(plan: ReservationPlan) -> str:
            words = policies(plan)
            if not words and site.settings.has_fixed_parts:
                words = objection(site, plan, without)
            words = words or self._offers.objection(plan, wish.caller.uid, site.now_s)
            if words or wish.most_price is None:
                return words
            return too_dear(self.price(wish, plan, without), wish.most_price)

        return review

    def price(self, wish: Wish, plan: ReservationPlan, without: str = "") -> int | None:
        """What a plan costs; what was offered is kept to."""
        if wish.offered_price is not None:
            return wish.offered_price
        return self.prices.of_plan(self.policies, plan, without)

    def moved(self, live: Live, renegotiated: Renegotiated, why: str) -> None:
        """A reservation has got other nodes or times: write that down, and tell the batch system."""
        site = self._site
        assert isinstance(renegotiated.admission, ReservationPlan)
        plan = renegotiated.admission
        site.end_transfers(renegotiated.dropped, TransferState.WITHDRAWN)
        self._touch(plan)
        saved = plan.saved_bytes
        self._place_anew(live, why, replace(live.kept, saved_bytes=saved))
        self.confirm(live)

    def _place_anew(self, live: Live, why: str, receipt: Record) -> None:
        """A reservation has another place in the book: write that down."""
        site = self._site
        kept = keep_reservation(site.book, live.name)
        nodes, names = set(kept.nodes), site.book.timeline.nodes
        live.ready &= nodes - {names[node].name for node in site.book.nodes_waiting(live.name)}
        state, ready_s = after_move(live, is_ready=live.ready == nodes, now_s=site.now_s)
        site.change(live, kept=kept, state=state, why=why, receipt=replace(receipt, ready_s=ready_s))
        live.danger, live.spoiled, live.odds_percent = "", "", None

    def confirm(self, live: Live) -> None:
        """Let the batch system have the reservation as it is now."""
        live.is_confirmed = False
        live.batch_start_s = 0
        if live.waits and live.document.open is not None:
            live.batch_start_s = self._site.now_s + live.document.open.lead_s(self._site.settings)
        self._site.todo([reserve_effect(live, self._site.now_s, live.batch_start_s)])

    def leave_book(self, live: Live) -> None:
        """Give back its slots and the transfers that nobody else needs."""
        site = self._site
        if live.name not in site.book.entries:
            return
        waited = transfers_under_way(site.book, live.name)
        site.book.cancel(live.name, site.now_s)
        gone = {number for number in waited if not site.book.lives_of(number)} - site.moving.keys()
        site.end_transfers(sorted(gone), TransferState.WITHDRAWN)
        site.touch(set(waited) - gone)

    def assess(self, wish: Wish, program: PolicyRefusal | None) -> Rejected | None:
        """What stands in the way before the book is asked."""
        workspace = wish.workspace
        assert workspace.start_s is not None
        words = ""
        if wish.account and not wish.caller.is_admin and wish.account not in wish.caller.groups:
            words = texts.of_account(wish.caller.user, wish.account)
        elif len(self._site.live) + len(wish.beside) >= self._site.settings.most_reservations:
            words = texts.of_full_site(len(self._site.live))
        elif program is not None:
            words = program.sentence
        end_s = workspace.start_s + workspace.duration_s
        if not words:
            cause, words = Cause.SLOTS, too_large(self._site, workspace)
            if not words:
                cause, words = Cause.POOL, too_much_for_pools(self._site, workspace)
            refusal = Refusal(cause=cause, start_s=workspace.start_s, end_s=end_s, message=words)
            return Rejected(refusal=refusal) if words else None
        return Rejected(
            refusal=Refusal(cause=Cause.POLICY, start_s=workspace.start_s, end_s=end_s, message=words)
        )

    def ends_of_others(self, wish: Wish) -> list[int]:
        """When something ends that may keep a start from being allowed, in order."""
        site = self._site
        booked = {live.reservation.end_s for live in site.live.values()}
        return sorted(booked | self._offers.protected_ends(wish.caller.uid, site.now_s))

    def allows(self, wish: Wish, workspace: Workspace) -> bool:
        """Whether neither the policies nor offers to others stand against a start that the book has."""
        site = self._site
        if self.policy(wish)(workspace, site.now_s):
            return False
        is_free = not self._offers.protected_ends(wish.caller.uid, site.now_s)
        if is_free and self.policies.leases is None and wish.most_price is None:
            return True
        assert workspace.start_s is not None
        plan = plan_at(site.book, workspace, workspace.start_s, site.now_s)
        return isinstance(plan, ReservationPlan) and not self.review("", wish)(self._gentlest(plan))

    def policy(self, wish: Wish, *, without: Live | None = None) -> Policy:
        return core_policy(
            self.policies,
            wish.requester,
            lambda from_s, until_s: standing_of(
                self._site,
                self.policies,
                wish.caller.uid,
                wish.account,
                from_s,
                until_s,
                without=without,
                beside=wish.beside,
            ),
        )

    def enter(self, wish: Wish, plan: ReservationPlan) -> None:
        """An accepted reservation, with all that follows from it."""
        site = self._site
        kept = keep_reservation(site.book, wish.workspace.name)
        owner = ReservationOwner(uid=wish.caller.uid, user=wish.caller.user, account=wish.account)
        saved = plan.saved_bytes
        record = Record(saved_bytes=saved, price=self.price(wish, plan, wish.workspace.name))
        live = site.accept(kept, owner, wish.document, record)
        if record.price is not None:
            # What was agreed has to be known after a restart; how the promise is kept is found out again.
            site.change(live, receipt=record)
        self._touch(plan)
        self.confirm(live)

    def _touch(self, plan: ReservationPlan) -> None:
        site = self._site
        numbers = {transfer.number for transfer in plan.transfers}
        numbers.update(number for number, _ in plan.pushed)
        numbers.update(life.transfer for _, life in plan.joined if life.transfer is not None)
        site.touch(numbers)

    def decision(self, wish: Wish, admission: ReservationPlan | Rejected) -> Decision:
        decision = replies.decision(self._site, wish.document, wish.workspace, admission, wish.zone)
        if isinstance(admission, ReservationPlan):
            price = self.price(wish, admission, wish.workspace.name)
        else:
            price = self.prices.of_request(self.policies, wish.workspace)
        return replace(decision, price=price, notes=wish.notes)


def after_move(live: Live, *, is_ready: bool, now_s: int) -> tuple[State, int | None]:
    """The state of a reservation with other nodes, and since when its image is on all of them."""
    before = live.record.state
    if is_ready:
        # What has begun may be before its start by a clock that was set back.
        after = before if before is State.ACTIVE else State.READY
        return after, now_s if live.kept.ready_s is None else live.kept.ready_s
    changed = {State.READY: State.PREPARING, State.ENDANGERED: State.ACCEPTED}
    return changed.get(before, before), None
