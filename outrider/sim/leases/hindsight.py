"""An oracle for admission, to compare policies with: it knows every job that will come, and its true length.

It puts the wishes in the order of what jobs use of their place in a run without any of them, least first, and
accepts as many from the front as keep the mean bounded slowdown of jobs within a bound. How many is found by
halving, and each trial is a whole run. That is no bound on what can be accepted: delays by chance shorten
other jobs' waiting, so the slowdown does not rise steadily with the number, and another set may be larger.
Trying the refused again, one after the other, gave 50 and 51 instead of 28 and 12 in two pieces of KTH-SP2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
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


def gentlest_first(before: SimulationResult, wishes: Iterable[TraceSubmission]) -> list[str]:
    """The names of those who want reservations, by the share of their node-seconds that jobs use in a run
    without any of them."""
    free = IdleNodes(before)
    shares: list[tuple[Fraction, str]] = []
    for wish in wishes:
        workspace = wish.workspace
        if workspace.start_s is None:
            continue
        end_s = workspace.start_s + workspace.duration_s
        lacking = free.lacking(workspace.start_s, end_s, workspace.instances)
        shares.append((Fraction(lacking, workspace.instances * workspace.duration_s), workspace.name))
    return [name for _, name in sorted(shares)]


def longest_front(
    names: Sequence[str], slowdown_with: Callable[[frozenset[str]], float], most: float
) -> frozenset[str]:
    """As many from the front as leave the slowdown at `most` or below, found by halving."""
    kept, beyond = 0, len(names) + 1
    while beyond - kept > 1:
        middle = (kept + beyond) // 2
        if slowdown_with(frozenset(names[:middle])) <= most:
            kept = middle
        else:
            beyond = middle
    return frozenset(names[:kept])


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
