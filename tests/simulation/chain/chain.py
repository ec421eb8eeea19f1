"""A chain of nodes in simulated time: the real engine on every node, links and clocks made up.

Each node's transfer is a thread, and one runs at a time: whoever waits gives way to the one whose time comes
first, and of those at one instant to the one further up. So a run is the same each time. Bytes are counted
and not moved. A node passes on what arrives while it arrives, a hop later; streams out of one node share its
link, and a node takes in no more than its own.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from cachemgr.base.errors import CacheError
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Source
from cachemgr.relay.sending import CHUNK_BYTES
from outrider.service.desk.nodes.sources import MOST_UPSTREAM

RATE = 1_250_000
"""Of every link, bytes a second: what counts as being ahead comes in half a second."""
GIGABIT = 125_000_000
HOP_MS = -(-1000 * CHUNK_BYTES // GIGABIT)
"""A relay passes on a chunk at a time."""
ANSWER_MS = 2
EPOCH_S = 1_800_000_000
STACK_BYTES = 256 * 1024
KEPT = 64


class Died(BaseException):
    """A node's end, wherever it is in its transfer."""


class Turns:
    """Simulated time, and who is next."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: list[tuple[int, int]] = []
        self._wakes: dict[int, threading.Semaphore] = {}
        self._is_over = threading.Event()

    def run(self, actors: Mapping[int, Callable[[], None]]) -> None:
        """Let all of them begin, the lowest number first, and come to their ends."""
        self._wakes = {number: threading.Semaphore(0) for number in actors}
        self._due = sorted((0, number) for number in actors)
        before = threading.stack_size(STACK_BYTES)
        try:
            threads = [
                threading.Thread(target=self._act, args=(number, act), daemon=True)
                for number, act in actors.items()
            ]
            for each in threads:
                each.start()
        finally:
            threading.stack_size(before)
        self._hand_on()
        self._is_over.wait()
        for each in threads:
            each.join()

    def wait(self, number: int, until_ms: int) -> None:
        """Give way to all whose time comes before."""
        heapq.heappush(self._due, (max(until_ms, self.now_ms), number))
        if self._due[0][1] == number:
            self.now_ms = heapq.heappop(self._due)[0]
            return
        self._hand_on()
        self._wakes[number].acquire()

    def _act(self, number: int, act: Callable[[], None]) -> None:
        self._wakes[number].acquire()
        try:
            act()
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        if not self._due:
            self._is_over.set()
            return
        self.now_ms, number = heapq.heappop(self._due)
        self._wakes[number].release()


@dataclass(slots=True)
class ChainNode:
    """One node, or the origin, which has everything: a sink, a clock, and what others see of them."""

    number: int
    turns: Turns
    size_bytes: int
    offset: int = 0
    dies_ms: int | None = None
    is_cut_off: bool = False
    """Whether it goes in silence; else its connections are broken, as when a process is killed."""
    streams: int = 0
    finish_ms: int | None = None
    said: str = ""
    _knots: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """When it had how much, lately."""
    reading: tuple[ChainStream, int, int] | None = None
    """What it reads now, since when, and how much at most."""

    @property
    def is_dead(self) -> bool:
        return self.dies_ms is not None and self.turns.now_ms >= self.dies_ms

    def write(self, data: bytes | memoryview) -> None:
        self.offset += len(data)
        self._knots.append((self.turns.now_ms, self.offset))
        del self._knots[:-KEPT]

    def had(self, at_ms: int) -> int:
        """How much it has had at a moment that is over: between two reads it came evenly, and what it reads
        now comes as it came to the one above."""
        if not self.number:
            return self.size_bytes
        at_ms = at_ms if self.dies_ms is None else min(at_ms, self.dies_ms)
        place = bisect_right(self._knots, (at_ms, self.size_bytes))
        if not place:
            return 0
        begin_ms, begin = self._knots[place - 1]
        if place == len(self._knots):
            return begin if self.reading is None else begin + self._came(at_ms)
        end_ms, end = self._knots[place]
        return begin + (end - begin) * (at_ms - begin_ms) // (end_ms - begin_ms)

    def _came(self, at_ms: int) -> int:
        assert self.reading is not None
        stream, begin_ms, most = self.reading
        return stream.came(begin_ms, max(begin_ms, at_ms), most)

    def waited(self) -> None:
        """Nothing came: what comes next has come since now."""
        self._knots.append((self.turns.now_ms, self.offset))
        del self._knots[:-KEPT]

    def now_s(self) -> int:
        return EPOCH_S + self.turns.now_ms // 1000

    def monotonic_s(self) -> float:
        return self.turns.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        until_ms = self.turns.now_ms + max(1, round(1000 * seconds))
        self.turns.wait(self.number, until_ms if self.dies_ms is None else min(until_ms, self.dies_ms))
        if self.is_dead:
            raise Died


class ChainSource:
    """Another node, as one that fetches from it sees it."""

    def __init__(self, node: ChainNode, caller: ChainNode) -> None:
        self.node, self.caller = node, caller
        self.name = f"n{node.number}"
        self.is_relay = node.number > 0

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> ChainStream:
        if self.node.is_dead and self.node.is_cut_off:
            self.caller.sleep(timeout_s)
            raise SourceFault(f"{self.name} does not answer")
        self.caller.sleep(ANSWER_MS / 1000)
        if self.node.is_dead:
            raise SourceFault(f"{self.name} refuses the connection")
        return ChainStream(self, offset)

    def status(self, timeout_s: float) -> FetchStatus | None:
        raise NotImplementedError("whoever has a planned rate asks beside its reading alone")


class ChainQuestion:
    """What a node says when it is asked now, as soon as its answer is here."""

    def __init__(self, source: Source, timeout_s: float) -> None:
        assert isinstance(source, ChainSource)
        node, self._turns = source.node, source.caller.turns
        wait_ms = ANSWER_MS if not node.is_dead or not node.is_cut_off else round(1000 * timeout_s)
        self._at_ms = self._turns.now_ms + wait_ms
        has_answer = not node.is_dead
        self._status = FetchStatus(node.had(self._turns.now_ms), node.size_bytes) if has_answer else None

    def is_answered(self) -> bool:
        return self._turns.now_ms >= self._at_ms

    def status(self) -> FetchStatus | None:
        return self._status


class ChainStream:
    """What a node sends on: what it has, with its link's rate or a part of it."""

    def __init__(self, source: ChainSource, start_bytes: int) -> None:
        self.start_bytes = self._at = start_bytes
        self._source = source
        source.node.streams += 1

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        node, caller = self._source.node, self._source.caller
        begin_ms, most_ms = caller.turns.now_ms, round(1000 * timeout_s)
        caller.reading = self, begin_ms, len(buffer)
        try:
            caller.sleep(min(most_ms, -(-1000 * len(buffer) // RATE)) / 1000)
        finally:
            caller.reading = None
        count = self.came(begin_ms, caller.turns.now_ms, len(buffer))
        if count > 0:
            self._at += count
            return count
        caller.waited()
        return 0 if node.is_dead and not node.is_cut_off else None

    def came(self, begin_ms: int, until_ms: int, most: int) -> int:
        """How much has come of a read by then."""
        node = self._source.node
        last_ms = until_ms if node.dies_ms is None else min(until_ms, node.dies_ms)
        by_rate = RATE * max(0, last_ms - begin_ms) // max(1, node.streams) // 1000
        return max(0, min(most, by_rate, node.had(until_ms - HOP_MS) - self._at))

    def close(self) -> None:
        self._source.node.streams -= 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainRun:
    """When the last node that lives had the image, against bytes ÷ rate; who has failed, and why."""

    ratio: float
    failed: tuple[str, ...]
    dead: int


def run_chain(nodes: int, *, seconds: int, dying: int, is_cut_off: bool, seed: int) -> ChainRun:
    """An image that takes so many seconds of a link, on so many nodes, of which some die on the way."""
    random, turns = Random(seed), Turns()
    chain = [ChainNode(number, turns, RATE * seconds) for number in range(nodes + 1)]
    for node in random.sample(chain[1:], dying):
        node.dies_ms, node.is_cut_off = random.randrange(1, 1000 * seconds), is_cut_off
    turns.run({node.number: partial(_fetch, node, chain, seed) for node in chain[1:]})
    living = [node for node in chain[1:] if node.dies_ms is None]
    failed = tuple(f"n{node.number}: {node.said}" for node in living if node.finish_ms is None)
    last_ms = max(node.finish_ms or 0 for node in living)
    return ChainRun(ratio=last_ms / (1000 * seconds), failed=failed, dead=len(chain) - 1 - len(living))


def _fetch(node: ChainNode, chain: list[ChainNode], seed: int) -> None:
    """As the service orders it: from the nodes before this one, and from the origin."""
    before = list(reversed(chain[1 : node.number]))[:MOST_UPSTREAM]
    sources = [ChainSource(each, node) for each in (*before, chain[0])]
    try:
        transfer(
            node,
            sources,
            clock=node,
            random=Random(f"{seed} {node.number}"),
            expected_rate_bytes_per_s=RATE,
            ask=ChainQuestion,
        )
        node.finish_ms = node.turns.now_ms
    except CacheError as error:
        node.said = str(error)
    except Died:
        return
