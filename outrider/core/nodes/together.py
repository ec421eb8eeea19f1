"""The earliest instant at which several nodes are free at once, by a forecast of what is taken of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile

from outrider.core.nodes.forecast import BusyForecast
from outrider.core.nodes.node_timeline import FOREVER

NOTHING: Mapping[int, int] = {}
MOST_MORE = 64
"""If so many nodes more than are wanted can start at an instant, the first are taken as they come."""


def earliest_together(
    forecast: BusyForecast,
    *,
    need: int,
    count: int,
    duration_s: int,
    eligible: int,
    now_s: int,
    from_s: int | None = None,
    there_s: Mapping[int, int] = NOTHING,
) -> tuple[int, tuple[int, ...]] | None:
    """The first instant from which `need` is free on `count` nodes for so long, and the first such nodes.

    `there_s` says of single nodes that nothing can start there before. None if there is no such instant.
    It is exact: the instant is raised to the one by which enough nodes can start one by one, which is never
    later than the answer, until as many can start together. Most nodes are taken until an instant and free
    for good from then on, or free before it for too short: these are counted without a look at each.
    """
    order = forecast.order(need, now_s)
    at_s = now_s if from_s is None else max(now_s, from_s)
    # Elsewhere it can start as soon as a node is free for good, and no sooner.
    apart = {node for node, longest_s in order.before.items() if longest_s >= duration_s}
    apart.update(there_s)
    good = (each for each in order.good_in_order(eligible) if each[1] not in apart)
    soonest = list(islice(good, count))
    elsewhere = [good_s for good_s, _ in soonest]
    last_s = max(at_s, elsewhere[-1]) if len(elsewhere) == count else FOREVER
    starts: dict[int, int] = {}
    for node in apart:
        if eligible >> node & 1 and order.first_from(node) <= last_s:
            from_s = max(at_s, there_s.get(node, 0))
            starts[node] = forecast.free_from(node, need, from_s, duration_s)
    while True:
        by_then = sorted([*elsewhere, *starts.values()])
        if len(by_then) < count or by_then[count - 1] == FOREVER:
            return None
        if by_then[count - 1] <= at_s:
            break
        at_s = by_then[count - 1]
        for node, start_s in starts.items():
            if start_s < at_s:
                starts[node] = forecast.free_from(node, need, at_s, duration_s)
    # Usually hardly more can start by then than are wanted, but many more are passed by who looks for them in
    # order: those that are free earlier for too short.
    able = [node for good_s, node in soonest if good_s <= at_s]
    if len(able) == count:
        able += [node for _, node in takewhile(lambda each: each[0] <= at_s, islice(good, MOST_MORE))]
    able += [node for node, start_s in starts.items() if start_s <= at_s]
    if len(able) < count + MOST_MORE:
        return at_s, tuple(sorted(order.first_of(able, count, now_s)))
    found = (
        node
        for _, node in order.since(now_s, eligible)
        if (starts.get(node, FOREVER) if node in apart else order.good_from(node)) <= at_s
    )
    return at_s, tuple(sorted(islice(found, count)))
