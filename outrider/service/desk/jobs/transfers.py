"""Best-effort transfers carried out: begun when the link is free, held back while deadlines have it.

Nodes say what has arrived; what this does with it is the lane's business. Nothing here is written
down: after a restart jobs are looked at anew, and what has arrived stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cachemgr.base.shares import Share
from outrider.core.images.pools import Life
from outrider.core.links.best_effort import BestEffortLink, BestEffortTransfer
from outrider.core.links.expected_turns import Slots, slots_of
from outrider.core.links.ways import BestEffortWay
from outrider.core.model import Transfer, TransferClass
from outrider.service.desk.events import EventRouter, TransferBegun
from outrider.service.desk.jobs.claims import Claims
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.sources import before_in_chain
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.reservations.transfers import DeadlineTransfers
from outrider.service.desk.state.link_use import LinkUse
from outrider.service.desk.state.site import Moving, Site
from outrider.service.meter import Log, Meter

TRICKLE_SHARE = 1_000
"""The part of the link, as a divisor, that keeps a connection alive while deadlines have the link."""
ASIDE_SHARE = 10
"""The part that all together may take that were set aside."""
ROOM_SHARE = 5
"""The part that is left to deadlines' transfers that take next to nothing: if more comes, it is seen."""
GUARD_S = 5
"""Nothing is begun when a deadline's transfer is about to begin."""
MOST_SOON = 100
"""So many transfers that are about to begin are looked at."""
QUIET_S = 15
"""After so long without a byte a job's user is told."""
STUCK_S = 60
"""After so long without a byte, or without a word from its nodes, a transfer no longer keeps the link
from others; sooner if they say that next to nothing comes."""


@dataclass(slots=True)
class _Turn:
    """The turn that is under way: when and with what left it was looked at, and what was charged."""

    since_s: int
    left_bytes: int
    had_bytes: int = 0
    charged_bytes: int = 0


class BestEffortTransfers:
    """The lane and the nodes that it brings images to."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        deadlines: DeadlineTransfers,
        events: EventRouter,
        log: Log,
        meter: Meter,
    ) -> None:
        settings = site.settings
        self._site = site
        self._node_orders = node_orders
        self._deadlines = deadlines
        self._log = log
        self._meter = meter
        self.lane = BestEffortLink(
            rate_bytes_per_s=settings.link_rate_bytes_per_s,
            beside_rate_bytes_per_s=settings.best_effort_rate_bytes_per_s,
            is_relay=settings.shipping == "relay",
            network=settings.network,
            name_of=self._name,
        )
        self.claims = Claims(settings.user_share_percent)
        self._users: dict[tuple[int, int], dict[str, JobEntry]] = {}
        """By transfer and node, the jobs that wait for a copy."""
        self._rates: dict[int, int] = {}
        self._moved: dict[int, tuple[int, int]] = {}
        """By transfer, the bytes that were left, and when that last changed."""
        self._gauges: dict[int, LinkUse] = {}
        self._turns: dict[int, _Turn] = {}
        """Of those that run."""
        events.subscribe(TransferBegun, self._deadline_begun)

    @property
    def is_under_way(self) -> bool:
        return bool(self.lane.running or self.lane.aside or self.lane.waiting)

    def slots(self) -> Slots:
        site = self._site
        return slots_of(site.book.link, site.now_s, is_taken=self._is_taken())

    def shares(self) -> list[Share]:
        """What users' jobs that wait have claimed of the pools."""
        return self.claims.shares(self._site.book.pools.pools)

    def join(self, entry: JobEntry, node: int, life: Life) -> None:
        """A job counts on a copy: there, on its way, or to be brought."""
        if entry.image is not None:
            self.claims.add(entry.key, entry.job.uid, node, entry.image.digest, entry.image.size_bytes)
        if life.transfer is not None:
            entry.via[node] = life.transfer
            users = self._users.setdefault((life.transfer, node), {})
            cargo = self.lane.find(life.transfer)
            if cargo is not None and entry.key not in users:
                self.lane.join(cargo, entry.job.uid)
            users[entry.key] = entry
        self.place(entry, node, life)

    def part(self, entry: JobEntry, node: int, *, is_stopped: bool, after_s: int = 0) -> None:
        """A job does not count on a copy any more."""
        self.claims.drop(entry.key, node)
        number = entry.via.pop(node, None)
        if number is not None:
            self._drop_user(number, node, entry)
        name, now_s = self._name(node), self._site.now_s
        self._node_orders.drop(name, entry.owner, now_s, is_stopped=is_stopped, after_s=after_s)

    def copiers(self, image_format: str) -> tuple[str, ...]:
        """The nodes on which jobs get full copies of such images; the same list until it changes."""
        return self._node_orders.copiers.of(image_format, self._node_orders.statuses)

    def place(self, entry: JobEntry, node: int, life: Life) -> None:
        """Let a node know what a job needs of it, unless its transfer has not begun."""
        image, number = entry.image, life.transfer
        assert image is not None
        cargo = self.lane.find(number)
        if cargo is not None and cargo.begun_s is None:
            return
        if number is not None and _has_deadline(number) and number not in self._site.moving:
            return
        status = self._node_orders.statuses.get(self._name(node))
        before = None if status is None else status.needs.get(entry.owner)
        if before is not None and before.digest == image.digest:
            is_same = before.transfer == number or number is None
            if is_same and before.until_s == entry.until_s:
                return
            number = before.transfer if number is None else number
        self._node_orders.need(
            self._name(node),
            Need(
                owner=entry.owner,
                digest=image.digest,
                uri=image.uri,
                size_bytes=image.size_bytes,
                format=image.format,
                readers=entry.readers,
                until_s=entry.until_s,
                transfer=number,
                rate_bytes_per_s=None if cargo is None else self._rate(cargo),
                # Before it is released: where it starts, and when, is up to the batch system then. Further
                # images are read from the pool.
                copy_from_s=None if entry.number else 0,
                mirror="" if cargo is None else self._mirror(cargo),
                upstream=() if cargo is None else tuple(map(self._name, before_in_chain(cargo.nodes, node))),
            ),
            self._site.now_s,
        )

    def _mirror(self, cargo: BestEffortTransfer) -> str:
        """Where an image is to come from, if not from its own address."""
        address = self.lane.ways.address(cargo.image, cargo.way)
        return "" if address == cargo.image.uri else address

    def _deadline_begun(self, begun: TransferBegun) -> None:
        """A transfer with a deadline has begun: jobs that count on it say so to its nodes."""
        for (transfer, node), users in list(self._users.items()):
            for entry in list(users.values()) if transfer == begun.number else ():
                if node in entry.copies:
                    self.place(entry, node, entry.copies[node])

    def arrived(self, entry: JobEntry, node: int) -> list[JobEntry]:
        """A job's image is on a node: for all who waited for the same transfer there, too."""
        life, number = entry.copies[node], entry.via.get(node)
        if number is None:
            return [entry]
        users = list(self._users.pop((number, node), {}).values())
        for each in users:
            each.via.pop(node, None)
        if not _has_deadline(number):
            life.transfer = None
            life.ready_s = min(life.ready_s, self._site.now_s)
            self._site.book.pools.arrived(number, node, life)
            cargo = self.lane.find(number)
            if cargo is not None:
                if cargo in self.lane.running and cargo.left == [node]:
                    self.lane.moved(cargo, 0)
                    self._charge()
                for each in users:
                    self.lane.part(cargo, each.job.uid)
                self.lane.arrive(cargo, node)
                self._meter.count("outrider_best_effort_copies_total")
                if self.lane.find(number) is None:
                    self._ended(cargo)
        return users if entry in users else [*users, entry]

    def moved(self, entry: JobEntry, node: int) -> None:
        """Bytes have arrived, or have not."""
        life = entry.copies.get(node)
        cargo = None if life is None else self.lane.find(life.transfer)
        if cargo is None or cargo.begun_s is None:
            return
        left = cargo.image.size_bytes - min(self._arrived_bytes(cargo, each) for each in cargo.left)
        before = self._moved.get(cargo.number)
        if before is None or left < before[0]:
            self._moved[cargo.number] = (left, self._site.now_s)
        self.lane.moved(cargo, left)
        there_bytes = sum(self._arrived_bytes(cargo, each) for each in cargo.left)
        there_bytes += cargo.image.size_bytes * len(cargo.arrived)
        self._gauges[cargo.number].note(self._site.now_s, there_bytes)

    def is_quiet(self, entry: JobEntry, node: int) -> bool:
        """Whether nothing has come for a while of what a node waits for."""
        found = self._moved.get(entry.via.get(node, 0))
        return found is not None and self._site.now_s - found[1] >= QUIET_S

    def failed(self, entry: JobEntry, node: int) -> None:
        """Nothing comes to a node for now: others that wait have the link, if nothing comes to any."""
        life = entry.copies.get(node)
        cargo = None if life is None else self.lane.find(life.transfer)
        if cargo is not None and cargo in self.lane.running and not self._is_coming(cargo):
            self._moved[cargo.number] = (cargo.left_bytes, self._site.now_s - STUCK_S)
            self._gauges[cargo.number].is_idle = True

    def run(self) -> None:
        """Begin what may begin, and see to it that deadlines have what they were planned with."""
        lane = self.lane
        self._charge()
        for cargo in [each for each in lane.aside if not self._is_stuck(each)]:
            lane.take_up(cargo)
        for cargo in list(lane.running) if lane.waiting else ():
            if self._is_stuck(cargo) and lane.is_in_the_way(cargo):
                self._log.warning("best-effort transfer takes too long", transfer=cargo.number)
                lane.set_aside(cargo)
            elif lane.is_turn_over(cargo):
                lane.give_way(cargo)
        self._begin_all()
        if lane.aside and not (lane.running or lane.waiting):
            # Nobody else wants the link.
            way = lane.aside[0].way
            if way is not None and _may_begin(way, self._near()):
                lane.take_up(lane.aside[0])
                self._begin_all()
        for cargo in lane.all():
            if cargo.begun_s is not None:
                self._set_rate(cargo)

    def _begin_all(self) -> None:
        """Let each that finds a way begin, or go on."""
        site, lane = self._site, self.lane
        if not lane.waiting or lane.is_taken:
            return
        near = self._near()
        avoided = {name for each in near for name in each.lanes}
        while (
            cargo := lane.begin(site.now_s, avoided=avoided, may_begin=lambda way: _may_begin(way, near))
        ) is not None:
            self._turns[cargo.number] = _Turn(since_s=site.now_s, left_bytes=cargo.left_bytes)
            if cargo.number not in self._moved:
                self._begun(cargo)

    def _begun(self, cargo: BestEffortTransfer) -> None:
        self._moved[cargo.number] = (cargo.left_bytes, self._site.now_s)
        self._rates[cargo.number] = self._rate(cargo)
        self._gauges[cargo.number] = LinkUse(self._rate(cargo))
        self._log.info(
            "best-effort transfer begins",
            transfer=cargo.number,
            image=cargo.image.uri,
            node=",".join(self._name(node) for node in cargo.nodes[:8]),
            bytes=cargo.image.size_bytes,
        )
        for node in cargo.nodes:
            for entry in list(self._users.get((cargo.number, node), {}).values()):
                self.place(entry, node, entry.copies[node])

    def _charge(self) -> None:
        """What runs has had its rate for so long, whether it came or not; or more, if more came."""
        now_s = self._site.now_s
        for running in self.lane.running:
            turn = self._turns[running.number]
            turn.had_bytes += max(0, now_s - turn.since_s) * self._rates[running.number]
            turn.since_s = now_s
            due_bytes = max(turn.had_bytes, turn.left_bytes - running.left_bytes) - turn.charged_bytes
            if due_bytes > 0:
                turn.charged_bytes += due_bytes
                self.lane.charge(running, due_bytes)

    def next_s(self) -> int | None:
        """When to look again although nothing has happened."""
        lane, now_s = self.lane, self._site.now_s
        return now_s + GUARD_S if lane.waiting else None

    def left(self, cargo: BestEffortTransfer) -> None:
        """A transfer has lost a node, and perhaps its last."""
        if self.lane.find(cargo.number) is None:
            self._ended(cargo)

    def users(self, cargo: BestEffortTransfer) -> list[str]:
        """The jobs that wait for a transfer."""
        entries = [
            each for node in cargo.nodes for each in self._users.get((cargo.number, node), {}).values()
        ]
        return sorted({each.job.key for each in entries})

    def _ended(self, cargo: BestEffortTransfer) -> None:
        self._rates.pop(cargo.number, None)
        self._moved.pop(cargo.number, None)
        self._gauges.pop(cargo.number, None)
        self._turns.pop(cargo.number, None)
        if cargo.begun_s is not None and cargo.arrived:
            self._meter.count("outrider_link_bytes_total", by=cargo.image.size_bytes)
            seconds = self._site.now_s - cargo.begun_s
            self._log.info("best-effort transfer ended", transfer=cargo.number, seconds=seconds)

    def _drop_user(self, number: int, node: int, entry: JobEntry) -> None:
        users = self._users.get((number, node))
        cargo = self.lane.find(number)
        if users is not None:
            if users.pop(entry.key, None) is not None and cargo is not None:
                self.lane.part(cargo, entry.job.uid)
            if users:
                return
            del self._users[number, node]
        if cargo is not None:
            # Nobody waits for it there: the others need not wait for that node.
            self.lane.leave(cargo, node)
            self.left(cargo)

    def _near(self) -> list[Transfer]:
        """The transfers with deadlines that take more than next to nothing, or are about to begin."""
        site = self._site
        moving = [each.transfer for each in site.moving.values() if not self._deadlines.is_idle(each)]
        following = site.book.link.next_start(site.now_s)
        if following is None or following[0] > site.now_s + GUARD_S:
            return moving
        soon = site.book.link.planned(site.now_s, MOST_SOON)
        return moving + [each for each, start_s in soon if start_s <= site.now_s + GUARD_S]

    def _is_taken(self, way: BestEffortWay | None = None) -> bool:
        """Whether transfers with deadlines have the link, or any that is on the way, and take more than next
        to nothing of it."""
        return any(not self._deadlines.is_idle(each) for each in self._moving(way))

    def _moving(self, way: BestEffortWay | None) -> Iterator[Moving]:
        return (each for each in self._site.moving.values() if way is None or way.meets(each.transfer))

    def _rate(self, cargo: BestEffortTransfer) -> int:
        lane, way = self.lane, cargo.way
        assert way is not None
        full = way.rate_bytes_per_s
        trickle = full // TRICKLE_SHARE
        if self._is_taken(way):
            full = max(way.beside_bytes_per_s, trickle)
        elif any(self._moving(way)):
            full -= full // ROOM_SHARE
        if cargo in lane.aside:
            full //= ASIDE_SHARE * len(lane.aside)
        elif cargo not in lane.running:
            # It waits for its user's next turn.
            full = trickle
        return max(1, full)

    def _set_rate(self, cargo: BestEffortTransfer) -> None:
        rate = self._rate(cargo)
        if self._rates.get(cargo.number) == rate:
            return
        self._rates[cargo.number] = rate
        left, _ = self._moved[cargo.number]
        # What was held back is not stuck.
        self._moved[cargo.number] = (left, self._site.now_s)
        self._gauges[cargo.number].allow(rate)
        for node in cargo.left:
            self._node_orders.set_rate(self._name(node), cargo.number, rate, self._site.now_s)

    def _is_stuck(self, cargo: BestEffortTransfer) -> bool:
        """Whether next to nothing comes of what it may take."""
        if self._rates[cargo.number] * TRICKLE_SHARE <= self.lane.rate(cargo):
            return cargo in self.lane.aside
        is_unheard = self._site.now_s - self._moved[cargo.number][1] >= STUCK_S
        return self._gauges[cargo.number].is_idle or is_unheard

    def _arrived_bytes(self, cargo: BestEffortTransfer, node: int) -> int:
        status = self._node_orders.statuses.get(self._name(node))
        return 0 if status is None else status.arrived_bytes(cargo.number)

    def _is_coming(self, cargo: BestEffortTransfer) -> bool:
        """Whether any bytes of a transfer arrive anywhere."""
        statuses = [self._node_orders.statuses.get(self._name(node)) for node in cargo.left]
        return any(need.rate for each in statuses if each is not None for need in each.needs_of(cargo.number))

    def _name(self, node: int) -> str:
        return self._site.book.timeline.nodes[node].name


def _may_begin(way: BestEffortWay, near: Iterable[Transfer]) -> bool:
    """Whether a way is free for best effort, or some of it always is."""
    return bool(way.beside_bytes_per_s) or not any(way.meets(each) for each in near)


def _has_deadline(number: int) -> bool:
    return TransferClass.of(number) is TransferClass.DEADLINE
