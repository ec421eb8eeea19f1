"""Table I and Figure 1 of the paper on requests with several options."""

from __future__ import annotations

import pytest

from outrider.core.options.priority import FactorReading
from outrider.core.options.schemes import Listed, Scheme
from outrider.sim.workload.options.example import (
    NODES,
    PRINTED_LOST,
    requests,
    rules,
    served,
)

PRINTED_ORDERS = {
    0: ("th1", "th2", "th3"),
    10: ("th6", "th4", "th5"),
    20: ("th7", "th8", "th9", "th10", "th11"),
}
PRINTED_FIRST_INTERVAL = {"th1": 2, "th2": 2, "th3": 2}
"""Which options MEO-Adaptive takes at 0, counted from 1."""
ALL = {request.name for request in requests()}


def lost(scheme: Scheme) -> set[str]:
    return ALL - {each.request.name for each in served(scheme)}


@pytest.mark.parametrize("now", PRINTED_ORDERS)
def test_printed_orders_of_tsra_come_out(now: int) -> None:
    site = Listed(NODES, rules(Scheme.FIRST, FactorReading.GOLDEN))
    site.waiting += [site.enter(each) for each in requests() if each.arrival_s == now]

    assert tuple(each.request.name for each in site.priorities(now)) == PRINTED_ORDERS[now]


def test_first_options_discard_the_printed_requests() -> None:
    assert lost(Scheme.FIRST) == set(PRINTED_LOST[Scheme.FIRST])


def test_last_options_discard_as_many_as_printed_and_one_other() -> None:
    # No order that has th9 before th11 can discard the printed ones: th9 is lost in the place of th8.
    found, printed = lost(Scheme.LAST), set(PRINTED_LOST[Scheme.LAST])

    assert len(found) == len(printed)
    assert (found - printed, printed - found) == ({"th9"}, {"th8"})


def test_adaptive_serves_all_and_takes_the_printed_options_at_first() -> None:
    runs = served(Scheme.ADAPTIVE)

    assert {each.request.name for each in runs} == ALL
    assert {
        each.request.name: each.index + 1 for each in runs if each.request.arrival_s == 0
    } == PRINTED_FIRST_INTERVAL


def test_plan_with_steps_up_serves_more_than_plain_plan() -> None:
    assert lost(Scheme.PLAN_SCALED) < lost(Scheme.PLAN)


@pytest.mark.parametrize("scheme", list(Scheme))
def test_nobody_ends_late_and_no_node_gives_more_than_it_has(scheme: Scheme) -> None:
    runs = served(scheme)
    cores = {0: 4, 1: 16}  # of N1 and N2

    assert all(each.end_s <= each.request.finish_by_s for each in runs)
    for at in range(50):
        taken = {0: 0, 1: 0}
        for each in runs:
            if each.start_s <= at < each.end_s:
                for node, count in each.places:
                    # Bundled: one piece is all instances.
                    taken[node] += count * each.option.total("cpus")
        assert all(taken[node] <= cores[node] for node in cores)
