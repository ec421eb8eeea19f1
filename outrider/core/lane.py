"""Best-effort transfers on the link that deadlines leave: first come, first served.

One at a time has the link. It has all of it while nothing with a deadline is sent, and beside such
a transfer the rate that the site sets aside for best effort, which may be nothing: deadlines are
planned as if only the rest existed. So no best effort ever makes a deadline late, and when a
best-effort transfer will end is an expectation, never a promise.

It is not the `FifoLink` of the thesis, whose transfers last as long as planned: here they last as
long as nodes say, may be taken back, and, where nodes relay, take more nodes on board until they
have come half of their way, which costs the link nothing (piggybacking, thesis, section 6.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from outrider.core.model import Image
from outrider.core.staging.deadline import DeadlineLink

MOST_SLOTS = 500
"""So many deadlines ahead are looked at: what is behind them is expected too early."""

Slots = tuple[tuple[int, int], ...]
"""From when to when transfers with deadlines have the link, in order."""


@dataclass(slots=True)
class Cargo:
    """One image on its way to nodes, in the order in which they pass it on.

    Its number is negative: those with deadlines are counted from 1.
    """

    number: int
    image: Image
    nodes: list[int]
    left_bytes: int
    begun_s: int | None = None
    arrived: set[int] = field(default_factory=set)

    @property
    def left(self) -> list[int]:
        """The nodes that do not have it yet."""
        return [node for node in self.nodes if node not in self.arrived]


class Lane:
    """What waits, what runs, and what goes on beside because it takes too long."""

    def __init__(self, *, rate_bytes_per_s: int, beside_rate_bytes_per_s: int, is_relay: bool) -> None:
        if not 0 <= beside_rate_bytes_per_s < rate_bytes_per_s:
            raise ValueError(
                f"{beside_rate_bytes_per_s} of {rate_bytes_per_s} bytes/s for best effort leave deadlines "
                "nothing: set aside less"
            )
        self.rate_bytes_per_s = rate_bytes_per_s
        self.beside_rate_bytes_per_s = beside_rate_bytes_per_s
        self.is_relay = is_relay
        self.running: Cargo | None = None
        self.waiting: list[Cargo] = []
        self.aside: list[Cargo] = []
        self._all: dict[int, Cargo] = {}
        self._last = 0

    def add(self, image: Image, nodes: Iterable[int]) -> list[tuple[int, Cargo]]:
        """Bring an image to more nodes; each with the transfer that does."""
        nodes = list(nodes)
        if not nodes:
            return []
        if not self.is_relay:
            return [(node, self._new(image, [node])) for node in nodes]
        cargo = self._boarded(image)
        if cargo is None:
            cargo = self._new(image, nodes)
        else:
            cargo.nodes += [node for node in nodes if node not in cargo.nodes]
            cargo.arrived.difference_update(nodes)
            cargo.left_bytes = image.size_bytes
        return [(node, cargo) for node in nodes]

    def begin(self, now_s: int) -> Cargo:
        """The first that waits begins."""
        if self.running is not None:
            raise ValueError(f"transfer {self.running.number} still has the link")
        self.running = self.waiting.pop(0)
        self.running.begun_s = now_s
        return self.running

    def set_aside(self) -> None:
        """What runs takes too long: it goes on beside the others, and the next may begin."""
        if self.running is not None:
            self.aside.append(self.running)
            self.running = None

    def take_up(self) -> None:
        """What was set aside first has the link again, since nobody else wants it."""
        if self.running is None and self.aside:
            self.running = self.aside.pop(0)

    def leave(self, cargo: Cargo, node: int) -> None:
        """A node does not wait for a transfer any more. What nobody waits for is over."""
        if node in cargo.nodes:
            cargo.nodes.remove(node)
        cargo.arrived.discard(node)
        self._end_if_over(cargo)

    def arrive(self, cargo: Cargo, node: int) -> None:
        """An image has come to a node."""
        cargo.arrived.add(node)
        self._end_if_over(cargo)

    def find(self, number: int) -> Cargo | None:
        return self._all.get(number)

    def all(self) -> Iterator[Cargo]:
        """All that has not ended, what runs first."""
        yield from self.aside
        if self.running is not None:
            yield self.running
        yield from self.waiting

    def ends(self, slots: Slots, now_s: int) -> dict[int, int]:
        """When each transfer is expected to end, by number, if nothing else is added."""
        found = {each.number: self._sent(each.left_bytes, slots, now_s) for each in self.aside}
        ahead_bytes = 0
        for each in ([self.running] if self.running is not None else []) + self.waiting:
            ahead_bytes += each.left_bytes
            found[each.number] = self._sent(ahead_bytes, slots, now_s)
        return found

    def end_if_added(self, image: Image, count: int, slots: Slots, now_s: int) -> int:
        """When the last of `count` more nodes would have an image that is asked for now."""
        if self.is_relay:
            boarded, ahead_bytes = self._boarded(image), 0
            for each in ([self.running] if self.running is not None else []) + self.waiting:
                if each is boarded:
                    break
                ahead_bytes += each.left_bytes
            return self._sent(ahead_bytes + image.size_bytes, slots, now_s)
        ahead_bytes = sum(each.left_bytes for each in self.waiting)
        ahead_bytes += 0 if self.running is None else self.running.left_bytes
        return self._sent(ahead_bytes + count * image.size_bytes, slots, now_s)

    def _boarded(self, image: Image) -> Cargo | None:
        """What takes more nodes on board: a relay that waits, or that has not come far yet. Later ones
        would keep those that wait from the link for ever."""
        running = self.running
        is_same = running is not None and running.image.key == image.key
        if running is not None and is_same and 2 * running.left_bytes >= image.size_bytes:
            return running
        return next((each for each in self.waiting if each.image.key == image.key), None)

    def _new(self, image: Image, nodes: list[int]) -> Cargo:
        self._last -= 1
        cargo = Cargo(number=self._last, image=image, nodes=nodes, left_bytes=image.size_bytes)
        self.waiting.append(cargo)
        self._all[cargo.number] = cargo
        return cargo

    def _end_if_over(self, cargo: Cargo) -> None:
        if cargo.left:
            return
        self._all.pop(cargo.number, None)
        if cargo is self.running:
            self.running = None
        self.waiting = [each for each in self.waiting if each is not cargo]
        self.aside = [each for each in self.aside if each is not cargo]

    def _sent(self, ahead_bytes: int, slots: Slots, now_s: int) -> int:
        """When so many bytes of best effort will have been sent, by the plan of deadlines as it is."""
        clock_s, missing = now_s, ahead_bytes
        for start_s, end_s in slots:
            gap = max(0, start_s - clock_s) * self.rate_bytes_per_s
            if missing <= gap:
                break
            missing -= gap
            beside = max(0, end_s - max(start_s, clock_s)) * self.beside_rate_bytes_per_s
            if missing <= beside:
                return max(start_s, clock_s) + -(-missing // self.beside_rate_bytes_per_s)
            missing -= beside
            clock_s = max(clock_s, end_s)
        return clock_s + -(-max(0, missing) // self.rate_bytes_per_s)


def slots_of(link: DeadlineLink, now_s: int) -> Slots:
    """When deadlines have the link, as it is planned now."""
    running = [(now_s, max(now_s, link.busy_until_s))] if link.running is not None else []
    planned = link.planned(now_s, MOST_SLOTS)
    return (*running, *((start_s, start_s + each.duration_s) for each, start_s in planned))
