"""The sliding window against counting the room at every second."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.model import Node, Resources
from outrider.core.nodes import earliest_slots
from outrider.core.nodes.earliest_slots import SlotSweep, next_edge
from outrider.core.nodes.timeline import SiteTimeline
from tests.amount import examples
from tests.unit.core.naive_slots import NaiveSlots

HORIZON_S = 12
SETTINGS = settings(max_examples=examples(1200), derandomize=True, deadline=None)


@st.composite
def booked(draw: st.DrawFn) -> tuple[SiteTimeline, NaiveSlots, int]:
    """Nodes of different sizes on which things were reserved, and some ended early at `now`."""
    nodes = [
        Node(name=f"n{number}", capacity=Resources.of(cpus=cpus))
        for number, cpus in enumerate(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    ]
    timeline, naive = SiteTimeline(nodes), NaiveSlots(nodes, ["cpus"], HORIZON_S)
    now_s = draw(st.integers(0, 4))
    for _ in range(draw(st.integers(0, 8))):
        node, cpus = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(1, 3))
        start_s = draw(st.integers(0, HORIZON_S - 1))
        end_s = draw(st.integers(start_s + 1, HORIZON_S))
        if naive.fits(node, (cpus,), start_s, end_s):
            timeline.reserve(node, cpus, start_s, end_s)
            naive.add(node, (cpus,), start_s, end_s, -1)
            given_back_s = max(now_s, start_s)
            if draw(st.booleans()) and given_back_s < end_s:
                timeline.release(node, cpus, given_back_s, end_s)
                naive.add(node, (cpus,), given_back_s, end_s, 1)
    return timeline, naive, now_s


def room_at(naive: NaiveSlots, need: int, start_s: int, duration_s: int, instances: int, allowed: int) -> int:
    return sum(
        naive.most(node, (need,), start_s, start_s + duration_s, instances)
        for node in range(len(naive.capacity))
        if allowed >> node & 1
    )


@pytest.mark.parametrize(
    ("edges_counted", "listed_s", "most_listed"), [(64, 86_400, 8), (0, 2, 8), (1, 86_400, 8), (1, 2, 0)]
)
@SETTINGS
@given(
    booked(), st.integers(1, 6), st.integers(0, 3), st.integers(1, 5), st.integers(0, 6), st.integers(0, 15)
)
def test_the_first_start_with_room_is_found(
    edges_counted: int,
    listed_s: int,
    most_listed: int,
    site: tuple[SiteTimeline, NaiveSlots, int],
    instances: int,
    need: int,
    duration_s: int,
    later_s: int,
    broken: int,
) -> None:
    timeline, naive, now_s = site
    allowed = timeline.everyone & ~broken
    from_s = now_s + later_s

    with (
        patch.object(earliest_slots, "EDGES_COUNTED", edges_counted),
        patch.object(earliest_slots, "STARTS_LISTED_S", listed_s),
        patch.object(earliest_slots, "MOST_LISTED", most_listed),
        patch.object(earliest_slots, "FEW_LISTED", min(most_listed, earliest_slots.FEW_LISTED)),
        patch.object(earliest_slots, "EDGES_A_STEP", 1),
    ):
        found = SlotSweep(
            timeline, instances=instances, need=need, duration_s=duration_s, start_s=from_s, available=allowed
        ).advance()

    assert found == next(
        (
            at_s
            for at_s in range(from_s, max(from_s, HORIZON_S) + 1)
            if room_at(naive, need, at_s, duration_s, instances, allowed) >= instances
        ),
        None,
    )


@SETTINGS
@given(booked(), st.integers(1, 6), st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_the_total_is_right_wherever_the_window_is_moved(
    site: tuple[SiteTimeline, NaiveSlots, int], instances: int, duration_s: int, steps: list[int]
) -> None:
    timeline, naive, now_s = site
    everyone = timeline.everyone
    to_s = now_s
    for step_s in steps:
        edge_s = next_edge(timeline, everyone, to_s, duration_s)
        to_s += step_s
        sweep = SlotSweep(
            timeline, instances=instances, need=1, duration_s=duration_s, start_s=to_s, available=everyone
        )

        rooms = [room_at(naive, 1, at_s, duration_s, instances, everyone) for at_s in range(HORIZON_S + 30)]
        assert sweep.total == rooms[to_s]
        changes = [at_s for at_s in range(to_s - step_s + 1, HORIZON_S + 1) if rooms[at_s] != rooms[at_s - 1]]
        assert edge_s is not None or not changes
        assert edge_s is None or not changes or edge_s <= changes[0]
