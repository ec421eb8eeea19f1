"""The desk: one event in, what it is answered and what is to be done about it out.

It is the only owner of the book and of the store. It has no thread, no socket and no clock: who
drives it says what time it is. So the same desk runs in production and in simulation.

What an event leads to is one transaction, and only when that is on the disk is anybody answered
or any call made. If it cannot be written, nothing of it has happened: the state is loaded anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cachemgr.base.shares import Share
from outrider.collector import collector_paused
from outrider.core.reservations.refusal import of_broken_program
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.metadata.policies import Policies
from outrider.rms.base import JobUse, NodeState, Refused, RmsNode, Sight
from outrider.service.answers.nodes import Reconciled
from outrider.service.answers.reply import Answer, Replied, Trouble
from outrider.service.desk.batch.effect_queue import MOST_WAIT_S, EffectQueue
from outrider.service.desk.batch.job_effects import is_move, job_of
from outrider.service.desk.batch.reservation_effects import PARK, RESERVE
from outrider.service.desk.batch.submissions import remember, trouble_of
from outrider.service.desk.components import DeskComponents, make_components
from outrider.service.desk.dispatch import DECIDED, RequestDispatch
from outrider.service.desk.leases.offer_searches import OfferSearch, OfferSearches
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.desk.reconcile.inquiries import BATCH_SYSTEM, Inquiries, Inquiry
from outrider.service.desk.reservations.admission import Doubtful
from outrider.service.desk.state import node_list
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.node_list import ListedNode
from outrider.service.desk.state.site import Site
from outrider.service.desk.status import status_of
from outrider.service.desk.views.shares import shares_of
from outrider.service.meter import Log, Meter
from outrider.service.ports import AskProgram, Call, Carry, Finished, Look, NodeReport, TellNode
from outrider.service.requests import (
    Asked,
    BeginSubmission,
    Cancel,
    DecideSwitch,
    EndSubmission,
    MachineRequest,
    Reconcile,
    ShowStatus,
    SignedCall,
    Ticked,
    Trigger,
    Woken,
)
from outrider.service.settings import Settings
from outrider.store.errors import StoreError
from outrider.store.records import Effect
from outrider.store.store import Store

Event = Asked | Finished | Ticked | Woken
PROBE_S = 5
"""How often a store that could not be written is tried again."""
PRUNE_S = 3600
DOUBT_AGAIN_S = 5
"""How often is looked whether what may be over by a doubtful time really is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What an event led to."""

    replies: tuple[Replied, ...] = ()
    calls: tuple[Call, ...] = ()
    begins: tuple[tuple[str, bool], ...] = ()
    """Reservations, and whether a job in them finds its image wherever it starts."""


class Desk:
    """One site's service, without the world around it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        policies: Policies,
        now_s: int,
        *,
        log: Log,
        meter: Meter,
        batch_system: str = "",
    ) -> None:
        self._store = store
        self._settings = settings
        self._policies = policies
        self._log = log
        self._meter = meter
        self._batch_system = batch_system
        self._now_s = self._started_s = now_s
        self._agenda = Agenda()
        self._orders = NodeOrders(settings, self._agenda)
        self._batch = EffectQueue(store, settings, now_s, log)
        self._node_list: dict[str, ListedNode] = {}
        self._seen_nodes: tuple[RmsNode, ...] = ()
        """As the last look showed them."""
        self._parts: DeskComponents | None = None
        self._dispatch: RequestDispatch | None = None
        self._store_trouble = self._doubt = ""
        self._parked: dict[int, Asked] = {}
        self._inquiries = Inquiries(self._orders, self._agenda)
        self._searches = OfferSearches()
        self._replies: list[Replied] = []
        """To those who are answered by the event that is being dealt with."""
        self._decided: dict[str, int] = {}
        self._findings: dict[str, tuple[str, ...]] = {}
        """What the last comparison with each node, and with the batch system (""), has found."""
        self._agenda.add(now_s, Topic.LOOK)
        self._agenda.add(now_s + settings.reconcile_every_s, Topic.COMPARE)
        self._agenda.add(now_s + PRUNE_S, Topic.STORE)
        self._load()

    def handle(self, event: Event, now_s: int) -> Outcome:
        """Deal with an event. Time never goes back here, whatever clocks do."""
        self._now_s = max(self._now_s, now_s)
        if self._parts is not None:
            self._parts.site.pass_to(self._now_s)
        replies = self._replies = []
        if self._dispatch is not None:
            self._dispatch.unwritten.clear()
        programs: list[AskProgram] = []
        try:
            if isinstance(event, Asked):
                self._asked(event, programs)
            elif isinstance(event, Finished):
                self._finished(event)
            elif isinstance(event, Woken):
                self._batch.wants_look = True
            self._run(is_asked=isinstance(event, Asked))
            self._flush()
            calls = [*programs, *self._calls()]
        except StoreError as error:
            planned = [] if self._parts is None else self._parts.switches.give_up()
            self._broken(error)
            trouble = trouble_of(error)
            asked = [event] if isinstance(event, Asked) else []
            tickets = {each.ticket for each in (*asked, *self._inquiries.give_up())}
            tickets.update(each.ticket for each in (*replies, *planned, *self._searches.give_up()))
            return Outcome(replies=tuple(Replied(ticket=each, answer=trouble) for each in sorted(tickets)))
        begins = self._parts.site.begins() if self._parts is not None else ()
        return Outcome(replies=tuple(replies), calls=tuple(calls), begins=begins)

    def next_s(self) -> int | None:
        """By when time must be told again, if nothing else happens."""
        instants = [self._agenda.next_s(), self._now_s if self._searches.is_busy else None]
        if not self._store_trouble:
            instants.append(self._batch.due_s)
        if self._parts is not None:
            parts = self._parts
            instants += [parts.execution.next_s(), parts.repair.next_s(), parts.jobs.next_s()]
        return min((at_s for at_s in instants if at_s is not None), default=None)

    def set_policies(self, policies: Policies) -> None:
        self._policies = policies
        if self._parts is not None:
            self._parts.admission.policies = policies

    def set_doubt(self, words: str) -> None:
        """The time is in doubt, and why, or not any more (""). As long as it is nothing is over."""
        self._doubt = words

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why nothing is promised now; empty if something may be."""
        return tuple(filter(None, (self._store_trouble, self._doubt, self._batch.trouble(self._now_s))))

    def _asked(self, asked: Asked, programs: list[AskProgram]) -> None:
        if self._searches.is_busy and self._searches.join(asked):
            return
        if isinstance(asked.request, DecideSwitch) and self._dispatch is not None:
            self._replies += self._dispatch.switch(asked, self._store_trouble)
            return
        answer = self._answer(asked, None, is_judged=False)
        if isinstance(answer, AskProgram):
            self._parked[asked.ticket] = asked
            programs.append(answer)
        else:
            self._settle(Inquiry(asked), answer)

    def _settle(self, inquiry: Inquiry, answer: Answer | AskProgram | Doubtful | OfferSearch) -> None:
        """A request is answered, or its nodes are asked first, or offers are looked for."""
        assert not isinstance(answer, AskProgram)
        if isinstance(answer, Doubtful):
            self._batch.wants_look |= BATCH_SYSTEM in answer.nodes
            self._inquiries.begin(inquiry, answer.nodes, self._now_s)
        elif isinstance(answer, OfferSearch):
            self._replies += self._searches.begin(inquiry.asked, answer)
        else:
            self._replies.append(Replied(ticket=inquiry.asked.ticket, answer=answer))

    def _decide(self, inquiry: Inquiry) -> None:
        """Who was asked about a request has answered, or had their time: it is decided as if it came now."""
        if self._searches.join(inquiry.asked):
            self._inquiries.decided(inquiry)
            return
        answer = self._answer(
            inquiry.asked, inquiry.program, is_judged=inquiry.is_judged, is_sure=inquiry.is_sure
        )
        self._inquiries.decided(inquiry)
        self._settle(inquiry, answer)

    def _answer(
        self, asked: Asked, program: PolicyRefusal | None, *, is_judged: bool, is_sure: bool = False
    ) -> Answer | AskProgram | Doubtful | OfferSearch:
        request, caller, dispatch = asked.request, asked.caller, self._dispatch
        if isinstance(request, ShowStatus):
            return self._status()
        if dispatch is None:
            return Trouble(code="unavailable", message="; ".join(self.troubles) or "the service is starting")
        if isinstance(request, DECIDED):
            return dispatch.decide(
                asked, self._policies, self.troubles, program, is_judged=is_judged, is_sure=is_sure
            )
        if isinstance(request, (Cancel, Trigger, SignedCall, MachineRequest)):
            return dispatch.change(request, caller, self._store_trouble)
        if isinstance(request, (BeginSubmission, EndSubmission)):
            return remember(dispatch.site, request, caller, self._store_trouble)
        if isinstance(request, Reconcile):
            if not caller.is_admin:
                return Trouble(code="not-allowed", message="only administrators can have everything compared")
            self._batch.wants_look = True
            self._orders.compare_all(self._now_s)
            found = [words for source in sorted(self._findings) for words in self._findings[source]]
            return Reconciled(findings=tuple(found))
        return dispatch.look_up(request, caller, self._node_list)

    def _finished(self, finished: Finished) -> None:
        call, result = finished.call, finished.result
        if isinstance(call, AskProgram):
            self._judged(call, result)
        elif isinstance(call, Look):
            self._looked(call, result)
        elif isinstance(call, Carry):
            self._carried(call.effect, result)
        elif isinstance(call, TellNode):
            self._told(call, result)
            for inquiry in self._inquiries.heard(call.node, has_answered=isinstance(result, NodeReport)):
                self._decide(inquiry)
        elif self._parts is not None:
            self._parts.heard(call, result)
            self._replies += self._parts.switches.replies()

    def _judged(self, call: AskProgram, result: object) -> None:
        """The site's own program has said what it thinks of a request."""
        if (asked := self._parked.pop(call.ticket, None)) is None:
            return
        program = result if isinstance(result, PolicyRefusal) else None
        if program is None and not isinstance(result, Allowed):
            program = PolicyRefusal(rule="external", sentence=of_broken_program(result))
        self._decide(Inquiry(asked, program, is_judged=True))

    def _told(self, call: TellNode, result: object) -> None:
        """A node has been told something, or does not answer."""
        report = result if isinstance(result, NodeReport) else None
        words = "" if report is not None else str(result) or type(result).__name__
        news = self._orders.heard(call, report, words, self._now_s)
        parts, status = self._parts, self._orders.statuses.get(call.node)
        if parts is None or status is None:
            return
        parts.copies.heard(news)
        parts.jobs.heard(news)
        if report is not None and report.images is not None:
            self._find(call.node, (*parts.reconciler.pool(status), *parts.orders.compare(report)))
        if report is not None:
            self._note_pool(parts, status, report)
        parts.reconciler.presence(status)

    def _note_pool(self, parts: DeskComponents, status: NodeStatus, report: NodeReport) -> None:
        """A node's pool is larger or smaller than was thought, or others hold more or less of it."""
        known = listed = self._node_list[report.node]
        if listed.limit_bytes != report.limit_bytes:
            listed = replace(listed, limit_bytes=report.limit_bytes)
            number = parts.site.book.timeline.number_of[report.node]
            parts.site.book.pools.limit(number, report.limit_bytes)
        if (room := parts.rooms.heard(status, report.used_bytes)) is not None:
            listed = replace(listed, room=room)
        if listed is not known:
            self._node_list[report.node] = listed
            self._write_node(parts.site, listed)

    def _write_node(self, site: Site, listed: ListedNode) -> None:
        site.write_lightly(lambda progress: progress.put_node(node_list.record_of(listed, self._now_s)))

    def _looked(self, call: Look, result: object) -> None:
        if not self._batch.is_latest(call):
            return
        if not isinstance(result, Sight):
            self._batch.saw_nothing(str(result) or type(result).__name__)
            return
        self._look_at_nodes(result.nodes)
        is_back = self._batch.saw(self._now_s)
        if self._parts is not None:
            self._find("", self._parts.reconciler.seen(result, call.watched))
            self._parts.seen(result, is_back=is_back)
        for inquiry in self._inquiries.heard(BATCH_SYSTEM, has_answered=True):
            self._decide(inquiry)

    def _look_at_nodes(self, nodes: tuple[RmsNode, ...]) -> None:
        """What nodes there are. That they are the very same as before is seen at once."""
        if nodes is self._seen_nodes and self._parts is not None:
            return
        self._seen_nodes = nodes
        found = {node.name: node_list.seen(node, self._node_list.get(node.name)) for node in nodes}
        if self._parts is None or not node_list.is_same_site(self._node_list, found):
            self._new_site(found)
        for name, each in found.items():
            known = self._node_list.get(name)
            if each is not known and each != known and self._parts is not None:
                self._node_list[name] = each
                self._write_node(self._parts.site, each)

    def _new_site(self, found: dict[str, ListedNode]) -> None:
        """Nodes have come or gone, or give more or less than before: the book is made anew."""
        self._flush()
        with self._store.progress() as progress:
            for name in sorted(self._node_list.keys() - found.keys()):
                progress.drop_node(name)
            for each in found.values():
                progress.put_node(node_list.record_of(each, self._now_s))
        self._log.info("site has changed", nodes=len(found))
        self._load()

    def _find(self, source: str, findings: Iterable[str]) -> None:
        self._findings[source] = tuple(findings)
        self._meter.count("outrider_reconcile_findings_total", "difference", by=len(self._findings[source]))

    def _carried(self, effect: Effect, result: object) -> None:
        """An effect has been carried out on the batch system, or has failed."""
        self._batch.came_back(effect, self._now_s)
        parts = self._parts
        if parts is None:
            return
        parts.orders.came_back(effect.identity)
        site, identity, now_s, job = parts.site, effect.identity, self._now_s, job_of(effect)
        if result is None or isinstance(result, JobUse):
            site.write_lightly(lambda progress: progress.finish_effect(identity, now_s))
            if job is None:
                parts.lifecycle.carried(effect)
                if effect.kind == RESERVE:
                    parts.reconciler.reserved(effect.subject)
            else:
                parts.jobs.carried(effect, job, result)
            return
        wait_s, words = self._batch.again_s(effect), str(result) or type(result).__name__
        waiting = self._store.waiting_effects(effect.subject)
        # A machine that is to be moved is suspended before and goes on afterwards, whatever else is wanted.
        is_one_of_several = effect.kind == PARK or any(map(is_move, waiting))
        is_needed = is_one_of_several and not (job is None and isinstance(result, Refused))
        if waiting and waiting[-1].identity != identity and not is_needed:
            # A later one says what should be now, and waits for this one to be out of its way.
            site.write_lightly(lambda progress: progress.finish_effect(identity, now_s))
            self._log.info("effect is given up", effect=identity, words=words)
            return
        if job is not None and isinstance(result, Refused):
            # It is decided anew what is to become of the job: it may be gone, or may have started.
            site.write_lightly(lambda progress: progress.finish_effect(identity, now_s))
            parts.jobs.refused(effect, job, words)
            self._batch.wants_look = True
            return
        site.write_lightly(lambda progress: progress.postpone_effect(identity, words, now_s + wait_s))
        self._log.warning("effect fails", effect=identity, words=words, again_s=wait_s)
        if isinstance(result, Refused):
            parts.lifecycle.refused(effect, words)
            self._batch.wants_look = True

    def _run(self, *, is_asked: bool) -> None:
        """Everything that is due, but of what is done in slices only one: whoever asks waits for none."""
        while (entry := self._agenda.take(self._now_s)) is not None:
            at_s, topic, subject = entry
            if self._doubt and topic is Topic.END:
                self._agenda.add(self._now_s + DOUBT_AGAIN_S, topic, subject)
            elif topic is Topic.NODE:
                if self._parts is not None:
                    self._parts.rooms.about_to_ask(subject)
                self._orders.due(subject, at_s)
            elif topic is Topic.ROOM:
                if (inquiry := self._inquiries.due(subject)) is not None:
                    self._decide(inquiry)
            elif topic is Topic.LOOK:
                self._batch.wants_look = True
                self._agenda.add(self._now_s + self._settings.look_every_s, Topic.LOOK)
            elif topic is Topic.COMPARE:
                self._compare()
            elif topic is Topic.STORE:
                self._tend_store()
            elif self._parts is not None:
                self._parts.turn(topic, subject)
        if self._parts is not None:
            self._parts.execution.run_link()
            self._parts.repair.mend()
            if not (is_asked and self._parts.jobs.is_busy):
                self._parts.jobs.run()
            if not is_asked:
                self._replies += self._searches.go_on()
            self._parts.rooms.tell()

    def _compare(self) -> None:
        self._agenda.add(self._now_s + self._settings.reconcile_every_s, Topic.COMPARE)
        if self._parts is not None:
            self._parts.site.forget_past()
        self._meter.set("outrider_last_reconcile_timestamp_seconds", self._now_s)

    def _tend_store(self) -> None:
        """See whether a store that could not be written can be again, and forget what is old."""
        if self._store_trouble:
            self._load()
            return
        self._agenda.add(self._now_s + PRUNE_S, Topic.STORE)
        if self._doubt:
            return
        if not self._store.prune(self._now_s - self._settings.keep_history_s).is_done:
            self._agenda.add(self._now_s + 1, Topic.STORE)

    def _calls(self) -> Iterable[Call]:
        """What is to be asked of the world now."""
        if self._store_trouble:
            return []
        parts = self._parts
        calls: list[Call] = [*self._batch.calls(self._now_s, None if parts is None else parts.watch)]
        if parts is not None:
            calls += self._orders.calls(self._now_s)
            calls += parts.jobs.images.calls()
            calls += parts.jobs.notes.calls(self._now_s)
            calls += parts.opening.sources.calls()
            calls += parts.switches.calls()
        return calls

    def _flush(self) -> None:
        if self._parts is None:
            return
        is_promise = self._parts.site.has_promises
        self._parts.site.flush()
        if is_promise:
            self._batch.due_s = self._now_s

    def _broken(self, error: StoreError) -> None:
        """What is not on the disk has not happened: what is in memory goes."""
        self._log.error("store cannot be used", words=str(error))
        self._parts = self._dispatch = None
        self._store_trouble = str(error)
        self._agenda.add(self._now_s + PROBE_S, Topic.STORE)

    def _load(self) -> None:
        """The state as it is on the disk. Until that can be read and written nothing is promised."""
        with collector_paused():
            self._read()

    def _read(self) -> None:
        self._replies += self._searches.give_up()
        if self._parts is not None:
            self._replies += self._parts.switches.give_up()
        self._parts, self._dispatch, self._seen_nodes, self._batch.seen_s = None, None, (), None
        try:
            with self._store.promise() as promise:
                promise.set("loaded_s", str(self._now_s))
                # What was put off by a clock that was ahead would wait until that time comes.
                promise.hasten_effects(self._now_s, self._now_s + MOST_WAIT_S)
            self._node_list = node_list.read_roster(self._store.nodes())
            nodes = [each.node(self._settings) for each in self._node_list.values()]
            site = Site(self._store, self._settings, nodes, self._now_s) if nodes else None
        except StoreError as error:
            self._broken(error)
            return
        self._store_trouble = ""
        self._batch.due_s = self._now_s
        if site is None:
            return
        owners = {live.name: frozenset(live.nodes) for live in site.live.values()}
        self._orders.assemble(self._node_list, owners, self._now_s)
        self._parts = parts = make_components(
            site, self._orders, self._agenda, self._policies, self._batch.is_carrying, self._log, self._meter
        )
        self._dispatch = RequestDispatch(parts, self._log, self._meter, self._decided)
        for number, node in enumerate(site.book.timeline.nodes):
            if self._node_list[node.name].state is not NodeState.UP:
                site.book.available &= ~(1 << number)
        parts.take_up({each.name: each.room for each in self._node_list.values() if each.room is not None})
        self._batch.wants_look = True

    def shares(self) -> list[Share]:
        """What users share here, and who has how much of it."""
        parts = self._parts
        return [] if parts is None else shares_of(parts.site, parts.best_effort, parts.jobs.entries.values())

    def _status(self) -> Answer:
        return status_of(
            self._parts, self._settings, self._orders, now_s=self._now_s, started_s=self._started_s,
            batch_system=self._batch_system, troubles=self.troubles, seen_s=self._batch.seen_s,
            nodes_up=sum(each.state is NodeState.UP for each in self._node_list.values()),
            decided=dict(self._decided),
        )  # fmt: skip
