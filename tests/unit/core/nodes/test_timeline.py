"""The slot table against one number per node and second, exhaustively and at random."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outrider.core.model import Node, Resources
from outrider.core.nodes import timeline as module
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.node_timeline import FOREVER, NodeTimeline
from outrider.core.nodes.timeline import SiteTimeline, numbers
from tests.amount import examples
from tests.unit.core.naive_slots import NaiveSlots, intervals

HORIZON_S = 5

Booking = tuple[int, int, int]
"""A node, and from when to when one of its cpus is taken."""

History = tuple[SiteTimeline, NaiveSlots, tuple[Booking, ...]]


def _asks_everything(
    row: NodeTimeline, naive: NaiveSlots, node: int, needs: list[Resources], now_s: int
) -> None:
    """Compare every answer about the present and the future."""
    end_s = naive.horizon_s + 1
    layout = ResourceLayout(naive.names)
    for at_s in range(now_s, end_s):
        assert layout.unpack(row.free_at(at_s)) == Resources.from_mapping(
            dict(zip(naive.names, naive.at(node, at_s), strict=True))
        )
        assert row.next_change(at_s) == (naive.next_change(node, at_s) or FOREVER)
        for need in needs:
            following = naive.next_fit(node, naive.amounts(need), at_s)
            assert row.next_fit(layout.pack(need), at_s) == (FOREVER if following is None else following)
    for start_s, stop_s in intervals(now_s, end_s):
        assert row.is_untouched(start_s, stop_s) == naive.is_untouched(node, start_s, stop_s)
        for need in needs:
            packed, amounts = layout.pack(need), naive.amounts(need)
            assert row.fits(packed, start_s, stop_s) == naive.fits(node, amounts, start_s, stop_s)
            until_s = row.free_until(packed, start_s, stop_s)
            assert until_s == naive.free_until(node, amounts, start_s, stop_s)
            assert row.most(packed, start_s, stop_s, 3) == naive.most(node, amounts, start_s, stop_s, 3)


def _is_merged(row: NodeTimeline) -> bool:
    return (
        row.times[0] == 0
        and all(before < after for before, after in zip(row.times, row.times[1:], strict=False))
        and all(before != after for before, after in zip(row.free, row.free[1:], strict=False))
    )


def test_one_node_is_right_in_every_state_that_any_history_reaches() -> None:
    """Every history: states met before are not entered again, so the search is complete."""
    nodes = [Node(name="n", capacity=Resources.of(cpus=2))]
    layout = ResourceLayout.of_nodes(nodes)
    needs = [Resources.of(cpus=1), Resources.of(cpus=2)]
    first = (NodeTimeline(layout, layout.pack(nodes[0].capacity)), NaiveSlots(nodes, ["cpus"], HORIZON_S))
    left = [first]
    seen: set[tuple[int, ...]] = set()
    while left:
        row, naive = left.pop()
        assert _is_merged(row)
        _asks_everything(row, naive, 0, needs, 0)
        for need in needs:
            for start_s, end_s in intervals(0, HORIZON_S):
                for sign in (-1, 1):
                    following = _after(row, naive, need, start_s, end_s, sign)
                    if following is not None:
                        state = (*following[0].times, *following[0].free)
                        if state not in seen:
                            seen.add(state)
                            left.append(following)

    assert len(seen) == 3**HORIZON_S


def _after(
    row: NodeTimeline, naive: NaiveSlots, need: Resources, start_s: int, end_s: int, sign: int
) -> tuple[NodeTimeline, NaiveSlots] | None:
    """The next state, or None where the operation is refused, which must change nothing."""
    amounts, packed = naive.amounts(need), ResourceLayout(naive.names).pack(need)
    possible = naive.fits if sign < 0 else naive.can_release
    row, before = deepcopy(row), (list(row.times), list(row.free))
    operation = row.reserve if sign < 0 else row.release
    if not possible(0, amounts, start_s, end_s):
        with pytest.raises(ValueError, match="free throughout" if sign < 0 else "never reserved"):
            operation(packed, start_s, end_s)
        assert (row.times, row.free) == before
        return None
    operation(packed, start_s, end_s)
    naive = deepcopy(naive)
    naive.add(0, amounts, start_s, end_s, sign)
    return row, naive


def test_an_empty_interval_is_refused() -> None:
    layout = ResourceLayout(["cpus"])
    row = NodeTimeline(layout, layout.pack(Resources.of(cpus=1)))

    with pytest.raises(ValueError, match="empty"):
        row.reserve(1, 3, 3)
    with pytest.raises(ValueError, match="empty"):
        row.release(1, 4, 3)


def _superset_of_touched(timeline: SiteTimeline, naive: NaiveSlots, now_s: int) -> None:
    for start_s, end_s in intervals(now_s, naive.horizon_s + 1):
        mask = timeline.touched(start_s, end_s)
        for node in range(len(timeline.rows)):
            assert mask >> node & 1 or naive.is_untouched(node, start_s, end_s)


def _boundaries_name_every_change(timeline: SiteTimeline, naive: NaiveSlots, now_s: int) -> None:
    for at_s in range(now_s, naive.horizon_s):
        found = {instant_s: begin | end for instant_s, begin, end in timeline.boundaries_after(at_s)}
        assert list(found) == sorted(found)
        assert all(instant_s > at_s for instant_s in found)
        for node in range(len(timeline.rows)):
            change_s = naive.next_change(node, at_s)
            assert change_s is None or found.get(change_s, 0) >> node & 1
            on_node = [instant_s for instant_s, nodes in found.items() if nodes >> node & 1]
            first_s = min(on_node, default=FOREVER)
            assert timeline.next_boundary(1 << node, at_s) == first_s
            until_s = at_s + 2
            assert timeline.next_boundary(1 << node, at_s, until_s) == (
                first_s if first_s <= until_s else FOREVER
            )


def test_two_nodes_index_is_right_after_every_three_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_S", 2)
    nodes = [Node(name=f"n{number}", capacity=Resources.of(cpus=1)) for number in range(2)]
    horizon_s, need = 4, 1
    level: list[History] = [(SiteTimeline(nodes), NaiveSlots(nodes, ["cpus"], horizon_s), ())]
    checked = 0
    for _ in range(3):
        following: list[History] = []
        for timeline, naive, bookings in level:
            for node in range(2):
                for start_s, end_s in intervals(0, horizon_s):
                    if naive.fits(node, (need,), start_s, end_s):
                        grown, model = deepcopy(timeline), deepcopy(naive)
                        grown.reserve(node, need, start_s, end_s)
                        model.add(node, (need,), start_s, end_s, -1)
                        following.append((grown, model, (*bookings, (node, start_s, end_s))))
            for booking in bookings:
                shrunk, model = deepcopy(timeline), deepcopy(naive)
                node, start_s, end_s = booking
                shrunk.release(node, need, start_s, end_s)
                model.add(node, (need,), start_s, end_s, 1)
                following.append((shrunk, model, tuple(each for each in bookings if each != booking)))
        level = following
        for timeline, naive, _ in level:
            checked += 1
            _superset_of_touched(timeline, naive, 0)
            _boundaries_name_every_change(timeline, naive, 0)

    assert checked > 2000


class SlotTable(RuleBasedStateMachine):
    """Reservations come, go and end early on nodes that differ, in two resources, as time passes."""

    names = ("cpus", "memory_mib")
    nodes = (
        Node(name="n0", capacity=Resources.of(cpus=2, memory_mib=4)),
        Node(name="n1", capacity=Resources.of(cpus=1, memory_mib=2)),
        Node(name="n2", capacity=Resources.of(cpus=2, memory_mib=4)),
        Node(name="n3", capacity=Resources.of(cpus=3)),
    )
    horizon_s = 14

    def __init__(self) -> None:
        super().__init__()
        self.timeline = SiteTimeline(self.nodes)
        self.naive = NaiveSlots(self.nodes, self.names, self.horizon_s)
        self.now_s = 0
        self.booked: list[tuple[int, Resources, int, int]] = []
        self.asked = Resources.of(cpus=1)

    needs = st.builds(
        lambda cpus, memory: Resources.of(cpus=cpus, memory_mib=memory), st.integers(0, 3), st.integers(0, 4)
    )

    @rule(node=st.integers(0, 3), need=needs, ends=st.tuples(st.integers(0, 13), st.integers(1, 9)))
    def reserve(self, node: int, need: Resources, ends: tuple[int, int]) -> None:
        start_s = max(self.now_s, ends[0])
        end_s = min(self.horizon_s, start_s + ends[1])
        if start_s >= end_s:
            return
        packed, amounts = self.timeline.layout.pack(need), self.naive.amounts(need)
        self.asked = need
        if self.naive.fits(node, amounts, start_s, end_s):
            self.timeline.reserve(node, packed, start_s, end_s)
            self.naive.add(node, amounts, start_s, end_s, -1)
            self.booked.append((node, need, start_s, end_s))
        else:
            with pytest.raises(ValueError, match="not free"):
                self.timeline.reserve(node, packed, start_s, end_s)

    @precondition(lambda self: self.booked)
    @rule(data=st.data())
    def release_the_rest(self, data: st.DataObject) -> None:
        node, need, start_s, end_s = self.booked.pop(data.draw(st.integers(0, len(self.booked) - 1)))
        start_s = max(start_s, self.now_s)
        if start_s < end_s:
            self.timeline.release(node, self.timeline.layout.pack(need), start_s, end_s)
            self.naive.add(node, self.naive.amounts(need), start_s, end_s, 1)

    @rule(passed_s=st.integers(1, 3), forgets=st.booleans())
    def pass_time(self, passed_s: int, forgets: bool) -> None:
        self.now_s = min(self.now_s + passed_s, self.horizon_s - 1)
        if forgets:
            self.timeline.forget_before(self.now_s)

    @invariant()
    def every_answer_about_now_and_later_is_right(self) -> None:
        for node, row in enumerate(self.timeline.rows):
            assert _is_merged(row)
            _asks_everything(row, self.naive, node, [self.asked], self.now_s)
        _superset_of_touched(self.timeline, self.naive, self.now_s)
        _boundaries_name_every_change(self.timeline, self.naive, self.now_s)


def test_four_different_nodes_agree_with_the_naive_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_S", 3)

    run_state_machine_as_test(
        SlotTable,
        settings=settings(max_examples=examples(40), stateful_step_count=20, derandomize=True, deadline=None),
    )


def test_numbers_are_the_set_bits_in_order() -> None:
    for mask in (0, 1, 0b1011, 1 << 200 | 1 << 7):
        assert list(numbers(mask)) == [bit for bit in range(201) if mask >> bit & 1]
