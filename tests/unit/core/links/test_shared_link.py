"""The shared link against a model that looks at every second, and its three guarantees.

The model is written from the link's docstring: it decides second by second who sends, holds
a plain list of best effort, and knows nothing of events. Of the program it uses only the
schedule of the deadlines, which has tests of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from random import Random

import pytest

from outrider.core.links.deadline import DeadlineLink
from outrider.core.links.links import LinkEvent
from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Transfer
from tests.amount import examples

# One transfer's life on the link: when it began and when it ended.
Instants = dict[int, list[int]]
PERCENTS = (0, 1, 20, 33, 50, 99)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A transfer handed to the link at an instant; one with a deadline may be refused."""

    at_s: int
    number: int
    size_bytes: int
    deadline_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """A link and everything that is asked of it."""

    rate_bytes_per_s: int
    percent: int
    reserve_s: int | None
    requests: tuple[Request, ...]
    until_s: int

    def link(self) -> SharedLink:
        return SharedLink(
            rate_bytes_per_s=self.rate_bytes_per_s,
            best_effort_percent=self.percent,
            reserve_s=self.reserve_s,
        )

    @property
    def beside_rate(self) -> int:
        return self.rate_bytes_per_s * self.percent // 100

    def duration_s(self, size_bytes: int) -> int:
        return -(-size_bytes // (self.rate_bytes_per_s - self.beside_rate))


def random_history(random: Random, *, percent: int | None = None) -> History:
    rate = random.choice([100, random.randint(100, 999)])
    share = random.choice(PERCENTS) if percent is None else percent
    span_s = random.randint(5, 60)
    requests: list[Request] = []
    for number in range(1, random.randint(2, 18)):
        size = random.choice([1, rate, random.randint(1, 4 * rate), random.randint(1, 12 * rate)])
        at_s = random.randint(0, span_s)
        deadline_s = None
        if random.random() < 0.45:
            deadline_s = at_s + random.randint(1, 60)
        requests.append(Request(at_s=at_s, number=number, size_bytes=size, deadline_s=deadline_s))
    requests.sort(key=lambda request: (request.at_s, request.number))
    return History(
        rate_bytes_per_s=rate,
        percent=share,
        reserve_s=random.choice([0, 0, None, 3, 20]),
        requests=tuple(requests),
        # Everything has been sent by then, even if no two transfers ever ran side by side.
        until_s=span_s + 60 + 18 * 12 * 101,
    )


def transfer_of(request: Request, duration_s: int) -> Transfer:
    return Transfer(
        number=request.number,
        image=Image(uri=f"image-{request.number}", size_bytes=request.size_bytes),
        nodes=("n1",),
        duration_s=duration_s,
        deadline_s=request.deadline_s,
    )


@dataclass(slots=True)
class SecondBySecond:
    """The docstring of the shared link, told without events."""

    history: History
    instants: Instants = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)
    sent: list[tuple[int, int, bool, bool]] = field(default_factory=list)
    """Of each second: bytes of best effort, bytes of deadlines, whether best effort waited at
    its beginning, whether a slot was taken."""

    def run(self) -> None:
        history = self.history
        deadlines = DeadlineLink(reserve_s=history.reserve_s)
        # Each as [number, bytes left].
        queue: list[list[int]] = []
        slot: list[int] | None = None
        requests = list(history.requests)
        second = 0
        while requests or queue or slot is not None or len(deadlines):
            # What is due begins before anything new is asked for.
            slot = slot or self._begun(deadlines, second)
            while requests and requests[0].at_s == second:
                request = requests.pop(0)
                if request.deadline_s is None:
                    queue.append([request.number, request.size_bytes])
                    self.accepted.add(request.number)
                else:
                    wanted = transfer_of(request, history.duration_s(request.size_bytes))
                    insertion = deadlines.plan([wanted], second)
                    if insertion is not None:
                        deadlines.apply(insertion)
                        self.accepted.add(request.number)
            slot = slot or self._begun(deadlines, second)
            if queue:
                self.instants.setdefault(queue[0][0], [second])
            waits = bool(queue)
            best_effort, deadline = self._rates(waits, slot is not None)
            left = best_effort
            while queue and left:
                taken = min(left, queue[0][1])
                queue[0][1] -= taken
                left -= taken
                if not queue[0][1]:
                    self.instants[queue.pop(0)[0]].append(second + 1)
                    if queue:
                        self.instants[queue[0][0]] = [second + 1]
            sent_deadline = 0
            if slot is not None:
                sent_deadline = min(deadline, slot[1])
                slot[1] -= sent_deadline
                deadlines.busy_until_s = second + 1 + history.duration_s(slot[1])
                if not slot[1]:
                    deadlines.end(slot[0], second + 1)
                    self.instants[slot[0]].append(second + 1)
            self.sent.append((best_effort - left, sent_deadline, waits, slot is not None))
            if slot is not None and not slot[1]:
                slot = None
            second += 1

    def _begun(self, deadlines: DeadlineLink, second: int) -> list[int] | None:
        following = deadlines.next_start(second)
        if following is None or following[0] != second:
            return None
        begun = deadlines.begin(following[1], second)
        self.instants[begun.number] = [second]
        return [begun.number, begun.image.size_bytes]

    def _rates(self, waits: bool, has_slot: bool) -> tuple[int, int]:
        history = self.history
        if not has_slot:
            return history.rate_bytes_per_s, 0
        if not waits:
            return 0, history.rate_bytes_per_s
        return history.beside_rate, history.rate_bytes_per_s - history.beside_rate


def play(history: History, link: SharedLink, *, is_rare: bool = False) -> tuple[list[LinkEvent], set[int]]:
    """The link's own events and who was accepted.

    It is told the time at each of its events and when something is asked of it, as a world
    does that has a heap of events; or, if `is_rare`, only when something is asked of it.
    """
    events: list[LinkEvent] = []
    accepted: set[int] = set()
    for at_s, together in groupby(history.requests, key=lambda request: request.at_s):
        events += link.advance(at_s) if is_rare else events_until(link, at_s)
        accepted |= {request.number for request in together if ask(link, request)}
    events += link.advance(history.until_s) if is_rare else events_until(link, history.until_s)
    assert link.next_event_s(history.until_s) is None
    return events, accepted


def events_until(link: SharedLink, until_s: int) -> list[LinkEvent]:
    events: list[LinkEvent] = []
    while (at_s := link.next_event_s(0)) is not None and at_s <= until_s:
        events += link.advance(at_s)
    return events


def ask(link: SharedLink, request: Request) -> bool:
    if request.deadline_s is None:
        link.add(transfer_of(request, link.duration_s(request.size_bytes)), request.at_s)
        return True
    link.pass_until(request.at_s)
    wanted = transfer_of(request, link.deadline_duration_s(request.size_bytes))
    insertion = link.deadlines.plan([wanted], request.at_s)
    if insertion is None:
        return False
    link.deadlines.apply(insertion)
    return True


def instants_of(events: list[LinkEvent]) -> Instants:
    instants: Instants = {}
    for event in events:
        seen = instants.setdefault(event.transfer.number, [])
        assert len(seen) == (0 if event.has_begun else 1), f"transfer {event.transfer.number} out of turn"
        seen.append(event.at_s)
    return instants


@pytest.mark.parametrize("chunk", range(4))
def test_transfers_begin_and_end_as_in_a_model_that_looks_at_every_second(chunk: int) -> None:
    for seed in range(chunk * 500, chunk * 500 + examples(500)):
        history = random_history(Random(seed))
        model = SecondBySecond(history)
        model.run()

        events, accepted = play(history, history.link())

        assert accepted == model.accepted, f"seed {seed}"
        assert instants_of(events) == model.instants, f"seed {seed}"


def test_a_link_that_is_asked_rarely_tells_the_same_instants() -> None:
    for seed in range(examples(500)):
        history = random_history(Random(seed))

        often, _ = play(history, history.link())
        rarely, _ = play(history, history.link(), is_rare=True)

        assert instants_of(rarely) == instants_of(often), f"seed {seed}"


def test_events_come_in_order_and_of_different_transfers_ends_before_beginnings() -> None:
    for seed in range(examples(500)):
        history = random_history(Random(seed))

        events, _ = play(history, history.link())

        assert [event.at_s for event in events] == sorted(event.at_s for event in events)
        for at_s in {event.at_s for event in events}:
            same = [event for event in events if event.at_s == at_s]
            begun = [event.transfer.number for event in same if event.has_begun]
            late_ends = [
                event.transfer.number
                for index, event in enumerate(same)
                if not event.has_begun and any(before.has_begun for before in same[:index])
            ]
            assert set(late_ends) <= set(begun), f"seed {seed}, at {at_s}"


@pytest.mark.parametrize("percent", PERCENTS)
def test_whatever_best_effort_does_every_planned_transfer_ends_by_its_deadline(percent: int) -> None:
    for seed in range(examples(300)):
        history = random_history(Random(seed), percent=percent)

        events, accepted = play(history, history.link())

        ends = {event.transfer.number: event.at_s for event in events if not event.has_begun}
        assert set(ends) == accepted
        for request in history.requests:
            if request.deadline_s is not None and request.number in accepted:
                assert ends[request.number] <= request.deadline_s, f"seed {seed}, {request}"


@pytest.mark.parametrize("percent", [percent for percent in PERCENTS if percent])
def test_best_effort_ends_within_its_bytes_over_its_share_whatever_is_accepted_later(percent: int) -> None:
    for seed in range(examples(300)):
        history = random_history(Random(seed), percent=percent)
        model = SecondBySecond(history)
        model.run()

        events, _ = play(history, history.link())

        ends = {event.transfer.number: event.at_s for event in events if not event.has_begun}
        wanted = 0
        for request in history.requests:
            if request.deadline_s is not None:
                continue
            wanted += request.size_bytes
            # What the model had sent by then, which other tests find equal to the link's.
            ahead = wanted - sum(best_effort for best_effort, _, _, _ in model.sent[: request.at_s])
            bound_s = request.at_s + -(-ahead // history.beside_rate)
            assert ends[request.number] <= bound_s, f"seed {seed}, {request}"


def test_the_share_is_rounded_down_to_whole_bytes_so_the_bound_is_reached() -> None:
    """19 bytes/s of 199 are promised for 10 %: 190 bytes take 10 s beside a deadline, not ⌈9.5⌉ s."""
    link = SharedLink(rate_bytes_per_s=199, best_effort_percent=10, reserve_s=None)
    ar = Request(at_s=0, number=1, size_bytes=180 * 20, deadline_s=20)
    assert ask(link, ar)

    link.add(transfer_of(Request(at_s=0, number=2, size_bytes=191), 1), 0)

    ends = {event.transfer.number: event.at_s for event in link.advance(100) if not event.has_begun}
    assert ends == {1: 20, 2: 11}
    assert -(-191 * 10 // 199) == 10


@pytest.mark.parametrize("percent", PERCENTS)
def test_while_best_effort_waits_the_link_is_never_idle(percent: int) -> None:
    """Counted in bytes: all of a second outside slots, its share at least within one.

    Only the last second of a slot may carry less, because a second's split is fixed.
    """
    for seed in range(examples(300)):
        history = random_history(Random(seed), percent=percent)

        events, _ = play(history, history.link())

        instants = instants_of(events)
        slots = [
            instants[each.number]
            for each in history.requests
            if each.deadline_s is not None and each.number in instants
        ]
        assert {
            each.number: instants[each.number][1] for each in history.requests if each.deadline_s is None
        } == ends_if_never_idle(history, slots), f"seed {seed}"


def ends_if_never_idle(history: History, slots: list[list[int]]) -> dict[int, int]:
    """When best effort ends that has all of the link but in these slots, and there its share."""
    requests = [request for request in history.requests if request.deadline_s is None]
    taken = {second for begin_s, end_s in slots for second in range(begin_s, end_s)}
    ends: dict[int, int] = {}
    second = budget = 0
    for request in requests:
        missing = request.size_bytes
        if request.at_s >= second:
            second, budget = request.at_s, 0
        while missing > budget:
            missing -= budget
            budget = history.beside_rate if second in taken else history.rate_bytes_per_s
            second += 1
        budget -= missing
        ends[request.number] = second
    return ends


def test_forecasts_of_best_effort_come_true_if_nothing_else_is_admitted() -> None:
    for seed in range(examples(600)):
        random = Random(seed)
        history = random_history(random)
        link = history.link()
        for request in history.requests:
            events_until(link, request.at_s)
            ask(link, request)
        # The link was last told the time at its last event; the question comes later.
        at_s = history.requests[-1].at_s
        asked_s = at_s
        upcoming_s = link.next_event_s(at_s)
        if upcoming_s is not None and upcoming_s > at_s:
            asked_s = random.randint(at_s, upcoming_s - 1)
        size = random.randint(1, 5 * history.rate_bytes_per_s)
        count = random.randint(1, 3)
        promised_s = link.end_if_added(size, count, asked_s)
        known_s = {
            request.number: end_s
            for request in history.requests
            if (end_s := link.end_of(request.number, asked_s)) is not None
        }

        added = [
            link.add(transfer_of(Request(at_s=asked_s, number=number, size_bytes=size), 1), asked_s)
            for number in range(101, 101 + count)
        ]
        ends = {event.transfer.number: event.at_s for event in link.advance(history.until_s)}

        assert added[-1].end_s == promised_s, f"seed {seed}"
        assert {sent.transfer.number: ends[sent.transfer.number] for sent in added} == {
            sent.transfer.number: sent.end_s for sent in added
        }, f"seed {seed}"
        assert {number: ends[number] for number in known_s} == known_s, f"seed {seed}"
