"""Best-effort transfers on the link that deadlines leave: users take turns.

One at a time has the link, or in a network its way (`ways`). It has all of it while nothing with a
deadline is sent, and beside such a transfer the rate that the site sets aside for best effort, which
may be nothing: deadlines are planned as if only the rest existed. So no best effort ever makes a
deadline late, and when a best-effort transfer will end is an expectation, never a promise.

Next is the user who has had least of the link, and of what is that user's the first that was asked
for. After a turn a transfer gives way to another user's, and goes on when it is its user's turn
again. Among one user's it is first come, first served. In a network whoever finds no way keeps those
who come later off the links that are on it, so that it is not passed over for ever.

It is not the `FifoLink` of the thesis, whose transfers last as long as planned: here they last as
long as nodes say, may be taken back, and, where nodes relay, accept more nodes until they have
sent half, which costs the link nothing (piggybacking, thesis, section 6.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from outrider.core.links.expected_turns import ExpectedTurn, ExpectedTurns, Slots, when_sent
from outrider.core.links.fair_shares import NOBODY, FairShares
from outrider.core.links.network import Network
from outrider.core.links.ways import BestEffortWay, BestEffortWays, Hop
from outrider.core.model import Image

TURN_S = 60
"""For so long one transfer has the link while another user waits for it."""
MOST_PARTS = 8
"""Into so many turns a long transfer is taken apart where it is expected when others will end."""
MOST_OF_USER = 50
"""So many of each user's are looked at for one that finds a way: no user's many hide those of others."""


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
    way: BestEffortWay | None = None
    """What it had last of the links; None if it has not begun."""
    turn_bytes: int = 0
    """What it has had in the turn that is under way."""

    @property
    def left(self) -> list[int]:
        """The nodes that do not have it yet."""
        return [node for node in self.nodes if node not in self.arrived]


class BestEffortLink:
    """What waits, what runs, and what goes on beside because it takes too long."""

    def __init__(
        self,
        *,
        rate_bytes_per_s: int,
        beside_rate_bytes_per_s: int,
        is_relay: bool,
        network: Network | None = None,
        name_of: Callable[[int], str] = str,
    ) -> None:
        """With a `network` transfers cross its links instead; `name_of` tells how it calls a node."""
        if not 0 <= beside_rate_bytes_per_s < rate_bytes_per_s:
            raise ValueError(
                f"{beside_rate_bytes_per_s} of {rate_bytes_per_s} bytes/s for best effort leave deadlines "
                "nothing: set aside less"
            )
        self.rate_bytes_per_s = rate_bytes_per_s
        self.beside_rate_bytes_per_s = beside_rate_bytes_per_s
        self.is_relay = is_relay
        self.ways = BestEffortWays(
            rate_bytes_per_s=rate_bytes_per_s,
            beside_bytes_per_s=beside_rate_bytes_per_s,
            network=network,
            name_of=name_of,
        )
        self.running: list[BestEffortTransfer] = []
        self.waiting: list[BestEffortTransfer] = []
        self.aside: list[BestEffortTransfer] = []
        self._all: dict[int, BestEffortTransfer] = {}
        self._last = 0
        self._turns = FairShares()
        self._hops: dict[int, tuple[int, tuple[Hop, ...]]] = {}
        """By transfer, what it crosses, and to how many nodes."""
        self._expected: ExpectedTurns | None = None
        """None if something has changed since it was worked out."""

    def add(self, image: Image, nodes: Iterable[int]) -> list[tuple[int, BestEffortTransfer]]:
        """Bring an image to more nodes; each with the transfer that does."""
        nodes = list(nodes)
        if not nodes:
            return []
        if not self.is_relay:
            return [(node, self._new(image, [node])) for node in nodes]
        cargo = self._boarded(image)
        if cargo is not None and self._board(cargo, nodes):
            cargo.arrived.difference_update(nodes)
            cargo.left_bytes = image.size_bytes
        else:
            cargo = self._new(image, nodes)
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

    def begin(
        self,
        now_s: int,
        *,
        avoided: Collection[str] = (),
        may_begin: Callable[[BestEffortWay], bool] = lambda way: True,
    ) -> BestEffortTransfer | None:
        """The next transfer that finds a way has it: it begins, or goes on. None if there is none.

        Lanes that are to be avoided have deadlines' transfers, and `may_begin` says whether a way is free
        enough of those.
        """
        taken = self._taken()
        for each in self._in_turn():
            if taken >= self.ways.origins:
                break
            has = () if each.way is None else each.way.lanes
            way = self.ways.find(each.image, each.nodes, has=has, taken=taken, avoided=avoided)
            if way is None or self._has_others_nodes(each, way):
                taken.update(lane for hop in self._hops_of(each) for lane in hop)
            elif may_begin(way):
                self.waiting = [other for other in self.waiting if other is not each]
                self.running.append(each)
                each.way, each.turn_bytes = way, 0
                if each.begun_s is None:
                    each.begun_s = now_s
                self._expected = None
                return each
        return None

    @property
    def is_taken(self) -> bool:
        """Whether what runs leaves nobody else a way."""
        return self._taken() >= self.ways.origins

    def charge(self, cargo: BestEffortTransfer, size_bytes: int) -> None:
        """What runs has had so much of its way: bytes, or the time that they would have taken."""
        self._turns.charge(cargo.users, size_bytes)
        cargo.turn_bytes += size_bytes
        self._expected = None

    def moved(self, cargo: BestEffortTransfer, left_bytes: int) -> None:
        """So much is left of a transfer."""
        if left_bytes != cargo.left_bytes:
            cargo.left_bytes = left_bytes
            self._expected = None

    def is_turn_over(self, cargo: BestEffortTransfer) -> bool:
        """Whether what runs has had its turn, and somebody waits for the same who has had less."""
        if cargo.turn_bytes < self.rate(cargo) * TURN_S:
            return False
        had = self._turns.had(self._user(cargo))
        return any(
            self._turns.had(self._user(each)) < had for each in self.waiting if self._meet(cargo, each)
        )

    def is_in_the_way(self, cargo: BestEffortTransfer) -> bool:
        """Whether anybody waits for what this one has."""
        return any(self._meet(cargo, each) for each in self.waiting)

    def give_way(self, cargo: BestEffortTransfer) -> None:
        """What runs waits for its user's next turn."""
        self._stop(cargo)
        self.waiting.insert(0, cargo)

    def set_aside(self, cargo: BestEffortTransfer) -> None:
        """What runs takes too long: it goes on beside the others, and the next may begin."""
        self._stop(cargo)
        # What is expected of others does not depend on it any more.
        for user in cargo.users:
            self._turns.go(user)
        self.aside.append(cargo)

    def rate(self, cargo: BestEffortTransfer) -> int:
        """With what it goes if nothing with a deadline is on its way."""
        if cargo.way is not None:
            return cargo.way.rate_bytes_per_s
        return self.ways.rate(cargo.image, cargo.nodes)

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
        self._hops.pop(cargo.number, None)
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
        yield from self.running
        yield from self.waiting

    def has(self, image: Image) -> bool:
        """Whether an image is on its way, or waits to be."""
        return any(each.image.key == image.key for each in self._all.values())

    def ends(self, slots: Slots, now_s: int) -> dict[int, int]:
        """When each transfer is expected to end, by number, if nothing else is added."""
        expected = self._expect()
        found = {each.number: self._sent(each.left_bytes, slots, now_s) for each in self.aside}
        for number, ahead_bytes in expected.ends.items():
            found[number] = self._sent(ahead_bytes, slots, now_s)
        return found

    def end_if_added(self, image: Image, count: int, slots: Slots, now_s: int, *, user: int = NOBODY) -> int:
        """When the last of `count` more nodes would have an image that a user asks for now."""
        expected = self._expect()
        boarded = self._boarded(image) if self.is_relay else None
        if boarded is not None:
            more_bytes = image.size_bytes - boarded.left_bytes
            ahead_bytes = expected.ends[boarded.number] + self._of_whole(more_bytes, self.rate(boarded))
            return self._sent(ahead_bytes, slots, now_s)
        # Which nodes it will be, and behind which links they are, is not known yet.
        rate = self.ways.rate(image, ())
        size_bytes = image.size_bytes * (1 if self.is_relay else count)
        had = expected.ahead.get(user, self._level(expected))
        # Its last turn begins when its user has had all but that.
        last_bytes = self._parts(size_bytes, rate)[-1]
        place = had + size_bytes - last_bytes, len(self.waiting) + 1
        ahead_bytes = expected.free_at(self.ways.hops(image, ()), place)
        return self._sent(ahead_bytes + self._of_whole(size_bytes, rate), slots, now_s)

    def _level(self, expected: ExpectedTurns) -> int:
        """What somebody who comes anew is taken to have had."""
        users = {self._user(each) for each in (*self.running, *self.waiting)}
        return min((self._turns.had(each) for each in users), default=0) if expected else 0

    def _expect(self) -> ExpectedTurns:
        """In which order the transfers are expected to have their ways, a turn at a time."""
        if self._expected is not None:
            return self._expected
        queue = [*self.running, *self.waiting]
        begun = [(place, each) for place, each in enumerate(queue) if each.begun_s is not None]
        others = [(place, each) for place, each in enumerate(queue) if each.begun_s is None]
        ahead: dict[int, int] = {}
        turns: list[ExpectedTurn] = []
        for place, each in begun + others:
            user, rate = self._user(each), self.rate(each)
            had = ahead.get(user, self._turns.had(user))
            is_running = place < len(self.running)
            hops = self._hops_of(each)
            if is_running and each.way is not None:
                hops = tuple((lane,) for lane in sorted(each.way.lanes))
            for number, part_bytes in enumerate(self._parts(each.left_bytes, rate)):
                is_now = is_running and not number
                size = self._of_whole(part_bytes, rate)
                turns.append(ExpectedTurn(-1 if is_now else had, place, size, each.number, hops))
                had += part_bytes
            ahead[user] = had
        self._expected = ExpectedTurns(turns, ahead)
        return self._expected

    def _parts(self, size_bytes: int, rate: int) -> list[int]:
        """The turns that so many bytes take, at most a few."""
        turn_bytes = max(rate * TURN_S, -(-size_bytes // MOST_PARTS), 1)
        full, rest = divmod(size_bytes, turn_bytes)
        return [turn_bytes] * full + ([rest] if rest or not full else [])

    def _of_whole(self, size_bytes: int, rate: int) -> int:
        """What the whole link would send while so much is sent at a rate."""
        return -(-size_bytes * self.rate_bytes_per_s // rate)

    def _user(self, cargo: BestEffortTransfer) -> int:
        """For whom a transfer is: of those who wait for it the one who has had least."""
        return self._turns.first(cargo.users)

    def _in_turn(self) -> Iterator[BestEffortTransfer]:
        """Those that wait, whose turn is next in front: what its user asked for first, and begun if anything
        is."""
        of_user: dict[int, list[BestEffortTransfer]] = {}
        for each in self.waiting:
            of_user.setdefault(self._user(each), []).append(each)
        for user in sorted(of_user, key=self._turns.had):
            own = sorted(of_user[user], key=lambda each: each.begun_s is None)
            yield from own[:MOST_OF_USER]

    def _taken(self) -> set[str]:
        ways = [each.way for each in self.running if each.way is not None]
        return {lane for way in ways for lane in way.lanes}

    def _has_others_nodes(self, cargo: BestEffortTransfer, way: BestEffortWay) -> bool:
        others = [each.way for each in self.running if each.way is not None and each is not cargo]
        return not all(way.nodes.isdisjoint(other.nodes) for other in others)

    def _hops_of(self, cargo: BestEffortTransfer) -> tuple[Hop, ...]:
        count, hops = self._hops.get(cargo.number, (0, ()))
        if count != len(cargo.nodes):
            hops = self.ways.hops(cargo.image, cargo.nodes)
            self._hops[cargo.number] = len(cargo.nodes), hops
        return hops

    def _meet(self, running: BestEffortTransfer, other: BestEffortTransfer) -> bool:
        """Whether one that waits could have lanes or nodes of what runs."""
        assert running.way is not None
        lanes = running.way.lanes
        if any(lane in lanes for hop in self._hops_of(other) for lane in hop):
            return True
        return not set(running.nodes).isdisjoint(other.nodes)

    def _stop(self, cargo: BestEffortTransfer) -> None:
        self.running = [each for each in self.running if each is not cargo]
        self._expected = None

    def _board(self, cargo: BestEffortTransfer, nodes: Iterable[int]) -> bool:
        """Let a relay go to more nodes; False if others have the links before those."""
        together = [*cargo.nodes, *(node for node in nodes if node not in cargo.nodes)]
        if cargo in self.running:
            assert cargo.way is not None
            has = cargo.way.lanes
            way = self.ways.find(cargo.image, together, has=has, taken=self._taken() - has)
            if way is None or self._has_others_nodes(cargo, way):
                return False
            cargo.way = way
        cargo.nodes = together
        self._hops.pop(cargo.number, None)
        return True

    def _boarded(self, image: Image) -> BestEffortTransfer | None:
        """What accepts more nodes: a relay that waits, or that has sent less than half. Accepting later
        would keep those that wait from the link forever."""
        return next(
            (
                each
                for each in (*self.running, *self.waiting)
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
        self._hops.pop(cargo.number, None)
        self._stop(cargo)
        self.waiting = [each for each in self.waiting if each is not cargo]
        self.aside = [each for each in self.aside if each is not cargo]

    def _sent(self, ahead_bytes: int, slots: Slots, now_s: int) -> int:
        return when_sent(ahead_bytes, slots, now_s, self.rate_bytes_per_s, self.beside_rate_bytes_per_s)
