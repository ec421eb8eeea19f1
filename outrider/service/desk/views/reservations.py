"""What can be looked at of reservations. Nothing changes by looking.

What was decided about a reservation, and its image if that is private, is for its owner and for
administrators; the rest is for everybody.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.records import DecisionList, Explanation
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import (
    Receipt,
    ReservationDetails,
    ReservationList,
    ReservationView,
)
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.reservations.decision import all_slots, image_view, window_of
from outrider.service.desk.state.documents import Document, read_document, read_record, stem_of
from outrider.service.desk.state.permissions import is_request, may_read, may_see
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.views.decisions import decision_lines
from outrider.service.desk.views.progress import Progress
from outrider.service.requests import (
    Caller,
    ListDecisions,
    ListReservations,
)
from outrider.store.records import ReservationRecord
from outrider.store.states import State

MOST_NAMED = 10
"""So many reservations are named that somebody could have meant."""


class ReservationViews:
    """Answers to whoever only looks."""

    def __init__(self, site: Site, node_orders: NodeOrders) -> None:
        self._site = site
        self._progress = Progress(site, node_orders)

    def find(self, name: str, caller: Caller) -> Live | ReservationRecord | Trouble:
        """The reservation that somebody means: by its name, or by its workspace's if that is enough."""
        site = self._site
        live = site.live.get(name)
        if live is not None:
            return live
        own = [
            each
            for each in (site.live.values() if caller.is_admin else site.owned(caller.uid))
            if each.document.workspace == name
        ]
        if len(own) == 1:
            return own[0]
        if own:
            return _ambiguous(name, [each.name for each in own])
        if series := self.series(name):
            return _ambiguous(name, [each.name for each in series])
        past = site.store.reservation(name)
        if past is not None:
            return past
        uid = None if caller.is_admin else caller.uid
        ended = site.store.past_of_stem(stem_of(name), uid, most=MOST_NAMED + 1)
        if len(ended) == 1:
            return ended[0]
        if ended:
            return _ambiguous(name, [each.name for each in ended])
        return Trouble(
            code="not-found",
            message=f"there is no reservation {name[:80]}: see outrider list, or list --past",
        )

    def series(self, name: str) -> list[Live]:
        """The occurrences of that series which are not over, in their order."""
        if not self._site.has_series or name in self._site.live:
            return []
        found = [live for live in self._site.live.values() if live.document.series == name]
        return sorted(found, key=lambda live: live.document.occurrence)

    def reservations(self, request: ListReservations, caller: Caller) -> ReservationList:
        if request.is_past:
            before = request.after if request.after is not None else (1 << 62)
            found = self._site.store.past_reservations(before=before, most=request.most)
            views = tuple(self.past(record, caller) for record in found if _matches(record, request))
            more = found[-1].number if len(found) == request.most else None
            return ReservationList(reservations=views, next_after=more)
        after = request.after or 0
        chosen: list[ReservationView] = []
        # They are kept in the order of their numbers.
        for live in self._site.live.values():
            if live.record.number > after and _matches(live.record, request):
                if len(chosen) == request.most:
                    return ReservationList(reservations=tuple(chosen), next_after=chosen[-1].number)
                chosen.append(self.reservation(live, caller))
        return ReservationList(reservations=tuple(chosen), next_after=None)

    def expected_s(self, live: Live) -> int | None:
        """When its image is expected on all of its nodes."""
        return self._progress.expected_s(live)

    def reservation(self, live: Live, caller: Caller) -> ReservationView:
        record = live.record
        ready_s = live.kept.ready_s
        if ready_s is None and not record.state.is_final:
            ready_s = self._progress.expected_s(live)
        view = _view(record, live.document, caller, ready_s=ready_s, is_confirmed=live.is_confirmed)
        if view.why and record.state is State.ENDANGERED and live.danger:
            # As it is now: what was written down is how it began.
            view = replace(view, why=live.danger)
        return view

    def details(self, found: Live | ReservationRecord, caller: Caller) -> ReservationDetails:
        if isinstance(found, ReservationRecord):
            record, document = found, read_document(found.document)
            return ReservationDetails(
                reservation=self.past(found, caller),
                workspace=document.workspace,
                accepted_s=record.accepted_s,
                changed_s=record.changed_s,
                ended_s=record.ended_s,
                staging=(),
                transfers=(),
                odds_percent=None,
                receipt=receipt_of(record, document) if may_read(record, caller) else None,
            )
        return ReservationDetails(
            reservation=self.reservation(found, caller),
            workspace=found.document.workspace,
            accepted_s=found.record.accepted_s,
            changed_s=found.record.changed_s,
            ended_s=found.record.ended_s,
            staging=self._progress.staging(found, is_shown=may_read(found.record, caller)),
            transfers=self._progress.transfers_of(found),
            odds_percent=self._odds(found),
            receipt=None,
            price=found.kept.price if may_read(found.record, caller) else None,
            key=found.key,
            **all_slots(self._site, found.nodes, found.reservation.workspace.resources),
        )

    def _odds(self, live: Live) -> int | None:
        """Once its time has come there is nothing left to be guessed."""
        is_open = live.record.state is State.ENDANGERED and self._site.now_s < live.reservation.start_s
        return live.odds_percent if is_open else None

    def explanation(self, name: str, caller: Caller) -> Explanation | Trouble:
        site = self._site
        found = self.find(name, caller)
        if isinstance(found, Trouble) or (isinstance(found, ReservationRecord) and found.name != name):
            # Refusals are noted under the workspace's name.
            lines = [each for each in site.store.decisions(name, most=100) if may_see(each, caller, set())]
            if lines:
                words = [f"nothing is booked under {name}; what was answered last is below"]
                return Explanation(name=name, sentences=tuple(words), decisions=decision_lines(lines))
        if isinstance(found, Trouble):
            return found
        record = found if isinstance(found, ReservationRecord) else found.record
        if not may_read(record, caller):
            return Trouble(
                code="not-allowed", message=f"reservation {record.name} is {record.owner.user}'s: ask them"
            )
        sentences = (
            self._why(found)
            if isinstance(found, Live)
            else [f"it is over: {record.why or record.state.value}"]
        )
        lines = [
            each
            for each in site.store.decisions(record.name, most=100)
            if each.uid == record.owner.uid or not is_request(each)
        ]
        return Explanation(name=record.name, sentences=tuple(sentences), decisions=decision_lines(lines))

    def decisions(self, request: ListDecisions, caller: Caller) -> DecisionList:
        store = self._site.store
        found = store.decisions_since(request.after, most=request.most)
        own = {live.name for live in self._site.owned(caller.uid)}
        lines = [each for each in found if may_see(each, caller, own)]
        last = found[-1].number if found else request.after
        return DecisionList(decisions=decision_lines(lines), last=last)

    def counts(self) -> dict[str, int]:
        """How many reservations are in each state."""
        return {state.value: self._site.counts[state] for state in State if not state.is_final}

    def past(self, record: ReservationRecord, caller: Caller) -> ReservationView:
        document = read_document(record.document)
        ready_s = read_record(record.receipt).ready_s
        return _view(record, document, caller, ready_s=ready_s, is_confirmed=True)

    def _why(self, live: Live) -> list[str]:
        """Why it has these nodes, and why its image comes when it does."""
        size = live.document.size_bytes
        saved = live.kept.saved_bytes // size
        words = [f"it is {live.record.state.value}" + (f": {live.record.why}" if live.record.why else "")]
        if saved:
            words.append(
                f"on {saved} of its {len(live.nodes)} nodes the image was or will be anyway: "
                "nodes that have it come first"
            )
        else:
            words.append(
                "no free node has its image: nodes on which nothing is booked around that time come first"
            )
        for each in self._progress.transfers_of(live):
            words.append(
                f"transfer {each.number} to {each.nodes} takes {each.duration_s} s of the link and must "
                f"begin {max(0, each.latest_begin_s - self._site.now_s)} s from now at the latest"
            )
        if live.kept.moves:
            words.append(
                f"it was given another place for others {live.kept.moves} times: its deadline allows it"
            )
        if live.kept.yielded_to:
            words.append(f"it ends early, for reservation {live.kept.yielded_to}")
        if live.unseen:
            words.append(f"whether its event has come is not known: {live.unseen}")
        if live.danger:
            words.append(f"it is endangered: {live.danger}")
        if not live.is_confirmed:
            words.append("the batch system has not confirmed it yet")
        if self._site.share is not None:
            words.append(f"of reservations in general: {self._site.share.words()}")
        return words


def _ambiguous(name: str, candidates: list[str]) -> Trouble:
    more = " and others" if len(candidates) > MOST_NAMED else ""
    names = ", ".join(candidates[:MOST_NAMED])
    return Trouble(code="ambiguous", message=f"{name} could be {names}{more}: name one of them")


def receipt_of(record: ReservationRecord, document: Document) -> Receipt:
    kept = read_record(record.receipt)
    start_s = record.reservation.start_s
    return Receipt(
        is_met=bool(kept.is_met),
        digest=document.digest,
        ready_s=kept.ready_s,
        spare_s=None if kept.ready_s is None else start_s - kept.ready_s,
        transferred_bytes=document.size_bytes * len(kept.brought),
        saved_bytes=kept.saved_bytes,
        sources=kept.sources,
        words=kept.words,
        price=kept.price,
        charged=kept.charged,
    )


def _view(
    record: ReservationRecord, document: Document, caller: Caller, *, ready_s: int | None, is_confirmed: bool
) -> ReservationView:
    reservation = record.reservation
    is_shown = may_read(record, caller)
    return ReservationView(
        name=record.name,
        number=record.number,
        state=record.state.value,
        user=record.owner.user,
        account=record.owner.account,
        nodes=fold(reservation.nodes),
        node_count=len(reservation.nodes),
        start_s=reservation.start_s,
        end_s=reservation.end_s,
        image=image_view(document, is_shown=is_shown),
        ready_s=ready_s,
        is_confirmed=is_confirmed,
        why=record.why if is_shown else "",
        window=window_of(document, read_record(record.receipt)) if is_shown and document.open else None,
    )


def _matches(record: ReservationRecord, request: ListReservations) -> bool:
    return (request.user is None or record.owner.user == request.user) and (
        not request.states or record.state.value in request.states
    )
