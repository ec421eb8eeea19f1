"""How long nodes that are free stay so, kept while a walk through a queue takes some of them.

Most of a long queue cannot start: as many nodes as a job wants are not free for as long as it lasts. That
is known from one sorted list for all jobs that need the same of the same nodes, without a search for each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from outrider.core.nodes.forecast import BusyForecast

Kind = tuple[int, int, int]
"""What is needed of a node, a mask of the nodes, and an instant."""


Spans = list[tuple[int, int]]
"""Until when, and nodes."""


class FreeSpans:
    """For one instant of deciding. What is taken of nodes meanwhile has to be told by `took`."""

    def __init__(self, forecast: BusyForecast, now_s: int) -> None:
        self._forecast = forecast
        self._now_s = now_s
        self._spans: dict[Kind, Spans] = {}
        self._untils: dict[Kind, dict[int, int]] = {}

    def spans(self, need: int, eligible: int, at_s: int) -> Spans:
        """Until when nodes stay free on which `need` is free at an instant, and these nodes, in order. The
        list stays right while `took` tells what is taken."""
        return self._of((need, eligible, at_s))

    def took(self, nodes: Iterable[int]) -> None:
        """More is taken of these nodes by now."""
        for kind, spans in self._spans.items():
            untils = self._untils[kind]
            for node in nodes:
                before_s = untils.pop(node, None)
                if before_s is None:
                    continue
                del spans[bisect_left(spans, (before_s, node))]
                self._enter(kind, node)

    def _of(self, kind: Kind) -> Spans:
        found = self._spans.get(kind)
        if found is not None:
            return found
        need, eligible, at_s = kind
        found, untils = self._spans.setdefault(kind, []), self._untils.setdefault(kind, {})
        for bound_s, node in self._forecast.openings(need, self._now_s, eligible):
            if bound_s > at_s:
                break
            until_s = self._forecast.free_until(node, need, at_s)
            if until_s > at_s:
                untils[node] = until_s
        found += sorted((until_s, node) for node, until_s in untils.items())
        return found

    def _enter(self, kind: Kind, node: int) -> None:
        need, _, at_s = kind
        until_s = self._forecast.free_until(node, need, at_s)
        if until_s > at_s:
            self._untils[kind][node] = until_s
            insort(self._spans[kind], (until_s, node))
