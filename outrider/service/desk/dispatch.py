"""Requests answered: who may ask what, what was answered before, and who decides about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from outrider.core.reservations.admission import Rejected
from outrider.metadata.conversion import deployment_of
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.hostlists import expand
from outrider.metadata.policies import Policies
from outrider.service.answers.decision import Decision
from outrider.service.answers.events import EventTaken
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reply import Answer, Replied, Trouble
from outrider.service.answers.reservations import ReservationList
from outrider.service.answers.transfers import TransferList
from outrider.service.desk.batch.effect_queue import NOT_SEEN
from outrider.service.desk.components import DeskComponents
from outrider.service.desk.jobs.interruption import machine_orders
from outrider.service.desk.leases.early_starts import renewed_from, without
from outrider.service.desk.leases.negotiation import UNSEARCHED
from outrider.service.desk.leases.offer_searches import OfferSearch, Slices
from outrider.service.desk.leases.options import ChosenWay, chosen_way, with_starts
from outrider.service.desk.leases.pieces import PiecesAdmission
from outrider.service.desk.leases.roles import RolesAdmission
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, no_doubts
from outrider.service.desk.reservations.decision import all_slots
from outrider.service.desk.state.node_list import ListedNode
from outrider.service.desk.state.permissions import may_read
from outrider.service.desk.state.recorded_answers import read_decision, write_decision
from outrider.service.desk.state.site import Live
from outrider.service.desk.state.wishes import Wish, changed_wish, wish_of
from outrider.service.desk.views.overview import OverviewViews
from outrider.service.meter import Log, Meter
from outrider.service.ports import AskProgram
from outrider.service.requests import (
    Accept,
    Asked,
    AskStart,
    Caller,
    Cancel,
    Explain,
    ListDecisions,
    ListImages,
    ListJobs,
    ListLeases,
    ListNodes,
    ListReservations,
    ListTransfers,
    MachineRequest,
    Modify,
    Recall,
    Request,
    Reserve,
    Show,
    ShowJob,
    ShowLease,
    ShowOverview,
    ShowReport,
    ShowSwitch,
    ShowTimeline,
    SignedCall,
    Trigger,
)
from outrider.store.errors import Conflict
from outrider.store.records import RecordedAnswer as StoredAnswer
from outrider.store.records import ReservationRecord

Deciding = Accept | Reserve | Modify
DECIDED = (Accept, Reserve, Modify)
"""The requests that may be refused, and are answered with a decision."""


class RequestDispatch:
    """Answers requests about one site. A StoreError is the desk's to deal with."""

    def __init__(self, parts: DeskComponents, log: Log, meter: Meter, decided: dict[str, int]) -> None:
        self._parts = parts
        self.site = parts.site
        self._overview = OverviewViews(parts.site, parts.views, parts.jobs)
        self._log = log
        self._meter = meter
        self._decided = decided
        self.unwritten: dict[tuple[int, str], StoredAnswer] = {}
        """Answers of the event that is being dealt with, by user and key: the store has them at its end."""

    def look_up(self, request: Request, caller: Caller, node_list: Mapping[str, ListedNode]) -> Answer:
        """Answer whoever only looks."""
        views, site_views = self._parts.views, self._parts.site_views
        if isinstance(request, Show):
            found = views.find(request.name, caller)
            return found if isinstance(found, Trouble) else views.details(found, caller)
        if isinstance(request, ListReservations):
            return views.reservations(request, caller)
        if isinstance(request, ListImages):
            return self._parts.image_views.images(request, caller)
        if isinstance(request, ListNodes):
            states = {name: each.state.value for name, each in node_list.items()}
            return site_views.nodes(request, states)
        if isinstance(request, ListTransfers):
            return self._transfers(request, caller)
        if isinstance(request, ShowTimeline):
            return site_views.timeline(request)
        if isinstance(request, ShowOverview):
            return self._overview.overview()
        if isinstance(request, ListLeases):
            return self._parts.lease_views.leases(request, caller)
        if isinstance(request, ShowLease):
            return self._parts.lease_views.details(request.name, caller)
        if isinstance(request, ShowReport):
            return self._parts.report_views.report(request, caller)
        if isinstance(request, Recall):
            return self.recall(request, caller)
        if isinstance(request, ListJobs):
            return self._parts.job_views.jobs(request, caller)
        if isinstance(request, ShowJob):
            return self._parts.job_views.details(request, caller)
        if isinstance(request, AskStart):
            return self._parts.jobs.release.may_start(request, caller)
        if isinstance(request, ShowSwitch):
            return self._parts.switches.show()
        if isinstance(request, Explain):
            return views.explanation(request.name, caller)
        assert isinstance(request, ListDecisions)
        return views.decisions(request, caller)

    def decide(
        self,
        asked: Asked,
        policies: Policies,
        troubles: tuple[str, ...],
        program: PolicyRefusal | None,
        *,
        is_judged: bool,
        is_sure: bool = False,
    ) -> Answer | AskProgram | Doubtful | OfferSearch:
        """Reserve, plan or modify; or first the site's own program is to be asked, or its nodes."""
        request, caller = asked.request, asked.caller
        assert isinstance(request, DECIDED)
        known = self._recalled(caller, request)
        if known is not None:
            return known
        if troubles:
            # The first look after a start is under way: whoever asks again in a moment is answered.
            code = "busy" if troubles == (NOT_SEEN,) else "unavailable"
            return Trouble(code=code, message=f"nothing is promised now: {'; '.join(troubles)}")
        if isinstance(request, Accept):
            offered = self._parts.negotiation.offered(request, caller)
            if isinstance(offered, Trouble):
                return offered
            request = offered
        self._parts.reconciler.about_to_promise()
        live: Live | None = None
        way: ChosenWay | None = None
        if isinstance(request, Modify):
            found = self._owned(request.name, caller)
            if isinstance(found, Trouble):
                return found
            live = found
            wish = changed_wish(self.site, live, request, caller)
        elif deployment_of(request.workspace).options:
            chosen = chosen_way(self.site, self._parts.admission, caller, request, program)
            if isinstance(chosen, Trouble):
                return chosen
            way, request, wish = chosen, chosen.request, chosen.wish
        else:
            wish = wish_of(self.site, policies, caller, request)
        if isinstance(wish, Trouble):
            return wish
        if wish.document.open is not None and (words := self._parts.opening.fault(wish)):
            return Trouble(code="invalid", message=words)
        if policies.external is not None and not is_judged:
            return AskProgram(
                external=policies.external,
                workspace=wish.workspace,
                who=wish.requester,
                ticket=asked.ticket,
                uid=caller.uid,
            )
        if isinstance(request, Reserve):
            judged = self._judged(request, wish, program, is_sure=is_sure)
            if not isinstance(judged, Judged):
                return judged
            decision = judged.decision if way is None else replace(judged.decision, options=way.views)
            if not request.is_plan:
                self._remember(caller, request, decision)
            judged = replace(judged, decision=decision)
            if way is not None and way.refused:
                return self._options_searched(way, judged, program)
            return self._searched(request, wish, judged, program)
        assert live is not None
        return self._changed(live, wish, request, caller, program, is_sure=is_sure)

    def _changed(
        self,
        live: Live,
        wish: Wish,
        request: Modify,
        caller: Caller,
        program: PolicyRefusal | None,
        *,
        is_sure: bool,
    ) -> Answer | Doubtful | OfferSearch:
        """What became of a change; if it is refused, it is looked for when it could begin."""
        changed = self._modify(live, wish, request, program, is_sure=is_sure)
        if not isinstance(changed, Judged):
            return changed
        self._remember(caller, request, changed.decision)
        if changed.rejected is None:
            return changed.decision
        slices = self._change_slices(wish, changed.decision, changed.rejected)
        if request.key and not request.is_plan:
            slices = self._remembered(request, caller, slices)
        return OfferSearch(decision=_unsearched(changed.decision), slices=slices)

    def _searched(
        self, request: Reserve, wish: Wish, judged: Judged, program: PolicyRefusal | None
    ) -> Decision | OfferSearch:
        """What was decided; of a refusal, it is looked for what would be accepted instead."""
        negotiation, decision = self._parts.negotiation, judged.decision
        if judged.rejected is None:
            if not request.is_plan:
                negotiation.drop_offers(wish.caller)
            return decision
        # What the site's own program would say of other terms is not known.
        search = None if program else negotiation.search(request, wish, decision, judged.rejected)
        if search is None or not request.key or request.is_plan:
            return search or decision
        return replace(search, slices=self._remembered(request, wish.caller, search.slices))

    def _options_searched(self, way: ChosenWay, judged: Judged, program: PolicyRefusal | None) -> OfferSearch:
        """What was decided; of each option that is refused, it is looked for when it could start."""
        request, slices = way.request, self._option_slices(way, judged, program)
        if request.key and not request.is_plan:
            slices = self._remembered(request, way.wish.caller, slices)
        return OfferSearch(decision=_unsearched(judged.decision), slices=slices)

    def _option_slices(self, way: ChosenWay, judged: Judged, program: PolicyRefusal | None) -> Slices:
        parts = self._parts
        slices = with_starts(self.site, parts.admission, way)
        # Beside itself it could not start again.
        views, first = yield from without(self.site, judged.decision.name, slices)
        if judged.rejected is None or first is None or any(each.result == "chosen" for each in views):
            if judged.rejected is None and not way.request.is_plan:
                parts.negotiation.drop_offers(way.wish.caller)
            return replace(judged.decision, options=views)
        decision = replace(parts.admission.decision(first.wish, first.rejected), name="", options=views)
        refused = Judged(decision=decision, rejected=first.rejected)
        answer = self._searched(replace(first.request, key=""), first.wish, refused, program)
        if isinstance(answer, Decision):
            return answer
        return (yield from answer.slices)

    def _remembered(self, request: Reserve | Modify, caller: Caller, slices: Slices) -> Slices:
        """Whoever asks the same again is told the offers, too, once they are found."""
        decision = yield from slices
        changed = self._stored(request, caller, decision)
        self.site.write(lambda promise: promise.change_answer(changed))
        return decision

    def change(
        self, request: Cancel | Trigger | SignedCall | MachineRequest, caller: Caller, store_trouble: str
    ) -> Answer:
        """What nothing has to be planned for: what somebody says that a reservation or a machine is to do."""
        if isinstance(request, MachineRequest):
            return self._suspension(request, caller, store_trouble)
        views = self._parts.views
        if isinstance(request, SignedCall):
            return self._called(request, caller, store_trouble)
        if isinstance(request, Cancel) and not store_trouble:
            series = views.series(request.name)
            if series:
                return self._cancel_series(series, caller)
        found = views.find(request.name, caller)
        if isinstance(found, Trouble):
            return found
        if isinstance(request, Trigger):
            return self._trigger(found, request, caller, store_trouble)
        return self._cancel(found, caller, store_trouble)

    def _trigger(
        self, found: Live | ReservationRecord, request: Trigger, caller: Caller, store_trouble: str
    ) -> Answer:
        """The event has come, as its user says; or the one that ends it."""
        record = found.record if isinstance(found, Live) else found
        views, opening = self._parts.views, self._parts.opening
        if not may_read(record, caller):
            return _not_yours(record.name)
        if store_trouble:
            return Trouble(code="unavailable", message=store_trouble)
        if not isinstance(found, Live):
            words = f"reservation {record.name} is over: it is {record.state.value}"
            return Trouble(code="conflict", message=words)
        trouble = opening.told(found, caller, is_end=request.is_end)
        return trouble or views.details(found.record if found.record.state.is_final else found, caller)

    def _called(self, request: SignedCall, caller: Caller, store_trouble: str) -> Answer:
        """A signed call. Whoever makes it learns nothing of the reservation but whether it was taken."""
        if store_trouble:
            return Trouble(code="unavailable", message=store_trouble)
        live = self.site.live.get(request.name)
        if live is None:
            return Trouble(
                code="not-allowed", message=f"the call for {request.name} is not signed as it has to be"
            )
        return self._parts.opening.called(live, request) or EventTaken(name=live.name, what=request.what)

    def _cancel(self, found: Live | ReservationRecord, caller: Caller, store_trouble: str) -> Answer:
        """Cancel a reservation; one that is over stays as it is."""
        views = self._parts.views
        if not isinstance(found, Live):
            return views.details(found, caller) if may_read(found, caller) else _not_yours(found.name)
        if not may_read(found.record, caller):
            return _not_yours(found.name)
        if store_trouble:
            return Trouble(code="unavailable", message=store_trouble)
        self._parts.lifecycle.cancel(found, caller, _canceller(found, caller))
        return views.details(found.record, caller)

    def _cancel_series(self, series: list[Live], caller: Caller) -> Answer:
        """All occurrences that are not over."""
        if not may_read(series[0].record, caller):
            return _not_yours(series[0].document.series)
        for live in series:
            self._parts.lifecycle.cancel(live, caller, _canceller(live, caller))
        views = tuple(self._parts.views.past(live.record, caller) for live in series)
        return ReservationList(reservations=views, next_after=None)

    def _suspension(self, request: MachineRequest, caller: Caller, store_trouble: str) -> Answer:
        """Suspend a job's machine, or let it go on; how the job stands."""
        if store_trouble:
            return Trouble(code="unavailable", message=store_trouble)
        parts = self._parts
        done = machine_orders.order(self.site, parts.orders, parts.jobs.entries, request, caller)
        if isinstance(done, Trouble):
            return done
        details = self._parts.job_views.details(ShowJob(job=request.job), caller)
        return replace(details, moves=done) if isinstance(details, JobDetails) else details

    def switch(self, asked: Asked, store_trouble: str) -> list[Replied]:
        """Have a switch planned: it is answered when the plan has been made, or now if there will be none."""
        trouble = Trouble(code="unavailable", message=store_trouble) if store_trouble else None
        trouble = trouble or self._parts.switches.decide(asked)
        return [] if trouble is None else [Replied(ticket=asked.ticket, answer=trouble)]

    def _doubts(self, *, is_sure: bool) -> Doubts:
        """Who is asked before anything is promised; nobody if that has taken long enough: from then on nodes
        that have never spoken are promised to nobody."""
        if not is_sure:
            return self._parts.doubts
        self._parts.reconciler.doubt_unheard()
        return no_doubts

    def _judged(
        self, request: Reserve, wish: Wish, program: PolicyRefusal | None, *, is_sure: bool
    ) -> Judged | Doubtful | Trouble:
        parts, doubts = self._parts, self._doubts(is_sure=is_sure)
        judged: Judged | Doubtful | Trouble
        if request.role_images:
            judged = RolesAdmission(self.site, parts.admission).decide(request, wish, program, doubts)
        elif request.starts:
            judged = parts.recurring.decide(request, wish, program, doubts)
        elif deployment_of(request.workspace).least_piece_s is not None:
            judged = PiecesAdmission(self.site, parts.admission).decide(request, wish, program, doubts)
        elif request.is_plan:
            return parts.admission.plan(wish, program)
        else:
            judged = parts.admission.reserve(wish, program, doubts)
        if not isinstance(judged, Judged) or judged.decision.result != "accepted" or request.is_plan:
            return judged
        decision = judged.decision
        names = [each.name for each in decision.occurrences if each.name] or [decision.name]
        parts.make_way(decision.name)
        for name in names:
            # Its image may be there or on its way already; and its beginning and end are to come.
            parts.execution.arrange(parts.site.live[name])
            if parts.site.live[name].waits:
                parts.opening.arrange(parts.site.live[name])
        return judged

    def _change_slices(self, wish: Wish, decision: Decision, rejected: Rejected) -> Slices:
        """When a change that is refused could begin."""
        told = yield from renewed_from(self.site, wish, rejected)
        anew = self._parts.admission.decision(wish, told)
        return replace(decision, earliest_start_s=anew.earliest_start_s, remedies=anew.remedies)

    def _modify(
        self, live: Live, wish: Wish, request: Modify, program: PolicyRefusal | None, *, is_sure: bool
    ) -> Judged | Doubtful | Trouble:
        parts, before = self._parts, set(live.nodes)
        judged = parts.changes.modify(live, wish, request, program, self._doubts(is_sure=is_sure))
        is_changed = isinstance(judged, Judged) and judged.decision.result == "accepted"
        if not request.is_plan and is_changed:
            parts.execution.release(live, tuple(sorted(before - set(live.nodes))))
            parts.execution.prune()
            parts.execution.arrange(live)
        return judged

    def _transfers(self, request: ListTransfers, caller: Caller) -> TransferList:
        """Those with deadlines come first, as on the link."""
        found = self._parts.site_views.transfers(request, caller)
        free = request.most - len(found.transfers)
        others = self._parts.transfer_views.transfers(caller, free)
        is_complete = found.is_complete and self._parts.transfer_views.count() <= free
        return TransferList(transfers=(*found.transfers, *others), is_complete=is_complete)

    def _owned(self, name: str, caller: Caller) -> Live | Trouble:
        found = self._parts.views.find(name, caller)
        if isinstance(found, Trouble):
            return found
        record = found.record if isinstance(found, Live) else found
        if not may_read(record, caller):
            return _not_yours(record.name)
        if not isinstance(found, Live):
            words = f"reservation {record.name} is over: it is {record.state.value}"
            return Trouble(code="conflict", message=words)
        return found

    def recall(self, request: Recall, caller: Caller) -> Answer:
        """What a request was answered before."""
        nothing = Trouble(code="not-found", message=f"nothing was answered under key {request.key}")
        return self._recalled(caller, request) or nothing

    def _recalled(self, caller: Caller, request: Deciding | Recall) -> Answer | None:
        """What this very request was answered before."""
        if not request.key:
            return None
        unwritten = self.unwritten.get((caller.uid, request.key))
        if unwritten is not None and unwritten.request_hash == request.request_hash:
            return self._told_again(unwritten.text)
        try:
            found = self._parts.site.store.answered(caller.uid, request.key, request.request_hash)
        except Conflict as conflict:
            return Trouble(code="conflict", message=str(conflict))
        return None if found is None else self._told_again(found.text)

    def _told_again(self, text: str) -> Decision:
        decision = read_decision(text)
        nodes = expand(decision.nodes) if decision.result == "accepted" and decision.nodes else ()
        live = self._parts.site.live.get(decision.name)
        resources = None if live is None else live.reservation.workspace.resources
        return replace(decision, **all_slots(self._parts.site, nodes, resources))

    def _remember(self, caller: Caller, request: Reserve | Modify, decision: Decision) -> None:
        site = self._parts.site
        is_only_counted = (
            decision.result != "accepted" and not caller.is_admin and site.refusals.is_full(caller.uid)
        )
        if isinstance(request, Reserve):
            self._decided[decision.result] = self._decided.get(decision.result, 0) + 1
            self._meter.count("outrider_decisions_total", decision.result, decision.cause or "-")
            if decision.result == "accepted":
                self._meter.count("outrider_saved_bytes_total", by=decision.saved_bytes)
            say = self._log.debug if is_only_counted else self._log.info
            say(
                "reservation decided",
                result=decision.result,
                reservation=decision.name or decision.workspace,
                user=caller.user,
                nodes=decision.nodes,
                image=decision.image.uri,
                cause=decision.cause or None,
            )
        if not request.key or is_only_counted or request.is_plan:
            # What is refused and not remembered is decided anew when it is asked again.
            return
        answer = self._stored(request, caller, decision)
        self.unwritten[caller.uid, request.key] = answer
        site.write(lambda promise: promise.answer(answer))

    def _stored(self, request: Reserve | Modify, caller: Caller, decision: Decision) -> StoredAnswer:
        return StoredAnswer(
            uid=caller.uid,
            key=request.key,
            request_hash=request.request_hash,
            text=write_decision(decision),
            at_s=self.site.now_s,
        )


def _unsearched(decision: Decision) -> Decision:
    """What is answered if a search is not made."""
    if decision.result == "accepted":
        return decision
    return replace(decision, notes=(*decision.notes, UNSEARCHED))


def _canceller(live: Live, caller: Caller) -> str:
    is_own = caller.uid == live.record.owner.uid
    return "cancelled by its user" if is_own else f"cancelled by {caller.user}"


def _not_yours(name: str) -> Trouble:
    return Trouble(code="not-allowed", message=f"reservation {name} is somebody else's")
