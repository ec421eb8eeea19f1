"""Until when nodes are busy, as far as best effort is concerned: a guess, not a promise.

Jobs that run end at their limits at the latest, reservations have their nodes as a whole, and jobs
that were led somewhere will be there. What the batch system really does is its own business; this
tells which of several nodes is likely to be free first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.core.capacity import Layout
from outrider.core.timeline import FOREVER, NodeTimeline


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """So much of a node, packed as in the slot table, for so long. None is all of it."""

    node: int
    start_s: int
    end_s: int
    amount: int | None = None


class Busy:
    """What is taken of nodes. Where more is taken than a node has, all of it is taken."""

    def __init__(self, layout: Layout, capacities: Sequence[int], taken: Iterable[Taken] = ()) -> None:
        self._layout = layout
        self._capacities = capacities
        self._rows: dict[int, NodeTimeline] = {}
        for each in taken:
            self.take(each)

    def take(self, taken: Taken) -> None:
        """Something more is taken."""
        if taken.start_s >= taken.end_s:
            return
        row = self._rows.get(taken.node)
        if row is None:
            row = self._rows[taken.node] = NodeTimeline(self._layout, self._capacities[taken.node])
        if taken.amount is not None and row.fits(taken.amount, taken.start_s, taken.end_s):
            row.reserve(taken.amount, taken.start_s, taken.end_s)
            return
        edges = [taken.start_s]
        while (edge_s := row.next_change(edges[-1])) < taken.end_s:
            edges.append(edge_s)
        for from_s, until_s in zip(edges, [*edges[1:], taken.end_s], strict=True):
            free = row.free_at(from_s)
            is_part = taken.amount is not None and self._layout.fits(taken.amount, free)
            amount = taken.amount if is_part and taken.amount is not None else free
            if amount:
                row.reserve(amount, from_s, until_s)

    def free_from(self, node: int, need: int, from_s: int, duration_s: int) -> int:
        """The first instant from `from_s` on from which `need` is free for so long; FOREVER if none."""
        row = self._rows.get(node)
        if row is None:
            return from_s if self._layout.fits(need, self._capacities[node]) else FOREVER
        at_s = row.next_fit(need, from_s)
        while at_s < FOREVER:
            until_s = row.free_until(need, at_s, at_s + duration_s)
            if until_s >= at_s + duration_s:
                return at_s
            at_s = row.next_fit(need, until_s)
        return FOREVER
