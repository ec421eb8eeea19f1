"""From a request for a reservation to its answer: reserve, plan, modify, cancel.

A plan is worked out exactly as the real answer is, up to the point at which something would be
changed; so the two cannot differ for the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import tzinfo

from outrider.core.besteffort.jobs.requeueing import fewest_lost
from outrider.core.model import Image, Workspace
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.admission import Accepted, Policy, Rejected, Review, assess
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.earliest import earliest_start
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.renegotiation import Renegotiated, change_end, renegotiate
from outrider.core.restart.snapshot import keep_reservation, transfers_under_way
from outrider.metadata.conversion import workspace_of
from outrider.metadata.decision import PolicyRefusal, Requester, core_policy
from outrider.metadata.errors import MetadataError
from outrider.metadata.policies import Policies
from outrider.service.answers import Answer, Decision, Trouble
from outrider.service.desk.batch.reservation_effects import reserve_effect
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.reservations import decision as replies
from outrider.service.desk.reservations.booked_usage import review_of, standing_of
from outrider.service.desk.state.documents import Document, Record, document_of, stem_of
from outrider.service.desk.state.node_list import parts, whole
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Caller, Modify, Reserve
from outrider.store.records import ReservationOwner
from outrider.store.states import State, TransferState

MOST_ENDS_TRIED = 4
"""How many ends of others are tried in search of a start that the policies allow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What somebody wants, as the core and the policies look at it."""

    caller: Caller
    account: str
    document: Document
    workspace: Workspace
    zone: tzinfo

    @property
    def requester(self) -> Requester:
        return Requester(user=self.caller.user, groups=self.caller.groups, account=self.account)


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubtful:
    """Before this can be decided, these nodes have to keep so many bytes, and to say what others hold."""

    nodes: dict[str, int]


Doubts = Callable[[ReservationPlan], dict[str, int]]


def no_doubts(plan: ReservationPlan) -> dict[str, int]:
    """What nodes said last is believed."""
    return {}


class ReservationAdmission:
    """Decides, and notes what follows from it; the desk writes it down and tells."""

    def __init__(self, site: Site, policies: Policies, preemptible: PreemptibleJobs) -> None:
        self._site = site
        self._preemptible = preemptible
        self.policies = policies

    def wish(self, caller: Caller, request: Reserve) -> Wish | Trouble:
        """A request in the words of the core; the name it would be booked under is in it."""
        site = self._site
        document = document_of(request, caller)
        name = f"{stem_of(document.workspace)}-{site.next_number}"
        try:
            workspace = workspace_of(request.workspace, document.image, now_s=site.now_s, name=name)
        except MetadataError as error:
            return Trouble(code="invalid", message=str(error))
        workspace = replace(workspace, resources=whole(workspace.resources))
        if workspace.start_s is None:
            return Trouble(
                code="invalid",
                message=f"workspace {document.workspace} has no start: give one with --start, "
                "or submit it as best effort",
            )
        return Wish(
            caller=caller, account=request.account, document=document, workspace=workspace, zone=request.zone
        )

    def changed(self, live: Live, request: Modify, caller: Caller) -> Wish | Trouble:
        """A change in the words of the core. What is not asked for stays."""
        workspace = live.reservation.workspace
        start_s = request.start_s
        if start_s is None:
            # A deadline lease keeps the start that it was given unless another is asked for.
            start_s = live.reservation.start_s
        try:
            workspace = replace(
                workspace,
                start_s=start_s,
                duration_s=request.duration_s or workspace.duration_s,
                instances=request.nodes or workspace.instances,
                finish_by_s=None,
            )
        except ValueError as error:
            return Trouble(code="invalid", message=str(error))
        owner = live.record.owner
        groups = caller.groups if caller.uid == owner.uid else ()
        whose = Caller(uid=owner.uid, user=owner.user, groups=groups, is_admin=caller.is_admin)
        return Wish(
            caller=whose,
            account=owner.account,
            document=live.document,
            workspace=workspace,
            zone=request.zone,
        )

    def plan(self, wish: Wish, program: PolicyRefusal | None) -> Decision:
        """The answer that `reserve` would give now."""
        return replace(self._decide(wish, program)[0], name="")

    def reserve(
        self, wish: Wish, program: PolicyRefusal | None, doubts: Doubts = no_doubts
    ) -> Decision | Doubtful:
        """Accept the reservation, or refuse it. The answer is put together before anything changes.

        Where there are doubts whether its nodes have the room, nothing is decided.
        """
        site = self._site
        decision, admission = self._decide(wish, program)
        if isinstance(admission, Accepted) and (nodes := doubts(admission.plan)):
            return Doubtful(nodes=nodes)
        if isinstance(admission, Rejected):
            decision = replace(decision, name="")
            name = wish.document.workspace
        else:
            name = decision.name
            site.book.commit(admission.plan, site.now_s)
            self._enter(wish, admission.plan)
        self._note("reserve", name, decision, wish.caller)
        return decision

    def _note(self, kind: str, name: str, decision: Decision, caller: Caller) -> None:
        """Write a decision down. Of refusals there may be too many of one user."""
        is_bound = decision.result != "accepted" and not caller.is_admin
        note = self._site.note_refusal if is_bound else self._site.note
        note(kind, name, decision.result, decision.reason, uid=caller.uid)

    def _decide(self, wish: Wish, program: PolicyRefusal | None) -> tuple[Decision, Accepted | Rejected]:
        site = self._site
        policy = self._policy(wish)
        admission = self._assess(wish, program) or assess(
            site.book,
            wish.workspace,
            site.now_s,
            policy=policy,
            choice=self._gentlest,
            review=self._review(""),
        )
        admission = self._allowed(wish, admission, policy)
        return self._decision(wish, admission), admission

    def _gentlest(self, plan: ReservationPlan) -> ReservationPlan:
        """The nodes on which preemptible jobs lose least by making way."""
        if not self._preemptible.all:
            return plan
        return fewest_lost(self._site.book, plan, self._preemptible.runs(), self._site.now_s)

    def modify(self, live: Live, wish: Wish, request: Modify, program: PolicyRefusal | None) -> Answer:
        """Renegotiate a reservation, or with `is_plan` say what would become of that."""
        site = self._site
        rejected = self._assess(wish, program)
        if rejected is not None:
            return replace(self._decision(wish, rejected), name=live.name)
        if live.name not in site.book.entries:
            words = f"reservation {live.name} has lost its nodes: cancel it, or ask again later"
            return Trouble(code="conflict", message=words)
        if live.reservation.start_s <= site.now_s:
            return self._extend(live, wish, request)
        answer = self._renegotiate(live, wish, is_plan=True)
        decision = replace(self._decision(wish, answer.admission), name=live.name)
        if not request.is_plan:
            self._note("modify", live.name, decision, wish.caller)
            if isinstance(answer.admission, Accepted):
                self.moved(live, self._renegotiate(live, wish, is_plan=False), "changed by its user")
        return decision

    def _renegotiate(self, live: Live, wish: Wish, *, is_plan: bool) -> Renegotiated:
        site = self._site
        policy, review = self._policy(wish, without=live), self._review(live.name)
        return renegotiate(
            site.book, wish.workspace, site.now_s, policy=policy, is_plan=is_plan, review=review
        )

    def _review(self, without: str) -> Review:
        """What the policies say of a plan, with one reservation of the book left out."""
        return review_of(self._site, self.policies, without)

    def moved(self, live: Live, renegotiated: Renegotiated, why: str) -> None:
        """A reservation has got other nodes or times: write that down, and tell the batch system."""
        site = self._site
        assert isinstance(renegotiated.admission, Accepted)
        plan = renegotiated.admission.plan
        site.end_transfers(renegotiated.dropped, TransferState.WITHDRAWN)
        self._touch(plan)
        kept = keep_reservation(site.book, live.name)
        nodes = set(kept.reservation.nodes)
        live.ready &= nodes
        state, ready_s = after_move(live, is_ready=live.ready == nodes, now_s=site.now_s)
        saved = self._saved_bytes(live.document.image, plan)
        site.change(
            live,
            kept=kept,
            state=state,
            why=why,
            receipt=replace(live.kept, saved_bytes=saved, ready_s=ready_s),
        )
        live.danger, live.spoiled, live.odds_percent = "", "", None
        self.confirm(live)

    def confirm(self, live: Live) -> None:
        """Let the batch system have the reservation as it is now."""
        live.is_confirmed = False
        self._site.todo([reserve_effect(live, self._site.now_s)])

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

    def _assess(self, wish: Wish, program: PolicyRefusal | None) -> Rejected | None:
        """What stands in the way before the book is asked."""
        workspace = wish.workspace
        assert workspace.start_s is not None
        words = ""
        if wish.account and not wish.caller.is_admin and wish.account not in wish.caller.groups:
            words = texts.of_account(wish.caller.user, wish.account)
        elif len(self._site.live) >= self._site.settings.most_reservations:
            words = texts.of_full_site(len(self._site.live))
        elif program is not None:
            words = program.sentence
        end_s = workspace.start_s + workspace.duration_s
        if not words:
            cause, words = Cause.SLOTS, self._too_large(workspace)
            if not words:
                cause, words = Cause.POOL, self._too_much_for_pools(workspace)
            refusal = Refusal(cause=cause, start_s=workspace.start_s, end_s=end_s, message=words)
            return Rejected(refusal=refusal) if words else None
        return Rejected(
            refusal=Refusal(cause=Cause.POLICY, start_s=workspace.start_s, end_s=end_s, message=words)
        )

    def _too_large(self, workspace: Workspace) -> str:
        """Why the site could not give this even if it were empty; nothing if it could."""
        timeline, wanted = self._site.book.timeline, parts(workspace.resources)
        unknown = timeline.layout.unknown(workspace.resources)
        if unknown:
            return texts.of_resource(unknown[0])
        huge = [name for name, amount in wanted.amounts if amount > LARGEST_AMOUNT]
        if huge:
            return texts.of_amount(wanted[huge[0]], huge[0])
        need = timeline.layout.pack(workspace.resources)
        room = sum(
            nodes.bit_count()
            for capacity, nodes in timeline.by_capacity.items()
            if timeline.layout.most(need, capacity, 1)
        )
        if room >= workspace.instances:
            return ""
        return texts.of_nodes(workspace.instances, wanted, room)

    def _too_much_for_pools(self, workspace: Workspace) -> str:
        """Why its image could not be on so many nodes even if nothing else were there."""
        image = workspace.image
        if image is None:
            return ""
        large = self._site.book.pools.count_of_size(image.size_bytes)
        if large >= workspace.instances:
            return ""
        return texts.of_pools(image, large, workspace.instances)

    def _allowed(self, wish: Wish, admission: Accepted | Rejected, policy: Policy) -> Accepted | Rejected:
        """The earliest start that a refusal names is one that the policies allow, too."""
        if isinstance(admission, Accepted) or admission.earliest_start_s is None:
            return admission
        site, first_s = self._site, admission.earliest_start_s
        workspace = replace(wish.workspace, start_s=first_s, finish_by_s=None)
        if not policy(workspace, site.now_s):
            return admission
        ends = sorted({live.reservation.end_s for live in site.live.values()})
        for from_s in [end_s for end_s in ends if end_s > first_s][:MOST_ENDS_TRIED]:
            start_s = earliest_start(site.book, workspace, from_s, site.now_s)
            if start_s is None:
                break
            if not policy(replace(workspace, start_s=start_s), site.now_s):
                return replace(admission, earliest_start_s=start_s)
        return replace(admission, earliest_start_s=None)

    def _policy(self, wish: Wish, *, without: Live | None = None) -> Policy:
        return core_policy(
            self.policies,
            wish.requester,
            lambda from_s, until_s: standing_of(
                self._site, self.policies, wish.caller.uid, wish.account, from_s, until_s, without=without
            ),
        )

    def _enter(self, wish: Wish, plan: ReservationPlan) -> None:
        """An accepted reservation, with all that follows from it."""
        site = self._site
        kept = keep_reservation(site.book, wish.workspace.name)
        owner = ReservationOwner(uid=wish.caller.uid, user=wish.caller.user, account=wish.account)
        record = Record(saved_bytes=self._saved_bytes(wish.document.image, plan))
        live = site.accept(kept, owner, wish.document, record)
        self._touch(plan)
        self.confirm(live)

    def _touch(self, plan: ReservationPlan) -> None:
        site = self._site
        numbers = {transfer.number for transfer in plan.transfers}
        numbers.update(number for number, _ in plan.pushed)
        numbers.update(life.transfer for _, life in plan.joined if life.transfer is not None)
        site.touch(numbers)

    def _saved_bytes(self, image: Image, plan: ReservationPlan) -> int:
        return plan.saved_transfers * image.size_bytes

    def _decision(self, wish: Wish, admission: Accepted | Rejected) -> Decision:
        return replies.decision(self._site, wish.document, wish.workspace, admission, wish.zone)

    def _extend(self, live: Live, wish: Wish, request: Modify) -> Answer:
        """Another end for a reservation that has begun."""
        site, before = self._site, live.reservation
        end_s = before.start_s + wish.workspace.duration_s
        is_other = request.nodes not in (None, before.workspace.instances) or request.start_s is not None
        if is_other or request.duration_s is None:
            words = f"reservation {live.name} has begun: only its duration can be changed"
            return Trouble(code="conflict", message=words)
        if end_s <= site.now_s:
            words = f"reservation {live.name} would be over already: cancel it instead"
            return Trouble(code="conflict", message=words)
        refusal: Refusal | None = None
        words = self._policy(wish, without=live)(wish.workspace, site.now_s)
        if words:
            refusal = Refusal(cause=Cause.POLICY, start_s=before.start_s, end_s=end_s, message=words)
        else:
            refusal = change_end(site.book, live.name, end_s, site.now_s, is_plan=request.is_plan)
        if refusal is not None:
            decision = self._decision(wish, Rejected(refusal=refusal))
            return replace(decision, name=live.name)
        decision = replies.extended(self._site, live, end_s)
        if not request.is_plan:
            site.change(live, kept=keep_reservation(site.book, live.name), why="changed by its user")
            site.note("modify", live.name, decision.result, decision.reason, uid=wish.caller.uid)
            self.confirm(live)
        return decision


def after_move(live: Live, *, is_ready: bool, now_s: int) -> tuple[State, int | None]:
    """The state of a reservation with other nodes, and since when its image is on all of them."""
    if is_ready:
        return State.READY, now_s if live.kept.ready_s is None else live.kept.ready_s
    before = live.record.state
    changed = {State.READY: State.PREPARING, State.ENDANGERED: State.ACCEPTED}
    return changed.get(before, before), None
