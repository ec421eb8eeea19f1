"""Until when nodes are busy, as the last look and the book of reservations say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.core.model import Resources
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.rms.base import NOTHING, RmsJob, Sight
from outrider.service.desk.nodes.running_jobs import RunningJobs
from outrider.service.desk.state.node_list import is_part, parts
from outrider.service.desk.state.site import Site

Claim = tuple[tuple[str, ...], int, int, Resources]
"""A reservation's nodes, from when, until when, and what of each: nothing means all."""


class Occupancy:
    """What nodes do, kept up to date from one look to the next: whatever has not changed costs nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site
        timeline = site.book.timeline
        self.busy = BusyForecast(timeline.layout, [row.capacity for row in timeline.rows])
        self._jobs = RunningJobs()
        self._claims: dict[str, Claim] = {}

    def look(self, sight: Sight) -> None:
        """Jobs that run, our reservations and those of others."""
        self._look_at_jobs(sight)
        claims = dict(self._reserved(sight))
        for name in [name for name in self._claims if name not in claims]:
            self.busy.know(f"reservation {name}", ())
        for name, claim in claims.items():
            if self._claims.get(name) != claim:
                self.busy.know(f"reservation {name}", (self._claimed(claim),))
        self._claims = claims

    def _look_at_jobs(self, sight: Sight) -> None:
        now_s = self._site.now_s
        for change in self._jobs.look(sight, now_s, now_s + self._site.settings.look_every_s):
            taken = () if change.after is None else (self._running(change.after, change.end_s),)
            self.busy.know(f"job {change.key}", taken)

    def _running(self, job: RmsJob, end_s: int) -> Taken:
        return Taken(
            nodes=self._numbers(job.nodes),
            start_s=self._site.now_s,
            end_s=end_s,
            amount=packed(self._site, job.resources),
        )

    def _claimed(self, claim: Claim) -> Taken:
        """What a reservation has of its nodes."""
        names, start_s, end_s, size = claim
        return Taken(
            nodes=self._numbers(names),
            start_s=max(start_s, self._site.now_s),
            end_s=end_s,
            amount=packed(self._site, size) if size.amounts else None,
        )

    def _numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        """Of those nodes that are known."""
        number_of = self._site.book.timeline.number_of
        return tuple([number_of[name] for name in names if name in number_of])

    def _reserved(self, sight: Sight) -> Iterator[tuple[str, Claim]]:
        site = self._site
        for live in site.live.values():
            reservation = live.reservation
            if reservation.end_s > site.now_s:
                resources = reservation.workspace.resources
                size = parts(resources) if is_part(resources) else NOTHING
                yield live.name, (reservation.nodes, reservation.start_s, reservation.end_s, size)
        for each in sight.reservations:
            if each.name not in site.live and each.end_s > site.now_s:
                yield each.name, (each.nodes, each.start_s, each.end_s, each.size)


def packed(site: Site, resources: Resources) -> int | None:
    """What a job takes of a node, packed; None if no node can have so much."""
    layout = site.book.timeline.layout
    if layout.unknown(resources) or any(amount > LARGEST_AMOUNT for _, amount in resources.amounts):
        return None
    return layout.pack(resources)
