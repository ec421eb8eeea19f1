"""Carrying the plan out: transfers begin when it says so, and end when they really do.

The link's schedule is the plan; what nodes report is what really happens. A transfer that ends
early gives its time to the next, one that is late gets more of it, or goes on beside the plan
when others would be late for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.core.images.pools import Life
from outrider.core.model import Transfer
from outrider.core.restart.snapshot import keep_transfers
from outrider.service.desk.events import CopyLost, EventRouter, TransferBegun
from outrider.service.desk.nodes.copies import begin_s as copy_begin_s
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.sources import before_in_chain, is_best_effort_alone
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.nodes.watch import begin_s
from outrider.service.desk.reservations.alarms import ReservationAlarms
from outrider.service.desk.reservations.transfers import DeadlineTransfers
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import Live, Moving, Site
from outrider.service.meter import Log, Meter
from outrider.store.states import State, TransferState

LONGEST_EXTENSION_S = 30
"""By how much the time of a transfer that is late is extended at once."""


class PlanExecution:
    """What moves, and what nodes are told to have."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        agenda: Agenda,
        deadlines: DeadlineTransfers,
        alarms: ReservationAlarms,
        events: EventRouter,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._agenda = agenda
        self._deadlines = deadlines
        self._alarms = alarms
        self._events = events
        self._log = log
        self._meter = meter

    def take_up(self) -> None:
        """After a start: tell nodes what they are to have by now."""
        site = self._site
        running = {
            each.transfer.number: each.transfer
            for each in keep_transfers(site.book, site.now_s)
            if each.standing is not None and each.standing.has_begun
        }
        for number, transfer in running.items():
            if number not in site.moving:
                # What it got before is not known.
                self._deadlines.take(transfer).has_planned_rate = False
        for live in site.live.values():
            self.arrange(live)
        self._recollect()

    def _recollect(self) -> None:
        """What nodes have said before the state was loaded again: they will not say it twice."""
        site = self._site
        for live in site.live.values():
            # As it was before the restart, where a node has not said anything since.
            live.ready = {
                node
                for node in (live.nodes if live.name in site.book.entries else ())
                if self._node_orders.has_copy(node, live.name)
                or (node in live.ready and not self._node_orders.has_spoken(node))
            }
        for moving in list(site.moving.values()):
            users = [
                site.live[name] for name in self._deadlines.users(moving.transfer.number) if name in site.live
            ]
            moving.left -= {node for live in users for node in live.ready}
            if not moving.left:
                self._end(moving)
        for live in site.live.values():
            if live.is_ready and live.record.state is not State.ACTIVE:
                self._alarms.ready(live)

    def arrange(self, live: Live) -> None:
        """Let nodes know what a reservation needs of them now, and no longer needs."""
        site = self._site
        entry = site.book.entries.get(live.name)
        if entry is None:
            return
        names = site.book.timeline.nodes
        for node in site.book.brought_later(live.name):
            # It is moved or changed: what it has there, or was to have, leaves its room to others meanwhile.
            self._node_orders.drop(names[node].name, live.name, site.now_s)
        for node, life in entry.lives:
            if not entry.is_own(life):
                continue
            if life.transfer is None or life.transfer in site.moving:
                self._need(live, names[node].name, life.transfer)
            elif layers := entry.counted_on(life):
                # What others have of it there must not go before the rest has come.
                self._need(live, names[node].name, None, layers)
        reservation = live.reservation
        self._agenda.add(max(reservation.start_s, site.now_s), Topic.BEGIN, live.name)
        self._agenda.add(max(reservation.end_s, site.now_s), Topic.END, live.name)
        self._agenda.add(max(begin_s(reservation.start_s), site.now_s), Topic.WATCH, live.name)

    def look_again(self, live: Live) -> None:
        """Its time has come: let its nodes say once more that its image is there."""
        for name in live.nodes:
            if self._node_orders.has_copy(name, live.name):
                self._node_orders.hurry(name, live.name, self._site.now_s)

    def release(self, live: Live, nodes: tuple[str, ...]) -> None:
        """These nodes need nothing of a reservation's any more."""
        for name in nodes:
            self._node_orders.drop(name, live.name, self._site.now_s, is_stopped=True)

    def run_link(self) -> None:
        """Begin what the plan says, deal with what should have ended by now, and tell who will be late."""
        self._run_link()
        site = self._site
        for transfer, latest_s in site.book.link.latest_starts(site.now_s):
            # The time of the plan is over before its turn came: a clock was set, or nothing ran.
            late_s = site.now_s - latest_s
            for name in self._deadlines.users(transfer.number):
                if name in site.live:
                    what = f"transfer {transfer.number} of image {transfer.image.uri}"
                    words = f"{what} should have begun {late_s} s ago"
                    self._alarms.endanger(site.live[name], words)

    def next_s(self) -> int | None:
        """When the link's next transfer begins, or the running one should have ended."""
        return self._site.book.link.next_event_s(self._site.now_s)

    def arrived(self, number: int, node: str) -> None:
        """A transfer has brought its image to a node."""
        site = self._site
        moving = site.moving.get(number)
        if moving is None:
            return
        moving.left.discard(node)
        if not moving.left:
            self._end(moving)

    def prune(self) -> None:
        """Do not wait for copies under way that nobody needs any more."""
        site = self._site
        for number, moving in list(site.moving.items()):
            needed = {
                site.book.timeline.nodes[node].name
                for node, life in site.book.lives_of(number)
                if self._is_promised(life)
            }
            moving.given_up |= moving.left - needed
            moving.left &= needed
            if moving.left:
                self._lose_given_up(moving, site.book.lives_of(number))
            else:
                self._end(moving, TransferState.DONE if needed else TransferState.FAILED)

    def _lose_given_up(self, moving: Moving, lives: Iterable[tuple[int, Life]]) -> None:
        """Nobody may count on a copy that a transfer does not bring any more."""
        site = self._site
        for node, life in tuple(lives):
            name = site.book.timeline.nodes[node].name
            if name in moving.given_up and not self._is_promised(life):
                if life.transfer is not None:
                    site.book.uncarry(life.transfer, life)
                site.book.pools.lose(node, life)
                self._events.publish(CopyLost(name, life.image.key))

    def _run_link(self) -> None:
        site, link = self._site, self._site.book.link
        for transfer, end_s in link.under_way():
            if end_s <= site.now_s:
                self._overdue(transfer)
        while (following := link.next_start(site.now_s)) is not None and following[0] <= site.now_s:
            for number in link.aside:
                self._deadlines.set_rate(site.moving[number], self._deadlines.aside_rate(site.moving[number]))
            self._begin(link.begin(following[1], site.now_s))
        if not link.under_way():
            for number in link.aside:
                # Nobody else needs the link now.
                moving = site.moving[number]
                self._deadlines.set_rate(moving, self._deadlines.whole_rate(moving.transfer))

    def _begin(self, transfer: Transfer) -> None:
        site = self._site
        site.book.transfer_begun(transfer.number, site.now_s)
        self._deadlines.take(transfer)
        site.touch([transfer.number])
        self._log.info(
            "transfer begins",
            transfer=transfer.number,
            image=transfer.image.uri,
            node=",".join(transfer.nodes[:8]),
            bytes=transfer.image.size_bytes,
            deadline_s=transfer.deadline_s,
        )
        for name in self._deadlines.users(transfer.number):
            live = site.live.get(name)
            if live is None:
                continue
            self.arrange(live)
            if live.record.state is State.ACCEPTED:
                site.change(live, state=State.PREPARING)
        self._events.publish(TransferBegun(transfer.number))

    def _overdue(self, transfer: Transfer) -> None:
        """The planned time of a transfer is over: it gets more, or goes on beside the plan."""
        site, link = self._site, self._site.book.link
        moving = site.moving[transfer.number]
        left_s = max(1, min(LONGEST_EXTENSION_S, self._deadlines.left_s(moving)))
        if link.would_delay(transfer.number, site.now_s + left_s):
            # Whoever comes next would be late for this one.
            site.book.links.set_aside(transfer.number, site.now_s)
            moving.is_aside = True
            site.touch([transfer.number])
            self._alarms.watch_link(moving, self._deadlines.slowest(moving)[0])
            # It has had its time: what it takes from now on must not be missed by others.
            self._deadlines.set_rate(moving, self._deadlines.aside_rate(moving))
            self._log.warning("transfer goes on beside the plan", transfer=transfer.number)
            return
        link.extend(transfer.number, site.now_s + left_s)
        self._alarms.judge(moving)

    def _end(self, moving: Moving, state: TransferState = TransferState.DONE) -> None:
        site, number = self._site, moving.transfer.number
        (kept,) = keep_transfers(site.book, site.now_s, [number])
        site.book.links.end(number, site.now_s)
        del site.moving[number]
        users = self._deadlines.users(number)
        self._lose_given_up(moving, site.book.transfer_done(number, site.now_s))
        if state is TransferState.DONE:
            site.done_transfer(kept)
        else:
            site.end_transfers([number], state)
        for name in users:
            entry, live = site.book.entries.get(name), site.live.get(name)
            if entry is not None and live is not None:
                if live.kept.brought:
                    site.change(live, receipt=live.kept)
                self.arrange(live)
        took_s, planned_s = site.now_s - moving.begun_s, moving.transfer.duration_s
        if state is TransferState.DONE:
            self._meter.observe("outrider_transfer_seconds", took_s)
            self._meter.count("outrider_link_bytes_total", by=moving.transfer.image.size_bytes)
            self._log.info("transfer ended", transfer=number, seconds=took_s, planned_s=planned_s)
            self._alarms.watch_link(moving, moving.transfer.image.size_bytes)
        else:
            self._log.info("transfer given up", transfer=number, seconds=took_s, planned_s=planned_s)
        self.run_link()

    def _is_promised(self, life: Life) -> bool:
        """Whether a reservation needs a copy: that jobs would like it, too, brings it nowhere."""
        return not self._site.book.entries.keys().isdisjoint(life.users)

    def _mirror(self, transfer: Transfer) -> str:
        """Where an image is to come from, if not from its own address."""
        address = self._deadlines.server(transfer)
        return "" if address == transfer.image.uri else address

    def _upstream(self, transfer: Transfer, node: str) -> tuple[str, ...]:
        """Whoever is before a node in its chain, but for those that its reservations have left, and to which
        best effort alone brings the image now: as slowly as it may."""
        before = before_in_chain(transfer.nodes, node)
        statuses, digest = self._node_orders.statuses, transfer.image.key
        return tuple(
            name
            for name in before
            if name not in statuses or not is_best_effort_alone(statuses[name], digest)
        )

    def _need(self, live: Live, node: str, transfer: int | None, layers: tuple[str, ...] = ()) -> None:
        site, document = self._site, live.document
        moving = None if transfer is None else site.moving[transfer]
        status = self._node_orders.statuses.get(node)
        before = None if status is None else status.needs.get(live.name)
        until_s = live.reservation.end_s + site.settings.grace_s
        terms = transfer, until_s, layers
        if before is not None and (before.transfer, before.until_s, before.layers) == terms:
            return
        if layers and before is not None and not before.layers:
            # What was there, or was to be, is brought later now.
            self._node_orders.drop(node, live.name, site.now_s)
        need = Need(
            owner=live.name,
            digest=document.digest,
            uri=document.uri,
            size_bytes=document.size_bytes,
            format=document.format,
            readers=document.readers,
            until_s=until_s,
            transfer=transfer,
            layers=layers,
            deadline_s=None if moving is None else moving.transfer.deadline_s,
            rate_bytes_per_s=None if moving is None else moving.rate_bytes_per_s,
            copy_from_s=copy_begin_s(live.reservation.start_s, document.size_bytes),
            mirror="" if moving is None else self._mirror(moving.transfer),
            upstream=() if moving is None else self._upstream(moving.transfer, node),
        )
        self._node_orders.need(node, need, site.now_s)
