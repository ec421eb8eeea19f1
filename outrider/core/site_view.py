"""What policies of admission may know of a site, from its book and its queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from outrider.core.besteffort.queue import BestEffortQueue
from outrider.core.model import Workspace
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan

if TYPE_CHECKING:
    from outrider.core.leases.admission import PlannedLease


def unit_of(names: Iterable[str]) -> str:
    """What a site calls its processors: `cpus`, or as near to it as its nodes have (Haizea: `CPU`)."""
    names = sorted(names)
    likely = [name for name in names if name.lower() in ("cpus", "cpu")]
    return "cpus" if "cpus" in names else next(iter([*likely, *names]), "cpus")


class CoreSiteView:
    """A `SiteView` of one book and the queue beside it. Units are processors."""

    def __init__(self, book: Book, queue: BestEffortQueue) -> None:
        self._book = book
        self._queue = queue
        self.unit = unit_of(book.timeline.layout.names)
        self.units = sum(node.capacity[self.unit] for node in book.timeline.nodes)

    def lease(self, plan: ReservationPlan) -> PlannedLease:
        """A plan as policies look at it."""
        return self._planned(plan.workspace, plan.spans)

    def wanted(self, workspace: Workspace) -> PlannedLease:
        """A request as if it had the start that it asks for."""
        start_s = workspace.start_s or 0
        return self._planned(workspace, ((start_s, start_s + workspace.duration_s),))

    def leases(self, start_s: int, end_s: int) -> Iterator[PlannedLease]:
        """The accepted leases that take anything in an interval."""
        for entry in self._book.entries.values():
            if entry.reservation.start_s < end_s and start_s < entry.end_s:
                yield self._planned(entry.reservation.workspace, entry.spans())

    def booked_and_used(self, entry: BookEntry, now_s: int) -> tuple[int, int]:
        """What a lease that ends now had booked, and has used, in units times seconds."""
        workspace = entry.reservation.workspace
        units = workspace.instances * workspace.resources[self.unit]
        spans = entry.spans()
        used_s = sum(max(0, min(end_s, now_s) - start_s) for start_s, end_s in spans)
        return units * sum(end_s - start_s for start_s, end_s in spans), units * used_s

    def best_effort_units(self, now_s: int) -> int:
        """What best effort runs on and waits for."""
        from outrider.core.besteffort.protection.prediction import wanted_units

        return wanted_units(self._queue.board, self._queue.waiting, self.unit, now_s)

    def queue_slowdown_percent(self, extra: PlannedLease, now_s: int) -> int:
        """The mean bounded slowdown of best effort if the lease were accepted, as is predicted now."""
        from outrider.core.besteffort.protection.prediction import slowdown_percent

        leases = [*self.leases(now_s, FOREVER), extra]
        return slowdown_percent(self._queue.board, self._queue.waiting, leases, self.unit, now_s)

    def _planned(self, workspace: Workspace, spans: tuple[tuple[int, int], ...]) -> PlannedLease:
        from outrider.core.leases.admission import PlannedLease

        units = workspace.instances * workspace.resources[self.unit]
        return PlannedLease(workspace=workspace, units=units, spans=spans)
