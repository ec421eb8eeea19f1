"""Copies of images on nodes: they arrive, are missed, come by themselves, or do not come at all."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.model import Image
from outrider.core.reservations.missing_copies import copy_arrived, lose_copy, part_with, restage
from outrider.core.reservations.refusal import Refusal
from outrider.core.restart.snapshot import keep_reservation
from outrider.service.desk.events import CopyFound, CopyLost, EventRouter
from outrider.service.desk.nodes.events import Arrived, Failed, Missed, Moved, News, Uncopied
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.sources import has_others
from outrider.service.desk.nodes.state import NOT_ALLOWED, Need
from outrider.service.desk.reservations.alarms import ReservationAlarms
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log
from outrider.store.states import State, TransferState

MOST_SOURCES = 8


class ReservationCopies:
    """What nodes say of the images that reservations need."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        execution: PlanExecution,
        alarms: ReservationAlarms,
        troubles: Troubles,
        events: EventRouter,
        log: Log,
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._execution = execution
        self._alarms = alarms
        self._troubles = troubles
        self._events = events
        self._log = log

    def heard(self, news: list[News]) -> None:
        """What a node has said."""
        for each in news:
            live = self._site.live.get(each.owner)
            if live is None or each.owner not in self._node_orders.statuses[each.node].needs:
                # It may have been given up for what another node has said.
                continue
            if isinstance(each, Arrived):
                self._arrived(live, each.node)
            elif isinstance(each, Missed):
                self._missed(live, each.node)
            elif isinstance(each, Failed):
                self._failed(live, each.node)
            elif isinstance(each, Uncopied):
                self._log.warning(
                    "no copy before the job", node=each.node, reservation=live.name, words=each.words
                )
            elif isinstance(each, Moved) and each.node in live.ready:
                # It was there before the service was started again.
                self._missed(live, each.node)
            elif isinstance(each, Moved):
                self._moved(live, each.node)

    def came_by_itself(self, node: str, there: Image) -> None:
        """An image that is to be brought to a node later is there already: somebody else wanted it."""
        site, key = self._site, there.key
        number = site.book.timeline.number_of[node]
        lives = [
            life
            for life in site.book.pools.pools[number].lives.get(key, ())
            if life.transfer is not None and life.image.may_be(there)
        ]
        if any(life.transfer in site.moving for life in lives):
            # What is under way will be seen to have arrived.
            return
        users = {name for life in lives for name in life.users}
        before = {life.transfer for life in lives if life.transfer is not None}
        dropped = copy_arrived(site.book, node, key, site.now_s, there=there)
        site.end_transfers(dropped, TransferState.WITHDRAWN)
        site.touch(before - set(dropped))
        self._events.publish(CopyFound(node, key))
        for name in sorted(users & site.live.keys()):
            live = site.live[name]
            site.change(live, kept=keep_reservation(site.book, name))
            self._execution.arrange(live)

    def restage(self, live: Live, why: str, *, without: tuple[str, ...] = ()) -> None:
        """Plan transfers for what a reservation lacks; as soon as may be if not in time. What others have on
        nodes that are in `without` it cannot use."""
        site = self._site
        if live.spoiled:
            return
        answer = restage(site.book, live.name, site.now_s, without=without)
        site.change(live, kept=keep_reservation(site.book, live.name))
        if isinstance(answer, Refusal):
            reason = reason_of(answer)
            self._troubles.replace(live.name, f"{why}, and cannot be brought there again: {reason}")
            return
        site.touch(transfer.number for transfer in answer.transfers)
        live.ready &= {node for node in live.ready if self._node_orders.has_copy(node, live.name)}
        if live.record.state is State.READY:
            site.change(live, state=State.PREPARING, why=why)
        site.note("repair", live.name, "planned", f"{why}: it is brought there again")
        if answer.is_late:
            self._troubles.replace(live.name, f"{why}: it can be there again only after the start")
        self._execution.arrange(live)

    def _arrived(self, live: Live, node: str) -> None:
        live.ready.add(node)
        need = self._node_orders.statuses[node].needs[live.name]
        if need.transfer is not None:
            self._credit(live, node, need)
            self._execution.arrived(need.transfer, node)
        if live.is_ready:
            self._alarms.ready(live)

    def _credit(self, live: Live, node: str, need: Need) -> None:
        """Note where a node's copy came from, if it was brought for this reservation."""
        kept = live.kept
        if need.transfer not in live.reservation.transfers or node in kept.brought:
            return
        sources = kept.sources
        if need.source and need.source not in sources and len(sources) < MOST_SOURCES:
            sources = (*sources, need.source)
        live.kept = replace(kept, sources=sources, brought=(*kept.brought, node))

    def _missed(self, live: Live, node: str) -> None:
        """An image that was counted on is not in a pool: bring it there anew."""
        site = self._site
        why = f"image {live.document.uri} was no longer on {node}"
        self._not_ready(live, node, why)
        entry = site.book.entries.get(live.name)
        if entry is None:
            return
        names = site.book.timeline.nodes
        number = site.book.timeline.number_of[node]
        lives = [life for each, life in entry.copies() if each == number]
        for life in lives:
            if life.transfer in site.moving:
                # It was there, and the same transfer still goes on to other nodes: here, too.
                site.moving[life.transfer].left.add(node)
        if not any(life.transfer is None for life in lives):
            # The copy was replaced in the meantime: what is on its way will be seen.
            return
        self._log.warning("image is missing", node=names[number].name, image=live.document.uri)
        self.lose(node, live.document.image.key, why)

    def _not_ready(self, live: Live, node: str, why: str) -> None:
        """A node has lost its copy. That it was there keeps no promise unless it was seen at the start."""
        site = self._site
        live.ready.discard(node)
        site.stirred.add(live.name)
        receipt = None
        need = self._node_orders.statuses[node].needs.get(live.name)
        seen_s = None if need is None else need.seen_s
        was_there = live.has_begun or (seen_s is not None and seen_s >= live.reservation.start_s)
        if live.kept.ready_s is not None and not was_there:
            receipt = replace(live.kept, ready_s=None)
        state = State.PREPARING if live.record.state is State.READY else None
        if receipt is not None or state is not None:
            site.change(live, state=state, why=why if state is not None else None, receipt=receipt)
        if receipt is not None and live.record.state is State.ACTIVE:
            what = f"image {live.document.uri} on {node}"
            words = f"nobody has seen {what} since its start, and now it is not there"
            self._alarms.endanger(live, words)

    def lose(self, node: str, key: str, why: str, *, uri: str | None = None) -> None:
        """Everybody who counts on a copy that is not there, or does not come from that address, gets
        another."""
        site = self._site
        lost = lose_copy(site.book, node, key, site.now_s, uri=uri)
        site.end_transfers(lost.dropped, TransferState.WITHDRAWN)
        self._execution.prune()
        if uri is None:
            self._events.publish(CopyLost(node, key))
        for name in lost.users:
            live = site.live.get(name)
            if live is not None:
                # It is not told so itself if the service is started again before its node is asked.
                self._not_ready(live, node, why)
                self.restage(live, why)
                self._ask_again(live, node)

    def _ask_again(self, live: Live, node: str) -> None:
        """Its own image may be whole there, with the layer of the other one that it counted on."""
        if self._node_orders.has_copy(node, live.name):
            self._node_orders.statuses[node].needs[live.name].doubt()
            self._node_orders.hurry(node, live.name, self._site.now_s)

    def _failed(self, live: Live, node: str) -> None:
        need = self._node_orders.statuses[node].needs.get(live.name)
        if need is None:
            return
        self._log.warning(
            "transfer fails",
            node=node,
            image=need.uri,
            transfer=need.transfer,
            failures=need.failures,
            words=need.words,
        )
        if need.is_wrong and not self._may_come_from_others(node, need):
            self._spoil(live, need.words)
            return
        if need.transfer is None and need.code == NOT_ALLOWED and live.name in self._site.book.entries:
            # What was counted on is there for others: its own transfer shows a right to it.
            part_with(self._site.book, live.name, node, self._site.now_s)
            why = f"image {need.uri} is on {node} for others alone"
            self._not_ready(live, node, why)
            self.restage(live, why, without=(node,))
            return
        if need.has_failed_often:
            self._troubles.replace(live.name, f"image {need.uri} does not reach {node}: {need.words}")
        moving = None if need.transfer is None else self._site.moving.get(need.transfer)
        if moving is not None:
            self._alarms.judge(moving)

    def _may_come_from_others(self, node: str, need: Need) -> bool:
        """Whether a node that has the right bytes is still to be asked for them."""
        statuses = self._node_orders.statuses
        return not need.has_failed_often and has_others(statuses, statuses[node], need)

    def _spoil(self, live: Live, words: str) -> None:
        """At its address is another image, and nobody has the one that was promised: to bring it again
        would bring the same, to whichever node. That is said, and the link is left to others."""
        site = self._site
        live.spoiled = f"{words}; nothing is fetched for {live.name} any more: reserve again"
        self._log.warning("image is another one", reservation=live.name, words=words)
        lacking = tuple(sorted(set(live.nodes) - live.ready))
        self._execution.release(live, lacking)
        for node in lacking:
            self.lose(node, live.document.image.key, words, uri=live.document.uri)
        site.change(live, kept=keep_reservation(site.book, live.name))
        self._troubles.forget(live.name)
        self._alarms.endanger(live, live.spoiled)

    def _moved(self, live: Live, node: str) -> None:
        need = self._node_orders.statuses[node].needs[live.name]
        moving = None if need.transfer is None else self._site.moving.get(need.transfer)
        if moving is None:
            return
        self._alarms.judge(moving)
