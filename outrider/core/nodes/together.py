"""The earliest instant at which several nodes are free at once, by a forecast of what is taken of them."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappush, heappushpop

from outrider.core.nodes.forecast import BusyForecast
from outrider.core.nodes.node_timeline import FOREVER

NOTHING: Mapping[int, int] = {}


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
    later than the answer, until as many can start together.
    """
    at_s = now_s if from_s is None else max(now_s, from_s)
    known: dict[int, int] = {}
    while True:
        starts = _earliest(forecast, need, count, duration_s, eligible, now_s, at_s, there_s, known)
        if len(starts) < count:
            return None
        latest_s = max(start_s for start_s, _ in starts)
        if latest_s == at_s:
            return at_s, tuple(sorted(node for _, node in starts))
        at_s = latest_s


def _earliest(
    forecast: BusyForecast,
    need: int,
    count: int,
    duration_s: int,
    eligible: int,
    now_s: int,
    at_s: int,
    there_s: Mapping[int, int],
    known: dict[int, int],
) -> list[tuple[int, int]]:
    """The nodes on which something can start first from an instant on, each by itself; ties by number. Those
    starts that are `known` from an earlier instant are still right if they are not before this one."""
    found: list[tuple[int, int]] = []
    at_once = 0
    for bound_s, node in forecast.openings(need, now_s, eligible):
        if len(found) == count and bound_s > -found[0][0]:
            break
        start_s = known.get(node, -1)
        if start_s < at_s:
            from_s = max(at_s, bound_s, there_s.get(node, 0) if there_s else 0)
            start_s = known[node] = forecast.free_from(node, need, from_s, duration_s)
        if start_s == FOREVER:
            continue
        if len(found) < count:
            heappush(found, (-start_s, -node))
        else:
            heappushpop(found, (-start_s, -node))
        at_once += start_s == at_s
        if at_once == count:
            break
    return [(-start_s, -node) for start_s, node in found]
