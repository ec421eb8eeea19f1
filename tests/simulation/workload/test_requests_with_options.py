"""Requests as the paper's evaluation draws them: what each way of drawing keeps to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from outrider.core.options.request import Request
from outrider.sim.workload.options.generators import (
    INTERVAL_S,
    MINUTE_S,
    TABLE_II,
    Drawing,
    Load,
    Overshoot,
    RequestKind,
    cluster,
    requests,
)

INTERVALS = 40


def drawn(drawing: Drawing, load: Load | None = None) -> list[list[Request]]:
    return requests(
        RequestKind.SYNTHETIC,
        load or Load(average=1.0),
        1,
        INTERVALS,
        nodes=cluster(),
        overshoot=Overshoot.CARRIED,
        drawing=drawing,
    )


def speedups(drawing: Drawing) -> list[tuple[float, float]]:
    """By how much the next option takes more VMs, and is faster."""
    return [
        (after.instances / before.instances, before.duration_s / after.duration_s)
        for arrived in drawn(drawing)
        for each in arrived
        for before, after in pairwise(each.options)
    ]


@pytest.mark.parametrize("drawing", Drawing)
def test_options_grow_and_times_shrink_and_the_load_is_the_one_that_is_named(drawing: Drawing) -> None:
    arrivals = drawn(drawing)
    totals = {name: sum(node.capacity[name] for node in cluster()) for name in ("cpus", "memory_mib")}
    work = 0.0
    for number, arrived in enumerate(arrivals):
        for each in arrived:
            assert number * INTERVAL_S <= each.arrival_s < (number + 1) * INTERVAL_S
            assert each.options[0].resources in [kind.resources for kind in TABLE_II]
            assert all(
                a.instances <= b.instances and a.duration_s > b.duration_s for a, b in pairwise(each.options)
            )
            left_s = each.finish_by_s - each.arrival_s
            assert 2 * each.options[0].duration_s <= left_s <= 4 * each.options[0].duration_s
            first = each.options[0]
            work += first.duration_s * max(first.total(name) / total for name, total in totals.items())

    assert 0.8 < work / (INTERVALS * INTERVAL_S) < 1.2


@pytest.mark.parametrize("drawing", [Drawing.BOUNDED, Drawing.TRUNCATED])
def test_whole_minutes_and_nothing_larger_than_the_cluster(drawing: Drawing) -> None:
    for arrived in drawn(drawing):
        for each in arrived:
            assert all(option.duration_s % MINUTE_S == 0 for option in each.options)
            assert all(
                option.total(name) <= sum(node.capacity[name] for node in cluster())
                for option in each.options
                for name in ("cpus", "memory_mib")
            )


def test_only_truncated_options_are_faster_by_more_than_they_take() -> None:
    # A time of whole minutes may be half a minute shorter.
    faster = [speed for more, speed in speedups(Drawing.TRUNCATED) if speed > 1.15 * more]

    assert all(speed <= 1.15 * more for more, speed in speedups(Drawing.BOUNDED))
    assert len(faster) > len(speedups(Drawing.TRUNCATED)) / 20


def test_spread_of_a_load_is_a_part_of_it() -> None:
    from random import Random

    random = Random(1)
    shares = [Load(average=0.5).of(0, random, is_relative=True) for _ in range(200)]

    assert 0.3 <= min(shares) < 0.35
    assert 0.65 < max(shares) <= 0.7
