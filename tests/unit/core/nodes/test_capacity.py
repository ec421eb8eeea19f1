"""Packed amounts against the same amounts compared one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.model import Resources
from outrider.core.nodes.capacity import LARGEST_AMOUNT, ResourceLayout
from tests.amount import examples

NAMES = ("cpus", "gpus", "memory_mib")
SETTINGS = settings(max_examples=examples(300), derandomize=True, deadline=None)

edges = st.sampled_from([0, 1, 2, LARGEST_AMOUNT - 1, LARGEST_AMOUNT])
amounts = st.fixed_dictionaries({name: st.integers(0, 9) | edges for name in NAMES})


@SETTINGS
@given(amounts)
def test_packing_loses_nothing(chosen: dict[str, int]) -> None:
    layout, resources = ResourceLayout(NAMES), Resources.from_mapping(chosen)

    assert layout.unpack(layout.pack(resources)) == resources


@SETTINGS
@given(amounts, amounts)
def test_a_need_fits_exactly_when_each_resource_does(need: dict[str, int], free: dict[str, int]) -> None:
    layout = ResourceLayout(NAMES)

    fits = layout.fits(layout.pack(Resources.from_mapping(need)), layout.pack(Resources.from_mapping(free)))

    assert fits == all(need[name] <= free[name] for name in NAMES)


@SETTINGS
@given(amounts, amounts, st.integers(0, 12))
def test_most_is_what_counting_up_gives(need: dict[str, int], free: dict[str, int], limit: int) -> None:
    layout = ResourceLayout(NAMES)

    most = layout.most(
        layout.pack(Resources.from_mapping(need)), layout.pack(Resources.from_mapping(free)), limit
    )

    counted = 0
    while counted < limit and all(need[name] * (counted + 1) <= free[name] for name in NAMES):
        counted += 1
    assert most == counted


def test_the_sum_of_two_largest_amounts_does_not_reach_the_neighbouring_resource() -> None:
    layout = ResourceLayout(NAMES)
    largest = layout.pack(Resources.of(cpus=LARGEST_AMOUNT, gpus=LARGEST_AMOUNT))

    both = layout.unpack(largest + largest)

    assert both == Resources.of(cpus=2 * LARGEST_AMOUNT, gpus=2 * LARGEST_AMOUNT)


def test_a_resource_that_no_node_has_is_named() -> None:
    layout = ResourceLayout(["cpus"])

    assert layout.unknown(Resources.of(cpus=1, gpus=1, tapes=0)) == ("gpus",)
    with pytest.raises(ValueError, match="no node has the resource gpus; known: cpus"):
        layout.pack(Resources.of(gpus=1))


def test_an_amount_that_would_touch_the_guard_is_refused() -> None:
    with pytest.raises(ValueError, match="is more than"):
        ResourceLayout(["cpus"]).pack(Resources.of(cpus=LARGEST_AMOUNT + 1))
