"""Open reservations live: they wait for an event with nodes and image ready, and begin when it comes.

From its first instant on such a reservation has its nodes in the book until the last one at which it could
end. In the batch system it begins a little later than now as long as its event is waited for, and is moved on
before that time comes. So the batch system itself starts nothing on its nodes that would not have ended
within the time that was promised, and jobs of the owner's that are bound to it wait. When the event comes
it begins as soon as its nodes are clear.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import replace

from outrider.core.reservations.renegotiation import begin_waiting
from outrider.core.restart.snapshot import keep_reservation
from outrider.metadata.notation.events import CALL
from outrider.rms.base import Sight
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.reservation_effects import reserve_effect
from outrider.service.desk.leases.event_sources import EventSources
from outrider.service.desk.leases.signing import mac_of, text_of
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.reservations.lifecycle import ReservationLifecycle
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.open_terms import LEAST_WITHIN_S, OpenTerms
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.meter import Log
from outrider.service.ports import AskEvent, EventAnswer, Result
from outrider.service.requests import Caller, SignedCall

MOST_SKEW_S = 300
"""How far a signed call's time may be from the service's."""

BusyUntil = Callable[[Iterable[str]], int]
"""Until when jobs that have to end by themselves have any of these nodes; 0 if there are none."""


class OpenReservations:
    """Waits for events, and begins and ends what waits for them."""

    def __init__(
        self,
        site: Site,
        agenda: Agenda,
        admission: ReservationAdmission,
        execution: PlanExecution,
        lifecycle: ReservationLifecycle,
        preemptible: PreemptibleJobs,
        busy_until: BusyUntil,
        log: Log,
    ) -> None:
        self._site = site
        self._agenda = agenda
        self._admission = admission
        self._execution = execution
        self._lifecycle = lifecycle
        self._preemptible = preemptible
        self._busy_until = busy_until
        self._log = log
        self.sources = EventSources(site, agenda)

    def take_up(self) -> None:
        """After the state has been loaded."""
        for live in self._site.live.values():
            self.arrange(live)

    def arrange(self, live: Live) -> None:
        """Look at a reservation from now on, if there is anything to wait for."""
        if live.document.open is not None:
            self.sources.watch(live)
            self._agenda.add(self._site.now_s, Topic.OPEN, live.name)

    def fault(self, wish: Wish) -> str:
        """Why nobody here could promise such an open reservation."""
        terms = wish.document.open
        if terms is None:
            return ""
        if terms.within_s < LEAST_WITHIN_S:
            return (
                f"ready_within is {terms.within_s} s, and what may run on its nodes meanwhile cannot always "
                f"be gone sooner than {LEAST_WITHIN_S} s after its event: allow that much"
            )
        return self.sources.fault(terms, wish.caller)

    def turn(self, name: str) -> None:
        """See what has happened that a reservation waits for."""
        live = self._site.live.get(name)
        if live is None or live.document.open is None:
            return
        terms, now_s = live.document.open, self._site.now_s
        if live.waits:
            if now_s > terms.until_s:
                self._lifecycle.close_window(live)
                return
            if now_s >= terms.from_s:
                found = self.sources.seen(live, terms.begins)
                if found:
                    self.trigger(live, found)
            if live.waits:
                self._move_on(live, terms)
                self._agenda.add(self._next_s(live, terms), Topic.OPEN, name)
        elif terms.ends:
            found = self.sources.seen(live, terms.ends)
            if found:
                self._lifecycle.end_early(live, found)
            else:
                self._agenda.add(self.sources.next_s(terms.ends), Topic.OPEN, name)

    def seen(self, sight: Sight) -> None:
        """The batch system has been looked at: jobs that are waited for may have ended."""
        for name in self.sources.look(sight):
            self.turn(name)

    def heard(self, call: AskEvent, result: Result) -> None:
        """Somebody has looked whether an event has come."""
        live = self._site.live.get(call.reservation)
        answer = result if isinstance(result, EventAnswer) else EventAnswer(words=str(result))
        if live is None:
            return
        if self.sources.heard(live, call, answer):
            self.turn(live.name)

    def trigger(self, live: Live, why: str, uid: int = 0) -> Trouble | None:
        """The event has come: it begins as soon as its nodes are clear. Told why not, if not."""
        site, terms = self._site, live.document.open
        trouble = self._cannot_begin(live)
        if trouble is not None:
            return trouble
        assert terms is not None
        now_s = site.now_s
        start_s = min(max(now_s, self._clear_s(live)), now_s + terms.within_s)
        begin_waiting(site.book, live.name, start_s, start_s + terms.duration_s, now_s)
        receipt = replace(live.kept, triggered_s=now_s, event=why)
        words = f"its event has come ({why}): it starts {start_s - now_s} s after it"
        site.change(live, kept=keep_reservation(site.book, live.name), why=words, receipt=receipt)
        site.note("trigger", live.name, "begins", words, uid=uid)
        self._log.info("event has come", reservation=live.name, words=why, after_s=start_s - now_s)
        self._admission.confirm(live)
        self._execution.arrange(live)
        self.arrange(live)
        return None

    def told(self, live: Live, caller: Caller, *, is_end: bool) -> Trouble | None:
        """Its user says that the event has come, or the one that ends it."""
        why = f"{caller.user} said so"
        if not is_end:
            return self.trigger(live, why, caller.uid)
        if live.document.open is None or live.waits:
            words = f"reservation {live.name} has not begun by an event: cancel it to give it up"
            return Trouble(code="conflict", message=words)
        self._lifecycle.end_early(live, why)
        return None

    def called(self, live: Live, call: SignedCall) -> Trouble | None:
        """A signed call has come."""
        terms = live.document.open
        refused = Trouble(
            code="not-allowed", message=f"the call for {live.name} is not signed as it has to be"
        )
        if terms is None or not terms.secret:
            return refused
        mac = mac_of(terms.secret, text_of(live.name, call.what, call.at_s))
        if not hmac.compare_digest(mac, call.signature):
            return refused
        if abs(call.at_s - self._site.now_s) > MOST_SKEW_S:
            words = f"the call for {live.name} is more than {MOST_SKEW_S} s old or ahead: sign it again"
            return Trouble(code="not-allowed", message=words)
        wanted = terms.begins if call.what == "begin" else terms.ends
        if not any(each.kind == CALL for each in wanted):
            words = f"reservation {live.name} does not {call.what} by a call"
            return Trouble(code="conflict", message=words)
        if call.what == "begin":
            # One that has begun does not wait any more, so that a call that is sent again is refused.
            return self.trigger(live, "a signed call")
        if live.waits:
            return Trouble(code="conflict", message=f"reservation {live.name} has not begun")
        self._lifecycle.end_early(live, "a signed call")
        return None

    def _cannot_begin(self, live: Live) -> Trouble | None:
        terms, now_s = live.document.open, self._site.now_s
        words = ""
        if terms is None:
            words = f"reservation {live.name} waits for no event: it starts at its time"
        elif not live.waits:
            words = f"reservation {live.name} has begun: its event came, {live.kept.event or 'or it is over'}"
        elif now_s < terms.from_s:
            words = (
                f"reservation {live.name} is ready for its event from {terms.from_s - now_s} s from now on"
            )
        elif now_s > terms.until_s:
            words = f"the window of reservation {live.name} is over"
        elif live.name not in self._site.book.entries:
            words = f"reservation {live.name} has lost its nodes: {live.danger or live.record.why}"
        return Trouble(code="conflict", message=words) if words else None

    def _clear_s(self, live: Live) -> int:
        """When its nodes are clear if jobs are told now."""
        now_s = self._site.now_s
        jobs = {job.key: job for node in live.nodes for job in self._preemptible.on.get(node, {}).values()}
        gone_s = [job.run.held_until_s(now_s) for job in jobs.values()]
        return max([*gone_s, self._busy_until(live.nodes)])

    def _move_on(self, live: Live, terms: OpenTerms) -> None:
        """Let it begin later in the batch system, as nothing has happened yet."""
        site = self._site
        if site.now_s < self._move_s(live, terms) or site.store.waiting_effects(live.name):
            return
        live.batch_start_s = site.now_s + terms.lead_s(site.settings)
        site.todo([reserve_effect(live, site.now_s, live.batch_start_s)])

    def _move_s(self, live: Live, terms: OpenTerms) -> int:
        settings = self._site.settings
        begins_s = max(live.batch_start_s, terms.from_s)
        return begins_s - terms.lead_s(settings) + terms.move_every_s(settings)

    def _next_s(self, live: Live, terms: OpenTerms) -> int:
        now_s = self._site.now_s
        next_s = [max(self._move_s(live, terms), now_s + 1), terms.until_s + 1]
        next_s.append(terms.from_s if now_s < terms.from_s else self.sources.next_s(terms.begins))
        return min(next_s)
