"""The order in which nodes are searched for the earliest start: nothing in it comes too late."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.node_timeline import FOREVER
from tests.amount import examples

NODES = 12
CPUS = 4

takings = st.builds(
    lambda node, start_s, length_s, amount: Taken(
        nodes=(node,), start_s=start_s, end_s=start_s + length_s, amount=amount
    ),
    st.integers(0, NODES - 1),
    st.integers(0, 60),
    st.integers(1, 40),
    st.sampled_from([None, 1, 2, 4]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("know"), st.integers(0, 5), st.lists(takings, max_size=3)),
        st.tuples(st.just("take"), st.just(0), st.lists(takings, min_size=1, max_size=4)),
        st.tuples(st.just("nothing"), st.just(0), st.just([])),
        st.tuples(st.just("wait"), st.integers(0, 15), st.just([])),
    ),
    max_size=20,
)


def site() -> BusyForecast:
    return BusyForecast(ResourceLayout(["cpus"]), [CPUS] * NODES)


def once_a_node(taken: list[Taken]) -> tuple[Taken, ...]:
    return tuple({each.nodes: each for each in taken}.values())


@settings(max_examples=examples(150), deadline=None)
@given(story=steps, needs=st.lists(st.sampled_from([1, 3, 4]), min_size=1, max_size=3))
def test_nodes_are_searched_in_order_and_none_too_late(
    story: list[tuple[str, int, list[Taken]]], needs: list[int]
) -> None:
    busy, now_s = site(), 0
    known: dict[str, tuple[Taken, ...]] = {}
    expected: list[Taken] = []
    for verb, number, taken in story:
        if verb == "know":
            known[f"job {number}"] = once_a_node(taken)
            busy.know(f"job {number}", known[f"job {number}"])
        elif verb == "take":
            expected += taken
            for each in taken:
                busy.take(each)
        elif verb == "nothing":
            expected = []
            busy.expect_nothing()
        now_s += number if verb == "wait" else 0
        # The same in one go, without anything that was kept from before.
        fresh = site()
        for name, claims in known.items():
            fresh.know(name, claims)
        for each in expected:
            fresh.take(each)

        for need in needs:
            found = list(busy.openings(need, now_s, (1 << NODES) - 1))
            ever = [node for node in range(NODES) if fresh.free_from(node, need, now_s, 1) < FOREVER]
            assert sorted(node for _, node in found) == ever
            assert [bound_s for bound_s, _ in found] == sorted(bound_s for bound_s, _ in found)
            for bound_s, node in found:
                assert now_s <= bound_s <= fresh.free_from(node, need, now_s, 5)


def test_nodes_that_were_not_asked_for_are_left_out() -> None:
    assert [node for _, node in site().openings(1, 0, 0b1010)] == [1, 3]


def test_what_is_forgotten_is_free_again() -> None:
    busy = site()
    busy.know("job 1", (Taken(nodes=(0,), start_s=0, end_s=50),))
    taken = busy.free_from(0, CPUS, 0, 10)
    busy.know("job 1", ())

    assert (taken, busy.free_from(0, CPUS, 0, 10)) == (50, 0)


def test_what_is_expected_gives_way_to_nothing_that_is_known() -> None:
    busy = site()
    busy.know("job 1", (Taken(nodes=(0,), start_s=0, end_s=50),))
    busy.take(Taken(nodes=(0,), start_s=50, end_s=80))
    before = busy.free_from(0, CPUS, 0, 10)
    busy.expect_nothing()

    assert (before, busy.free_from(0, CPUS, 0, 10)) == (80, 50)
