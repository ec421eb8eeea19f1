"""A reservation's life from its start on: it begins, it ends, it is cancelled; and what it leaves.

Also what is to be done after the state has been loaded: a promise that cannot be kept as it was
is mended or reported, never dropped in silence.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

from outrider.core.reservations.admission import admit
from outrider.core.reservations.book import ReservationPlan
from outrider.core.restart.snapshot import keep_reservation
from outrider.metadata.notation.times import format_instant
from outrider.service.desk.batch.reservation_effects import RESERVE, unreserve_effect
from outrider.service.desk.nodes.watch import NodeWatch
from outrider.service.desk.reservations.admission import ReservationAdmission, after_move
from outrider.service.desk.reservations.alarms import ReservationAlarms, due_s
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.reservations.prices import charged, entry_of_end
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import REFUSED, Live, Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log, Meter
from outrider.service.requests import Caller
from outrider.store.records import Effect
from outrider.store.states import State

NOBODY_THERE = "its time came while the service was away, as between two heads that lead"


class ReservationLifecycle:
    """Begins and ends."""

    def __init__(
        self,
        site: Site,
        agenda: Agenda,
        admission: ReservationAdmission,
        execution: PlanExecution,
        alarms: ReservationAlarms,
        troubles: Troubles,
        watch: NodeWatch,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._watch = watch
        self._agenda = agenda
        self._admission = admission
        self._execution = execution
        self._alarms = alarms
        self._troubles = troubles
        self._log = log
        self._meter = meter

    def take_up(self) -> None:
        """After the state has been loaded."""
        site = self._site
        for lost in site.lost:
            live = site.live.get(lost.reservation.workspace.name)
            if live is not None:
                self._find_again(live, lost.message)
        self._execution.take_up()
        for name in site.late:
            live = site.live.get(name)
            if live is not None and not self._was_missed(live):
                self._alarms.endanger(live, f"image {live.document.uri} is late: its transfer stood still")
        for live in tuple(site.live.values()):
            if self._was_missed(live):
                self._alarms.endanger(live, NOBODY_THERE)
                site.change(live, receipt=replace(live.kept, words=NOBODY_THERE))
            if live.record.state is State.ENDANGERED and live.is_confirmed and live.name in site.book.entries:
                # What stood in its way may be gone.
                self._troubles.note(live.name, live.record.why)
        # What waits on the link may be late by now: that is told with the rest.
        self._execution.run_link()

    def _was_missed(self, live: Live) -> bool:
        """Whether its time came without its image while nobody looked, so that nobody has been told."""
        if live.waits or live.kept.ready_s is not None or self._site.now_s < due_s(live):
            return False
        return live.record.state in (State.ACCEPTED, State.PREPARING, State.READY)

    def turn(self, topic: Topic, name: str) -> None:
        """A reservation's time has come, or is over."""
        live = self._site.live.get(name)
        if live is None:
            return
        if topic is Topic.WATCH:
            self._watch.turn(name)
        elif topic is Topic.END:
            if live.reservation.end_s <= self._site.now_s:
                if live.waits:
                    self.close_window(live)
                else:
                    self._end(live)
        elif live.reservation.start_s <= self._site.now_s and live.record.state is not State.ACTIVE:
            self._begin(live)

    def close_window(self, live: Live) -> None:
        """No event has come."""
        assert live.document.open is not None
        self._end(live, f"no event came until {format_instant(live.document.open.until_s, zone=UTC)}; ")

    def end_early(self, live: Live, why: str) -> None:
        """The event has come that ends it."""
        self._end(live, f"it was ended by its event ({why}); ")

    def yielded(self, live: Live, name: str) -> None:
        """It has made way for another before its time began: it is over."""
        words = f"it yielded to reservation {name}, as it may"
        self._site.change(live, receipt=replace(live.kept, yielded_to=name))
        self._finish(live, State.CANCELLED, words, is_met=None)
        self._log.info("reservation has yielded", reservation=live.name, to=name)

    def cancel(self, live: Live, caller: Caller, why: str) -> None:
        """Somebody does not want it any more."""
        self._finish(live, State.CANCELLED, why, is_met=None, uid=caller.uid)
        self._log.info("reservation is cancelled", reservation=live.name, uid=caller.uid, words=why)

    def carried(self, effect: Effect) -> None:
        """The batch system has done what it was asked."""
        live = self._site.live.get(effect.subject)
        if live is not None and effect.kind == RESERVE and self._is_last(live, effect):
            live.is_confirmed = True
            was_refused, live.is_refused = live.is_refused, False
            # One that has no place here is not saved because the batch system has its nodes for it:
            # until a look has shown them they may be promised to others.
            has_place = live.name in self._site.book.entries
            if has_place and (was_refused or live.danger.startswith(REFUSED)):
                self._alarms.save(live)

    def refused(self, effect: Effect, words: str) -> None:
        """The batch system will not do it: tell, and look for other nodes."""
        live = self._site.live.get(effect.subject)
        if live is not None and effect.kind == RESERVE and self._is_last(live, effect):
            live.is_refused = True
            self._alarms.endanger(live, f"{REFUSED}: {words}")

    def _is_last(self, live: Live, effect: Effect) -> bool:
        waiting = self._site.store.waiting_effects(live.name)
        return not waiting or waiting[-1].identity == effect.identity

    def _begin(self, live: Live) -> None:
        site = self._site
        gone = site.gone_nodes(live)
        if gone:
            why = self._troubles.why(live.name) or live.danger
            words = f"its time has come, and {', '.join(gone[:3])} cannot be used"
            self._alarms.endanger(live, f"{words}: {why}" if why else words)
        if live.is_refused or gone:
            self._troubles.note(live.name, live.danger)
            return
        if live.is_ready and live.name in site.book.entries:
            if live.waits:
                self._open(live)
                return
            self._alarms.measure_slack(live)
            site.change(live, state=State.ACTIVE)
            # Whoever is on its nodes still is seen again at the next look.
            self._troubles.forget(live.name)
            site.note("begin", live.name, State.ACTIVE.value, "its image is on all nodes")
            self._execution.look_again(live)
            return
        if site.now_s < due_s(live):
            # It was to start at once, with what is in the pools: they have not been asked yet.
            self._agenda.add(due_s(live), Topic.BEGIN, live.name)
            return
        lacking = sorted(set(live.nodes) - live.ready)
        self._alarms.endanger(
            live, f"its time has come, and image {live.document.uri} is not on {', '.join(lacking[:3])}"
        )
        self._troubles.note(live.name, live.danger)

    def _open(self, live: Live) -> None:
        """An open reservation has its nodes and its image: from now on its event may come."""
        assert live.document.open is not None
        words = f"it waits for its event until {format_instant(live.document.open.until_s, zone=UTC)}"
        if live.record.state is State.READY and live.record.why != words:
            self._alarms.measure_slack(live)
            self._site.change(live, why=words)
            self._site.note("begin", live.name, "open", f"its image is on all nodes; {words}")

    def _end(self, live: Live, how: str = "") -> None:
        kept, start_s = live.kept, live.reservation.start_s
        is_met = kept.ready_s is not None and kept.ready_s <= due_s(live)
        if kept.ready_s is None:
            words = live.danger or "its image was never on all of its nodes"
        elif kept.ready_s <= start_s:
            words = f"its image was there {start_s - kept.ready_s} s before its start"
        else:
            words = f"its image was there {kept.ready_s - start_s} s after its start"
            if is_met:
                words += ", as soon as its nodes could be asked: it was accepted for the same moment"
        state = State.FAILED if kept.ready_s is None else State.ENDED
        if state is State.ENDED and live.record.state not in (State.ACTIVE, State.ENDANGERED):
            self._site.change(live, state=State.ACTIVE)
        if kept.words == NOBODY_THERE and not is_met:
            words += f"; {NOBODY_THERE}"
        if kept.moves:
            words += f"; it was moved {kept.moves} times for others before it began"
        if kept.yielded_to:
            words += f"; it ended early, for reservation {kept.yielded_to}"
        words = how + words
        self._finish(live, state, words, is_met=is_met)
        self._log.info("reservation is over", reservation=live.name, met=is_met, words=words)

    def _finish(self, live: Live, state: State, words: str, *, is_met: bool | None, uid: int = 0) -> None:
        site = self._site
        if live.kept.ready_s is None and site.now_s > due_s(live):
            self._alarms.measure_slack(live)
        self._execution.release(live, live.nodes)
        self._admission.leave_book(live)
        self._execution.prune()
        amount = charged(live, state, site.now_s)
        receipt = replace(live.kept, is_met=is_met, words=words, charged=amount)
        if amount is not None:
            entry = entry_of_end(live, amount, site.now_s)
            site.write(lambda promise: promise.enter(entry))
        site.change(live, state=state, why=words, receipt=receipt)
        site.note("cancel" if state is State.CANCELLED else "end", live.name, state.value, words, uid=uid)
        site.todo([unreserve_effect(live, site.now_s)])
        self._troubles.forget(live.name)
        site.leave(live)

    def _find_again(self, live: Live, why: str) -> None:
        """What could not be put back into the book is promised anew if it can be."""
        site, workspace = self._site, live.reservation.workspace
        self._log.warning("reservation has lost its place", reservation=live.name, words=why)
        if live.reservation.start_s > site.now_s:
            workspace = replace(workspace, start_s=live.reservation.start_s, finish_by_s=None, is_spread=True)
            answer = admit(site.book, workspace, site.now_s, tells_earliest=False)
            if isinstance(answer, ReservationPlan):
                site.touch({transfer.number for transfer in answer.transfers})
                site.touch({number for number, _ in answer.pushed})
                kept, before = keep_reservation(site.book, live.name), set(live.nodes)
                # What is there already on its new nodes is known when they have been told.
                live.ready.clear()
                state, _ = after_move(live, is_ready=False, now_s=site.now_s)
                site.change(
                    live,
                    kept=kept,
                    state=state,
                    why=f"moved, since {why}",
                    receipt=replace(live.kept, ready_s=None, brought=(), saved_bytes=0, sources=()),
                )
                self._execution.release(live, tuple(sorted(before - set(live.nodes))))
                site.note("repair", live.name, "moved", why)
                self._admission.confirm(live)
                return
            why = f"{why}; {reason_of(answer.refusal)}"
            # That its image was on nodes that it does not have any more keeps no promise.
            self._execution.release(live, live.nodes)
            site.change(live, receipt=replace(live.kept, ready_s=None))
        live.ready.clear()
        self._alarms.endanger(live, why)
        self._agenda.add(max(live.reservation.end_s, site.now_s), Topic.END, live.name)
