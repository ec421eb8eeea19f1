"""Which nodes a reservation gets, against a direct transcription of the thesis' Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.model import Node, Resources
from outrider.core.nodes import timeline as module
from outrider.core.nodes.selection import Fit, fit
from outrider.core.nodes.timeline import SiteTimeline
from tests.amount import examples
from tests.unit.core.naive_slots import NaiveSlots

HORIZON_S = 6
NAMES = ("cpus", "memory_mib")
resources = st.builds(
    lambda cpus, memory: Resources.of(cpus=cpus, memory_mib=memory), st.integers(0, 4), st.integers(0, 4)
)


@dataclass
class Site:
    timeline: SiteTimeline
    naive: NaiveSlots


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Up to six nodes, of which some are alike, with something reserved on some of them."""
    kinds = draw(st.lists(resources, min_size=1, max_size=3))
    nodes = [
        Node(name=f"n{number}", capacity=kind)
        for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6)))
    ]
    # Each resource is known to the site, even if this draw gave it to no node.
    nodes.append(Node(name="small", capacity=Resources.of(cpus=1, memory_mib=1)))
    site = Site(SiteTimeline(nodes), NaiveSlots(nodes, NAMES, HORIZON_S))
    for _ in range(draw(st.integers(0, 5))):
        node = draw(st.integers(0, len(nodes) - 1))
        taken = draw(resources | st.sampled_from([Resources.of(cpus=1), Resources.of(memory_mib=1)]))
        start_s = draw(st.integers(0, HORIZON_S - 1))
        end_s = draw(st.integers(start_s + 1, HORIZON_S))
        amounts = site.naive.amounts(taken)
        if site.naive.fits(node, amounts, start_s, end_s):
            site.timeline.reserve(node, site.timeline.layout.pack(taken), start_s, end_s)
            site.naive.add(node, amounts, start_s, end_s, -1)
    return site


def algorithm_1(
    site: Site,
    instances: int,
    need: Resources,
    start_s: int,
    end_s: int,
    holders: set[int],
    allowed: set[int],
) -> list[Fit] | int:
    naive, amounts = site.naive, site.naive.amounts(need)
    room = {node: naive.most(node, amounts, start_s, end_s, max(2, instances)) for node in sorted(allowed)}
    candidates = [node for node in sorted(allowed) if room[node]]

    def rank(node: int) -> tuple[bool, bool, bool, int]:
        is_free = node in holders or naive.is_untouched(node, start_s, end_s)
        return node not in holders, room[node] == 1, not is_free, node

    chosen, left = [], instances
    for node in sorted(candidates, key=rank):
        if left:
            chosen.append(Fit(node, min(left, room[node])))
            left -= chosen[-1].instances
    return instances - left if left else chosen


@settings(max_examples=examples(1500), derandomize=True, deadline=None)
@given(
    sites(),
    st.integers(1, 7),
    resources,
    st.tuples(st.integers(0, 5), st.integers(1, 4)),
    st.sets(st.integers(0, 6)),
    st.sets(st.integers(0, 6)),
)
def test_nodes_are_chosen_as_algorithm_1_does(
    site: Site, instances: int, need: Resources, at: tuple[int, int], holders: set[int], broken: set[int]
) -> None:
    everyone = set(range(len(site.timeline.nodes)))
    holders &= everyone
    allowed = everyone - broken
    start_s, end_s = at[0], at[0] + at[1]

    with pytest.MonkeyPatch.context() as patch:
        # With buckets of a second, "untouched" is what the words say.
        patch.setattr(module, "BUCKET_S", 1)
        site.timeline._touched.clear()
        for node in everyone:
            for at_s in range(HORIZON_S):
                if not site.naive.is_untouched(node, at_s, at_s + 1):
                    site.timeline._touched[at_s] = site.timeline._touched.get(at_s, 0) | 1 << node
        found = fit(
            site.timeline,
            instances=instances,
            need=site.timeline.layout.pack(need),
            start_s=start_s,
            end_s=end_s,
            holders=sum(1 << node for node in holders),
            available=sum(1 << node for node in allowed),
        )

    assert found == algorithm_1(site, instances, need, start_s, end_s, holders, allowed)


def test_most_per_node_spreads_the_instances() -> None:
    timeline = SiteTimeline([Node(name=f"n{number}", capacity=Resources.of(cpus=4)) for number in range(3)])

    found = fit(timeline, instances=5, need=1, start_s=0, end_s=9, most_per_node=2)

    assert found == [Fit(0, 2), Fit(1, 2), Fit(2, 1)]


def test_a_holder_with_room_for_one_comes_before_an_empty_node_with_room_for_many() -> None:
    timeline = SiteTimeline([Node(name=f"n{number}", capacity=Resources.of(cpus=4)) for number in range(3)])
    timeline.reserve(2, 3, 0, 9)

    found = fit(timeline, instances=2, need=1, start_s=0, end_s=9, holders=1 << 2)

    assert found == [Fit(2, 1), Fit(0, 1)]


def test_among_taken_nodes_with_room_for_one_the_sites_order_decides() -> None:
    nodes = [
        Node(name="small", capacity=Resources.of(cpus=1, memory_mib=4)),
        Node(name="large", capacity=Resources.of(cpus=2, memory_mib=4)),
    ]
    timeline = SiteTimeline(nodes)
    pack = timeline.layout.pack
    timeline.reserve(0, pack(Resources.of(memory_mib=1)), 0, 5)
    timeline.reserve(1, pack(Resources.of(cpus=1)), 0, 5)

    found = fit(timeline, instances=1, need=pack(Resources.of(cpus=1)), start_s=0, end_s=5)

    assert found == [Fit(0, 1)]
