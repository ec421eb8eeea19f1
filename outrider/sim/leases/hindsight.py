"""Admission in hindsight, to compare policies with.

A run without reservations, with every job's true length, is known; accepted are those for which enough nodes
stay idle in it. That is no bound: one that is accepted may stand in another's way, and delays by chance help
as well as hurt. It is the best threshold, found afterwards, on what best effort would lose.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from outrider.core.leases.admission import PlannedLease, SiteView
from outrider.sim.workload.trace import TraceSubmission
from outrider.sim.world import SimulationResult


@dataclass(frozen=True, slots=True)
class AcceptNamed:
    """Accepts some and no others."""

    names: frozenset[str]

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        return "" if lease.workspace.name in self.names else "it is not among those that were chosen before"


def idle_enough(
    before: SimulationResult, wishes: Iterable[TraceSubmission], busy_percent: int
) -> frozenset[str]:
    """Those of whose node-seconds at most so much was used by jobs in a run without any of them."""
    free = IdleNodes(before)
    chosen: set[str] = set()
    for wish in wishes:
        workspace = wish.workspace
        if workspace.start_s is None:
            continue
        lacking = free.lacking(
            workspace.start_s, workspace.start_s + workspace.duration_s, workspace.instances
        )
        if 100 * lacking <= busy_percent * workspace.instances * workspace.duration_s:
            chosen.add(workspace.name)
    return frozenset(chosen)


class IdleNodes:
    """How many nodes a run has left idle, and when."""

    def __init__(self, outcome: SimulationResult) -> None:
        changes = {0: len(outcome.nodes)}
        for run in outcome.done:
            for segment in run.segments:
                count = sum(share.instances for share in segment.shares)
                changes[segment.start_s] = changes.get(segment.start_s, 0) - count
                changes[segment.end_s] = changes.get(segment.end_s, 0) + count
        self._times = sorted(changes)
        self._idle = list(accumulate(changes[at_s] for at_s in self._times))

    def lacking(self, start_s: int, end_s: int, nodes: int) -> int:
        """How many node-seconds are missing for so many nodes to be idle throughout [start_s, end_s)."""
        index, at_s, found = bisect_right(self._times, start_s) - 1, start_s, 0
        while at_s < end_s:
            later = self._times[index + 1] if index + 1 < len(self._times) else end_s
            until_s = min(end_s, later)
            found += max(0, nodes - self._idle[index]) * (until_s - at_s)
            index, at_s = index + 1, until_s
        return found
