"""Best-effort transfers on the link that deadlines leave: users take turns.

One at a time has the link. It has all of it while nothing with a deadline is sent, and beside such
a transfer the rate that the site sets aside for best effort, which may be nothing: deadlines are
planned as if only the rest existed. So no best effort ever makes a deadline late, and when a
best-effort transfer will end is an expectation, never a promise.

Next is the user who has had least of the link, and of what is that user's the first that was asked
for. After a turn a transfer gives way to another user's, and goes on when it is its user's turn
again. Among one user's it is first come, first served.

It is not the `FifoLink` of the thesis, whose transfers last as long as planned: here they last as
long as nodes say, may be taken back, and, where nodes relay, accept more nodes until they have
sent half, which costs the link nothing (piggybacking, thesis, section 6.3.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from outrider.core.links.fair_shares import NOBODY, FairShares
from outrider.core.links.schedule import DeadlineSchedule
from outrider.core.model import Image

MOST_SLOTS = 500
"""So many deadlines ahead are looked at: what is behind them is expected too early."""

TURN_S = 60
"""For so long one transfer has the link while another user waits for it."""
MOST_PARTS = 8
"""Into so many turns a long transfer is taken apart where it is expected when others will end."""

Slots = tuple[tuple[int, int], ...]
"""From when to when transfers with deadlines have the link, in order."""


@dataclass(slots=True)
class BestEffortTransfer:
    """One image on its way to nodes, in the order in which they pass it on.

    Its number is one of those of its class (`TransferClass`).
    """

    number: int
    image: Image
    nodes: list[int]
    left_bytes: int
    begun_s: int | None = None
    arrived: set[int] = field(default_factory=set)
    users: dict[int, int] = field(default_factory=dict)
    """Who waits for it, and for how many jobs and nodes."""

    @property
    def left(self) -> list[int]:
        """The nodes that do not have it yet."""
        return [node for node in self.nodes if node not in self.arrived]


@dataclass(frozen=True, slots=True)
class _Expected:
    """Turns in the order in which they are expected: what a user will have had by the beginning of each,
    what will have been sent by its end, and by number the place of each transfer's last one."""

    starts: list[tuple[int, int]]
    sent: list[int]
    last: dict[int, int]
    ahead: dict[int, int]
    """By user, what has been had and is still to come."""


class BestEffortLink:
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
        self.running: BestEffortTransfer | None = None
        self.waiting: list[BestEffortTransfer] = []
        self.aside: list[BestEffortTransfer] = []
        self._all: dict[int, BestEffortTransfer] = {}
        self._last = 0
        self._turns = FairShares()
        self._turn_bytes = 0
        """What was had in the turn that is under way."""
        self._expected: _Expected | None = None
        """None if something has changed since it was worked out."""

    def add(self, image: Image, nodes: Iterable[int]) -> list[tuple[int, BestEffortTransfer]]:
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
        self._expected = None
        return [(node, cargo) for node in nodes]

    def join(self, cargo: BestEffortTransfer, user: int) -> None:
        """A user waits for a transfer, with one more job or node."""
        if user not in cargo.users and cargo not in self.aside:
            self._turns.come(user)
        cargo.users[user] = cargo.users.get(user, 0) + 1
        self._expected = None

    def part(self, cargo: BestEffortTransfer, user: int) -> None:
        """A user waits for it with one less."""
        if user not in cargo.users:
            # It is over.
            return
        cargo.users[user] -= 1
        if not cargo.users[user]:
            del cargo.users[user]
            if cargo not in self.aside:
                self._turns.go(user)
        self._expected = None

    def begin(self, now_s: int) -> BestEffortTransfer:
        """The next transfer has the link: it begins, or goes on."""
        if self.running is not None:
            raise ValueError(f"transfer {self.running.number} still has the link")
        index = self._next()
        self.running = self.waiting.pop(index)
        if self.running.begun_s is None:
            self.running.begun_s = now_s
        self._turn_bytes = 0
        self._expected = None
        return self.running

    def charge(self, size_bytes: int) -> None:
        """What runs has had so much of the link: bytes, or the time that they would have taken."""
        if self.running is not None:
            self._turns.charge(self.running.users, size_bytes)
            self._turn_bytes += size_bytes
            self._expected = None

    def moved(self, cargo: BestEffortTransfer, left_bytes: int) -> None:
        """So much is left of a transfer."""
        if left_bytes != cargo.left_bytes:
            cargo.left_bytes = left_bytes
            self._expected = None

    @property
    def is_turn_over(self) -> bool:
        """Whether what runs has had its turn, and somebody waits who has had less."""
        if self.running is None or self._turn_bytes < self.rate_bytes_per_s * TURN_S:
            return False
        had = self._turns.had(self._user(self.running))
        return any(self._turns.had(self._user(each)) < had for each in self.waiting)

    def give_way(self) -> None:
        """What runs waits for its user's next turn."""
        if self.running is not None:
            self.waiting.insert(0, self.running)
            self.running = None
            self._expected = None

    def set_aside(self) -> None:
        """What runs takes too long: it goes on beside the others, and the next may begin."""
        if self.running is not None:
            # What is expected of others does not depend on it any more.
            for user in self.running.users:
                self._turns.go(user)
            self.aside.append(self.running)
            self.running = None
            self._expected = None

    def take_up(self, cargo: BestEffortTransfer) -> None:
        """What was set aside waits for its turn again: it comes, or nobody else wants the link."""
        self.aside = [each for each in self.aside if each is not cargo]
        for user in cargo.users:
            self._turns.come(user)
        self.waiting.insert(0, cargo)
        self._expected = None

    def leave(self, cargo: BestEffortTransfer, node: int) -> None:
        """A node does not wait for a transfer any more. What nobody waits for is over."""
        if node in cargo.nodes:
            cargo.nodes.remove(node)
        cargo.arrived.discard(node)
        self._end_if_over(cargo)

    def arrive(self, cargo: BestEffortTransfer, node: int) -> None:
        """An image has come to a node."""
        cargo.arrived.add(node)
        self._end_if_over(cargo)

    def find(self, number: int | None) -> BestEffortTransfer | None:
        """What has not ended; None for one with a deadline, too."""
        return None if number is None else self._all.get(number)

    def all(self) -> Iterator[BestEffortTransfer]:
        """All that has not ended, what runs first."""
        yield from self.aside
        if self.running is not None:
            yield self.running
        yield from self.waiting

    def has(self, image: Image) -> bool:
        """Whether an image is on its way, or waits to be."""
        return any(each.image.key == image.key for each in self._all.values())

    def ends(self, slots: Slots, now_s: int) -> dict[int, int]:
        """When each transfer is expected to end, by number, if nothing else is added."""
        expected = self._expect()
        found = {each.number: self._sent(each.left_bytes, slots, now_s) for each in self.aside}
        for number, place in expected.last.items():
            found[number] = self._sent(expected.sent[place], slots, now_s)
        return found

    def end_if_added(self, image: Image, count: int, slots: Slots, now_s: int, *, user: int = NOBODY) -> int:
        """When the last of `count` more nodes would have an image that a user asks for now."""
        expected = self._expect()
        boarded = self._boarded(image) if self.is_relay else None
        if boarded is not None:
            before = expected.sent[expected.last[boarded.number]] - boarded.left_bytes
            return self._sent(before + image.size_bytes, slots, now_s)
        size_bytes = image.size_bytes * (1 if self.is_relay else count)
        had = expected.ahead.get(user, self._level(expected))
        # Its last turn begins when its user has had all but that.
        last_bytes = self._parts(size_bytes)[-1]
        place = bisect_left(expected.starts, (had + size_bytes - last_bytes, self._last_place + 1))
        ahead_bytes = expected.sent[place - 1] if place else 0
        return self._sent(ahead_bytes + size_bytes, slots, now_s)

    @property
    def _last_place(self) -> int:
        return len(self.waiting)

    def _level(self, expected: _Expected) -> int:
        """What somebody who comes anew is taken to have had."""
        users = {self._user(each) for each in (*self._running(), *self.waiting)}
        return min((self._turns.had(each) for each in users), default=0) if expected.starts else 0

    def _expect(self) -> _Expected:
        """In which order the transfers are expected to have the link, a turn at a time."""
        if self._expected is not None:
            return self._expected
        queue = [*self._running(), *self.waiting]
        begun = [(place, each) for place, each in enumerate(queue) if each.begun_s is not None]
        others = [(place, each) for place, each in enumerate(queue) if each.begun_s is None]
        ahead: dict[int, int] = {}
        found: list[tuple[int, int, int, int]] = []
        for place, each in begun + others:
            user = self._user(each)
            had = ahead.get(user, self._turns.had(user))
            for number, part_bytes in enumerate(self._parts(each.left_bytes)):
                is_now = each is self.running and not number
                found.append((-1 if is_now else had, place, part_bytes, each.number))
                had += part_bytes
            ahead[user] = had
        found.sort(key=lambda turn: turn[:2])
        last = {number: place for place, (_, _, _, number) in enumerate(found)}
        self._expected = _Expected(
            starts=[turn[:2] for turn in found],
            sent=list(accumulate(size_bytes for _, _, size_bytes, _ in found)),
            last=last,
            ahead=ahead,
        )
        return self._expected

    def _parts(self, size_bytes: int) -> list[int]:
        """The turns that so many bytes take, at most a few."""
        turn_bytes = max(self.rate_bytes_per_s * TURN_S, -(-size_bytes // MOST_PARTS), 1)
        full, rest = divmod(size_bytes, turn_bytes)
        return [turn_bytes] * full + ([rest] if rest or not full else [])

    def _running(self) -> list[BestEffortTransfer]:
        return [self.running] if self.running is not None else []

    def _user(self, cargo: BestEffortTransfer) -> int:
        """For whom a transfer is: of those who wait for it the one who has had least."""
        return self._turns.first(cargo.users)

    def _next(self) -> int:
        """The place of what is next: what its user asked for first, and begun if anything is."""
        users = [self._user(each) for each in self.waiting]
        first = min(range(len(users)), key=lambda place: (self._turns.had(users[place]), place))
        own = [place for place, user in enumerate(users) if user == users[first]]
        return next((place for place in own if self.waiting[place].begun_s is not None), own[0])

    def _boarded(self, image: Image) -> BestEffortTransfer | None:
        """What accepts more nodes: a relay that waits, or that has sent less than half. Accepting later
        would keep those that wait from the link forever."""
        return next(
            (
                each
                for each in (*self._running(), *self.waiting)
                if each.image.key == image.key
                and (each.begun_s is None or 2 * each.left_bytes >= image.size_bytes)
            ),
            None,
        )

    def _new(self, image: Image, nodes: list[int]) -> BestEffortTransfer:
        self._last -= 1
        cargo = BestEffortTransfer(number=self._last, image=image, nodes=nodes, left_bytes=image.size_bytes)
        self.waiting.append(cargo)
        self._all[cargo.number] = cargo
        self._expected = None
        return cargo

    def _end_if_over(self, cargo: BestEffortTransfer) -> None:
        self._expected = None
        if cargo.left:
            return
        self._all.pop(cargo.number, None)
        users, cargo.users = cargo.users, {}
        for user in users if cargo not in self.aside else ():
            self._turns.go(user)
        if cargo is self.running:
            self.running = None
        self.waiting = [each for each in self.waiting if each is not cargo]
        self.aside = [each for each in self.aside if each is not cargo]

    def _sent(self, ahead_bytes: int, slots: Slots, now_s: int) -> int:
        return when_sent(ahead_bytes, slots, now_s, self.rate_bytes_per_s, self.beside_rate_bytes_per_s)


def when_sent(
    size_bytes: int, slots: Iterable[tuple[int, int]], now_s: int, rate: int, beside_rate: int
) -> int:
    """When so many bytes of best effort will have been sent: at one rate outside the slots of
    deadlines, at another within them."""
    clock_s, missing = now_s, size_bytes
    for start_s, end_s in slots:
        gap = max(0, start_s - clock_s) * rate
        if missing <= gap:
            break
        missing -= gap
        beside = max(0, end_s - max(start_s, clock_s)) * beside_rate
        if missing <= beside:
            return max(start_s, clock_s) + -(-missing // beside_rate)
        missing -= beside
        clock_s = max(clock_s, end_s)
    return clock_s + -(-max(0, missing) // rate)


def slots_of(link: DeadlineSchedule, now_s: int, *, is_taken: bool = True) -> Slots:
    """When deadlines have the link, or any of several, as it is planned now; without what runs if it takes
    nothing of it."""
    found = [(now_s, max(now_s, end_s)) for _, end_s in link.under_way() if is_taken]
    found += [(start_s, start_s + each.duration_s) for each, start_s in link.planned(now_s, MOST_SLOTS)]
    slots: list[tuple[int, int]] = []
    for start_s, end_s in found:
        if slots and start_s < slots[-1][1]:
            slots[-1] = slots[-1][0], max(slots[-1][1], end_s)
        else:
            slots.append((start_s, end_s))
    return tuple(slots)
