"""Best-effort transfers carried out: begun when the link is free, held back while deadlines have it.

Nodes say what has arrived; what this does with it is the lane's business. Nothing here is written
down: after a restart jobs are looked at anew, and what has arrived stays.
"""

from __future__ import annotations

from collections.abc import Callable

from outrider.core.lane import Cargo, Lane, Slots, slots_of
from outrider.core.reuse import Life
from outrider.service.desk.led import Led
from outrider.service.desk.member import Need
from outrider.service.desk.site import Site
from outrider.service.desk.staff import Staff
from outrider.service.meter import Log, Meter

TRICKLE_SHARE = 1_000
"""The part of the link, as a divisor, that keeps a connection alive while deadlines have the link."""
ASIDE_SHARE = 10
GUARD_S = 5
"""Nothing is begun when a deadline's transfer is about to begin."""
STUCK_S = 60
"""After so long without a byte a transfer no longer keeps the link from others."""


class Hauling:
    """The lane and the nodes that it brings images to."""

    def __init__(self, site: Site, staff: Staff, log: Log, meter: Meter) -> None:
        settings = site.settings
        self._site = site
        self._staff = staff
        self._log = log
        self._meter = meter
        self.lane = Lane(
            rate_bytes_per_s=settings.link_rate_bytes_per_s,
            beside_rate_bytes_per_s=settings.best_effort_rate_bytes_per_s,
            is_relay=settings.shipping == "relay",
        )
        self._users: dict[tuple[int, int], dict[str, Led]] = {}
        """By transfer and node, the jobs that wait for a copy."""
        self._rates: dict[int, int] = {}
        self._moved: dict[int, tuple[int, int]] = {}
        """By transfer, the bytes that were left, and when that last changed."""

    @property
    def is_under_way(self) -> bool:
        return self.lane.running is not None or bool(self.lane.aside or self.lane.waiting)

    def slots(self) -> Slots:
        return slots_of(self._site.book.link, self._site.now_s)

    def join(self, led: Led, node: int, life: Life) -> None:
        """A job counts on a copy: there, on its way, or to be brought."""
        if life.transfer is not None:
            led.via[node] = life.transfer
            self._users.setdefault((life.transfer, node), {})[led.key] = led
        self.place(led, node, life)

    def part(self, led: Led, node: int, *, is_stopped: bool) -> None:
        """A job does not count on a copy any more."""
        number = led.via.pop(node, None)
        if number is not None:
            self._drop_user(number, node, led)
        self._staff.drop(self._name(node), led.owner, self._site.now_s, is_stopped=is_stopped)

    def place(self, led: Led, node: int, life: Life) -> None:
        """Let a node know what a job needs of it, unless its transfer has not begun."""
        image, number = led.image, life.transfer
        assert image is not None
        cargo = self.lane.find(number) if number is not None and number < 0 else None
        if cargo is not None and cargo.begun_s is None:
            return
        if number is not None and number > 0 and number not in self._site.moving:
            return
        member = self._staff.members.get(self._name(node))
        before = None if member is None else member.needs.get(led.owner)
        if before is not None and before.digest == image.digest:
            is_same = before.transfer == number or number is None
            if is_same and before.until_s == led.until_s:
                return
            number = before.transfer if number is None else number
        self._staff.need(
            self._name(node),
            Need(
                owner=led.owner,
                digest=image.digest,
                uri=image.uri,
                size_bytes=image.size_bytes,
                format=image.format,
                readers=image.readers,
                until_s=led.until_s,
                transfer=number,
                rate_bytes_per_s=None if cargo is None else self._rate(cargo),
                upstream=() if cargo is None else self._upstream(cargo, node),
            ),
            self._site.now_s,
        )

    def deadline_begun(self, number: int) -> None:
        """A transfer with a deadline has begun: jobs that count on it say so to its nodes."""
        for (transfer, node), users in list(self._users.items()):
            for led in list(users.values()) if transfer == number else ():
                if node in led.copies:
                    self.place(led, node, led.copies[node])

    def arrived(self, led: Led, node: int) -> list[Led]:
        """A job's image is on a node: for all who waited for the same transfer there, too."""
        life, number = led.copies[node], led.via.get(node)
        if number is None:
            return [led]
        users = list(self._users.pop((number, node), {}).values())
        for each in users:
            each.via.pop(node, None)
        if number < 0:
            life.transfer = None
            life.ready_s = min(life.ready_s, self._site.now_s)
            self._site.book.pools.arrived(number, node, life)
            cargo = self.lane.find(number)
            if cargo is not None:
                self.lane.arrive(cargo, node)
                self._meter.count("outrider_best_effort_copies_total")
                if self.lane.find(number) is None:
                    self._ended(cargo)
        return users if led in users else [*users, led]

    def moved(self, led: Led, node: int) -> None:
        """Bytes have arrived, or have not."""
        life = led.copies.get(node)
        cargo = None if life is None or life.transfer is None else self.lane.find(life.transfer)
        if cargo is None or cargo.begun_s is None:
            return
        left = cargo.image.size_bytes - min(self._arrived_bytes(cargo, each) for each in cargo.left)
        before = self._moved.get(cargo.number)
        if before is None or left < before[0]:
            self._moved[cargo.number] = (left, self._site.now_s)
        cargo.left_bytes = left

    def failed(self, led: Led, node: int) -> None:
        """Nothing comes to a node for now: others that wait have the link, if nothing comes to any."""
        life = led.copies.get(node)
        cargo = None if life is None or life.transfer is None else self.lane.find(life.transfer)
        if cargo is not None and cargo is self.lane.running and not any(map(self._rate_of(cargo), cargo.left)):
            self._moved[cargo.number] = (cargo.left_bytes, self._site.now_s - STUCK_S)

    def run(self) -> None:
        """Begin what may begin, and see to it that deadlines have what they were planned with."""
        lane, site = self.lane, self._site
        if lane.running is not None and lane.waiting and self._is_stuck(lane.running):
            self._log.warning("best-effort transfer takes too long", transfer=lane.running.number)
            lane.set_aside()
        while lane.running is None and lane.waiting and self._may_begin():
            cargo = lane.begin(site.now_s)
            self._moved[cargo.number] = (cargo.left_bytes, site.now_s)
            self._rates[cargo.number] = self._rate(cargo)
            self._log.info(
                "best-effort transfer begins",
                transfer=cargo.number,
                image=cargo.image.uri,
                node=",".join(self._name(node) for node in cargo.nodes[:8]),
                bytes=cargo.image.size_bytes,
            )
            for node in cargo.nodes:
                for led in list(self._users.get((cargo.number, node), {}).values()):
                    self.place(led, node, led.copies[node])
        if lane.running is None and lane.aside and not lane.waiting and self._may_begin():
            lane.take_up()
        for cargo in [*lane.aside, *([lane.running] if lane.running is not None else [])]:
            self._set_rate(cargo)

    def next_s(self) -> int | None:
        """When to look again although nothing has happened."""
        lane, now_s = self.lane, self._site.now_s
        if lane.running is not None and lane.waiting:
            return max(now_s + 1, self._moved[lane.running.number][1] + STUCK_S)
        return now_s + GUARD_S if lane.waiting else None

    def left(self, cargo: Cargo) -> None:
        """A transfer has lost a node, and perhaps its last."""
        if self.lane.find(cargo.number) is None:
            self._ended(cargo)

    def users(self, cargo: Cargo) -> list[str]:
        """The jobs that wait for a transfer."""
        return sorted({key for node in cargo.nodes for key in self._users.get((cargo.number, node), {})})

    def _ended(self, cargo: Cargo) -> None:
        self._rates.pop(cargo.number, None)
        self._moved.pop(cargo.number, None)
        if cargo.begun_s is not None and cargo.arrived:
            self._meter.count("outrider_link_bytes_total", by=cargo.image.size_bytes)
            seconds = self._site.now_s - cargo.begun_s
            self._log.info("best-effort transfer ended", transfer=cargo.number, seconds=seconds)

    def _drop_user(self, number: int, node: int, led: Led) -> None:
        users = self._users.get((number, node))
        if users is not None:
            users.pop(led.key, None)
            if users:
                return
            del self._users[number, node]
        cargo = self.lane.find(number)
        if cargo is not None:
            # Nobody waits for it there: the others need not wait for that node.
            self.lane.leave(cargo, node)
            self.left(cargo)

    def _may_begin(self) -> bool:
        """Whether the link is free for best effort, or some of it always is."""
        site = self._site
        if self.lane.beside_rate_bytes_per_s:
            return True
        following = site.book.link.next_start(site.now_s)
        return not site.moving and (following is None or following[0] > site.now_s + GUARD_S)

    def _rate(self, cargo: Cargo) -> int:
        lane = self.lane
        full = lane.rate_bytes_per_s
        if self._site.moving:
            full = max(lane.beside_rate_bytes_per_s, full // TRICKLE_SHARE, 1)
        return max(1, full // ASIDE_SHARE) if cargo in lane.aside else full

    def _set_rate(self, cargo: Cargo) -> None:
        rate = self._rate(cargo)
        if self._rates.get(cargo.number) == rate:
            return
        self._rates[cargo.number] = rate
        left, _ = self._moved[cargo.number]
        # What was held back is not stuck.
        self._moved[cargo.number] = (left, self._site.now_s)
        for node in cargo.left:
            for led in self._users.get((cargo.number, node), {}).values():
                member = self._staff.members.get(self._name(node))
                need = None if member is None else member.needs.get(led.owner)
                if need is not None and need.transfer == cargo.number and not need.is_there:
                    need.rate_bytes_per_s, need.is_told = rate, False
                    self._staff.hurry(self._name(node), led.owner, self._site.now_s)

    def _is_stuck(self, cargo: Cargo) -> bool:
        is_full = self._rate(cargo) * TRICKLE_SHARE > self.lane.rate_bytes_per_s
        return is_full and self._site.now_s - self._moved[cargo.number][1] >= STUCK_S

    def _arrived_bytes(self, cargo: Cargo, node: int) -> int:
        member = self._staff.members.get(self._name(node))
        found = [0]
        for led in self._users.get((cargo.number, node), {}).values():
            need = None if member is None else member.needs.get(led.owner)
            if need is not None and need.digest == cargo.image.digest:
                found.append(need.arrived_bytes)
        return max(found)

    def _rate_of(self, cargo: Cargo) -> Callable[[int], int]:
        """How fast a transfer's image arrives on a node."""

        def rate(node: int) -> int:
            member = self._staff.members.get(self._name(node))
            needs = [] if member is None else member.needs.values()
            return max((each.rate for each in needs if each.transfer == cargo.number), default=0)

        return rate

    def _upstream(self, cargo: Cargo, node: int) -> tuple[str, ...]:
        place = cargo.nodes.index(node) if node in cargo.nodes else 0
        return tuple(self._name(each) for each in reversed(cargo.nodes[:place]))

    def _name(self, node: int) -> str:
        return self._site.book.timeline.nodes[node].name
