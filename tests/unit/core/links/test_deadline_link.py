"""The link with deadlines against brute force: permutations, integer starts, every deadline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outrider.core.links.deadline import DeadlineLink
from outrider.core.model import Image, Transfer
from tests.amount import examples

IMAGE = Image(uri="i", size_bytes=1)
MODES = (None, 0, 2, 5)
modes = st.sampled_from(MODES)


def transfer(number: int, duration_s: int, deadline_s: int, release_s: int = 0) -> Transfer:
    return Transfer(
        number=number,
        image=IMAGE,
        nodes=("n",),
        duration_s=duration_s,
        release_s=release_s,
        deadline_s=deadline_s,
    )


def keeps_deadlines(sequence: Sequence[Transfer], floor_s: int) -> bool:
    """Whether sending in this order, each as soon as possible, is in time."""
    clock_s = floor_s
    for each in sequence:
        assert each.deadline_s is not None
        clock_s = max(clock_s, each.release_s) + each.duration_s
        if clock_s > each.deadline_s:
            return False
    return True


def floor_of(link: DeadlineLink, now_s: int) -> int:
    return max(now_s, link.busy_until_s)


def waiting(link: DeadlineLink) -> list[Transfer]:
    return [each for each, _ in link.latest_starts()]


def holds_its_promises(link: DeadlineLink, now_s: int) -> None:
    """What is planned meets every deadline and release, one at a time, none before the link is free."""
    clock_s = floor_of(link, now_s)
    planned = link.planned(now_s)
    latest = {each.number: latest_s for each, latest_s in link.latest_starts()}
    assert sorted(each.number for each, _ in planned) == sorted(latest)
    for each, start_s in planned:
        assert each.deadline_s is not None
        assert start_s >= clock_s
        assert start_s >= each.release_s
        assert start_s + each.duration_s <= each.deadline_s
        if link.reserve_s is not None:
            assert start_s >= latest[each.number] - link.reserve_s
        clock_s = start_s + each.duration_s
    assert keeps_deadlines(waiting(link), floor_of(link, now_s))


class Driven:
    """A link whose transfers begin and end when it says so."""

    def __init__(self, reserve_s: int | None) -> None:
        self.link = DeadlineLink(reserve_s=reserve_s)
        self.now_s = 0
        self.number = 0
        self.intervals: list[tuple[int, int]] = []

    def pass_time(self, until_s: int) -> None:
        link = self.link
        while True:
            if link.running is not None:
                running, end_s = link.running, link.busy_until_s
                if end_s > until_s:
                    break
                assert running.deadline_s is not None
                assert end_s <= running.deadline_s
                link.end(running.number, end_s)
                self.now_s = end_s
            following = link.next_start(self.now_s)
            if following is None or following[0] > until_s:
                break
            self.now_s, index = following
            begun = link.begin(index, self.now_s)
            assert self.now_s >= begun.release_s
            self.intervals.append((self.now_s, self.now_s + begun.duration_s))
        self.now_s = until_s

    def new(
        self, duration_s: int, deadline_s: int, release_s: int = 0, count: int = 1
    ) -> tuple[Transfer, ...]:
        self.number += count
        return tuple(
            transfer(self.number - index, duration_s, deadline_s, release_s) for index in range(count)
        )


arrivals = st.tuples(st.integers(1, 4), st.integers(0, 14), st.integers(1, 2))
events = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), arrivals),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.integers(0, 6)),
    ),
    max_size=14,
)
SETTINGS = settings(max_examples=examples(700), derandomize=True, deadline=None)


@SETTINGS
@given(modes, events)
def test_a_place_is_found_exactly_when_some_order_meets_all_deadlines(
    mode: int | None, history: list[tuple[str, object]]
) -> None:
    """Without releases the order of deadlines is optimal, so one order in time is enough."""
    driven = Driven(mode)
    link = driven.link
    for kind, what in history:
        if kind == "arrive":
            assert isinstance(what, tuple)
            duration_s, slack_s, count = what
            new = driven.new(duration_s, driven.now_s + slack_s, count=count)
            before, running, busy_s = link.latest_starts(), link.running, link.busy_until_s
            insertion = link.plan(new, driven.now_s)
            assert (link.latest_starts(), link.running, link.busy_until_s) == (before, running, busy_s)
            if len(link) + count <= 5:
                orders = permutations([*waiting(link), *new])
                floor_s = floor_of(link, driven.now_s)
                assert (insertion is not None) == any(keeps_deadlines(order, floor_s) for order in orders)
            if insertion is not None:
                moved = insertion.moved
                link.apply(insertion)
                latest = {each.number: latest_s for each, latest_s in link.latest_starts()}
                changed = [
                    (each, latest[each.number]) for each, old_s in before if latest[each.number] != old_s
                ]
                assert changed == list(zip(moved, insertion.pushed, strict=True))
                assert [latest[each.number] for each in new] == list(insertion.latest)
            assert (link.running, link.busy_until_s) == (running, busy_s)
        elif kind == "remove":
            numbers = [each.number for each in waiting(link)]
            if isinstance(what, int) and what < len(numbers):
                assert link.remove(numbers[what])
            assert not link.remove(10_000)
        else:
            assert isinstance(what, int)
            driven.pass_time(driven.now_s + what)
        holds_its_promises(link, driven.now_s)
        latest_is_as_late_as_possible(link)
    assert all(
        before[1] <= after[0] for before, after in zip(driven.intervals, driven.intervals[1:], strict=False)
    )


def latest_is_as_late_as_possible(link: DeadlineLink) -> None:
    """Algorithm 3 line by line, over the sequence as it is."""
    next_s: int | None = None
    for each, latest_s in reversed(link.latest_starts()):
        assert each.deadline_s is not None
        next_s = (each.deadline_s if next_s is None else min(each.deadline_s, next_s)) - each.duration_s
        assert latest_s == next_s


small = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=3)


@settings(max_examples=examples(250), derandomize=True, deadline=None)
@given(small, st.integers(0, 2), modes)
def test_starts_are_the_first_and_the_last_of_all_integer_starts(
    wanted: list[tuple[int, int]], now_s: int, mode: int | None
) -> None:
    """EDF starts each as early, EDF/JIT as late as any feasible schedule in that order does."""
    driven = Driven(mode)
    link = driven.link
    for duration_s, deadline_s in wanted:
        insertion = link.plan(driven.new(duration_s, deadline_s), now_s)
        if insertion is not None:
            link.apply(insertion)
    sequence = waiting(link)
    assume(sequence)
    schedules = [
        starts
        for starts in product(range(now_s, 10), repeat=len(sequence))
        if all(
            start_s + each.duration_s <= end_s
            for start_s, each, end_s in zip(starts, sequence, [*starts[1:], 99], strict=True)
        )
        and all(
            start_s + each.duration_s <= (each.deadline_s or 0)
            for start_s, each in zip(starts, sequence, strict=True)
        )
    ]
    first = [min(column) for column in zip(*schedules, strict=True)]
    last = [max(column) for column in zip(*schedules, strict=True)]

    assert [latest_s for _, latest_s in link.latest_starts()] == last
    planned = [start_s for _, start_s in link.planned(now_s)]
    if mode is None:
        assert planned == first
    elif mode == 0:
        assert planned == last
    else:
        floors_s = [max(now_s, latest_s - mode) for latest_s in last]
        clock_s = now_s
        for start_s, floor_s, each in zip(planned, floors_s, sequence, strict=True):
            assert start_s == max(clock_s, floor_s)
            clock_s = start_s + each.duration_s


@SETTINGS
@given(modes, events, st.integers(1, 5), st.integers(0, 8))
def test_the_earliest_deadline_is_the_smallest_that_is_accepted(
    mode: int | None, history: list[tuple[str, object]], duration_s: int, later_s: int
) -> None:
    driven = Driven(mode)
    link = driven.link
    for kind, what in history:
        if kind == "arrive":
            assert isinstance(what, tuple)
            insertion = link.plan(driven.new(what[0], driven.now_s + what[1], count=what[2]), driven.now_s)
            if insertion is not None:
                link.apply(insertion)
        elif kind == "pass":
            assert isinstance(what, int)
            driven.pass_time(driven.now_s + what)
    not_before_s = driven.now_s + later_s

    found = link.earliest_deadline(duration_s, driven.now_s, not_before_s)

    tried = next(
        deadline_s
        for deadline_s in range(not_before_s, not_before_s + 200)
        if link.plan(driven.new(duration_s, deadline_s), driven.now_s) is not None
    )
    assert found == tried


releases = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.tuples(st.integers(1, 4), st.integers(0, 10), st.integers(0, 14))),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.integers(0, 6)),
    ),
    max_size=10,
)


@settings(max_examples=examples(1500), derandomize=True, deadline=None)
@given(modes, releases)
def test_with_releases_what_is_planned_is_kept_and_its_own_place_is_never_refused(
    mode: int | None, history: list[tuple[str, object]]
) -> None:
    driven = Driven(mode)
    link = driven.link
    for kind, what in history:
        if kind == "arrive":
            assert isinstance(what, tuple)
            duration_s, slack_s, wait_s = what
            deadline_s = driven.now_s + slack_s + duration_s
            new = driven.new(duration_s, deadline_s, min(driven.now_s + wait_s, deadline_s - duration_s))
            insertion = link.plan(new, driven.now_s)
            sequence = waiting(link)
            if insertion is None:
                place = sum((each.deadline_s or 0) <= deadline_s for each in sequence)
                in_order = sequence == sorted(sequence, key=lambda each: each.deadline_s or 0)
                there = [*sequence[:place], *new, *sequence[place:]]
                assert not (in_order and keeps_deadlines(there, floor_of(link, driven.now_s)))
            else:
                at = insertion.position
                link.apply(insertion)
                assert waiting(link) == [*sequence[:at], *new, *sequence[at:]]
        elif kind == "remove":
            numbers = [each.number for each in waiting(link)]
            if isinstance(what, int) and what < len(numbers):
                link.remove(numbers[what])
        else:
            assert isinstance(what, int)
            driven.pass_time(driven.now_s + what)
        holds_its_promises(link, driven.now_s)
        latest_is_as_late_as_possible(link)
    driven.pass_time(driven.now_s + 100)

    assert len(link) == 0
    assert link.running is None


@pytest.mark.parametrize("mode", MODES)
def test_a_gap_before_a_transfer_that_is_released_late_is_used(mode: int | None) -> None:
    link = DeadlineLink(reserve_s=mode)
    for each in (transfer(1, 10, 60, release_s=50), transfer(2, 10, 70)):
        insertion = link.plan([each], 0)
        assert insertion is not None
        link.apply(insertion)

    insertion = link.plan([transfer(3, 45, 70)], 0)

    assert insertion is not None
    link.apply(insertion)
    holds_its_promises(link, 0)
    assert {each.number: start_s for each, start_s in link.planned(0)}[3] <= 5


def test_a_transfer_that_starts_out_of_turn_leaves_its_time_to_those_before_it() -> None:
    """The first is released at 1; the second starts at 0 and thereby frees [4, 10) but for 2 s."""
    driven = Driven(None)
    for new in (driven.new(2, 10, release_s=1), driven.new(4, 10)):
        insertion = driven.link.plan(new, 0)
        assert insertion is not None
        driven.link.apply(insertion)
    driven.pass_time(0)

    assert driven.link.latest_starts()[0][1] == 8
    assert driven.link.plan(driven.new(3, 7), 0) is not None


def test_a_reserve_accepts_a_later_reservation_that_pure_jit_refuses() -> None:
    """Pure JIT leaves the link idle until 90; at 85 the missing 5 s cannot be won back."""
    accepted = {}
    for mode in (None, 0, 30):
        driven = Driven(mode)
        insertion = driven.link.plan(driven.new(10, 100), 0)
        assert insertion is not None
        driven.link.apply(insertion)
        driven.pass_time(85)
        accepted[mode] = driven.link.plan(driven.new(10, 100), 85) is not None

    assert accepted == {None: True, 0: False, 30: True}


def test_a_running_transfer_is_not_moved_for_a_more_urgent_one() -> None:
    driven = Driven(None)
    insertion = driven.link.plan(driven.new(10, 100), 0)
    assert insertion is not None
    driven.link.apply(insertion)
    driven.pass_time(3)

    assert driven.link.plan(driven.new(2, 11), 3) is None
    assert driven.link.plan(driven.new(2, 12), 3) is not None
    assert driven.link.next_start(3) is None
    with pytest.raises(ValueError, match="still runs"):
        driven.link.begin(0, 3)


def test_a_transfer_that_ends_early_frees_the_link_at_once() -> None:
    driven = Driven(None)
    insertion = driven.link.plan(driven.new(10, 100), 0)
    assert insertion is not None
    driven.link.apply(insertion)
    driven.pass_time(3)

    ended = driven.link.end(1, 4)

    assert ended.number == 1
    assert driven.link.plan(driven.new(2, 6), 4) is not None
    with pytest.raises(ValueError, match="transfer 1 does not run"):
        driven.link.end(1, 4)


def test_a_link_refuses_what_it_cannot_plan() -> None:
    with pytest.raises(ValueError, match="reserve of -1 s"):
        DeadlineLink(reserve_s=-1)
    without = Transfer(number=1, image=IMAGE, nodes=("n",), duration_s=1)
    with pytest.raises(ValueError, match="FIFO"):
        DeadlineLink().plan([without], 0)
