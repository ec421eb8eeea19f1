"""Until when nodes are busy, as the last look and the book of reservations say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.core.model import Resources
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.rms.base import JobState, RmsJob, Sight
from outrider.service.desk.state.site import Site

FOREVER_S = 366 * 86_400
"""A job without a limit is taken to run so long."""
OCCUPYING = (JobState.STARTING, JobState.RUNNING)
Claim = tuple[tuple[str, ...], int, int]
"""A reservation's nodes, from when, until when."""


class Occupancy:
    """What nodes do, kept up to date from one look to the next: whatever has not changed costs nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site
        timeline = site.book.timeline
        self.busy = BusyForecast(timeline.layout, [row.capacity for row in timeline.rows])
        self._jobs: dict[str, tuple[RmsJob, int]] = {}
        """Jobs that have nodes, and until when they were taken to have them."""
        self._claims: dict[str, Claim] = {}

    def look(self, sight: Sight) -> None:
        """Jobs that run, our reservations and those of others."""
        self._look_at_jobs(sight)
        claims = dict(self._reserved(sight))
        for name in [name for name in self._claims if name not in claims]:
            self.busy.know(f"reservation {name}", ())
        for name, claim in claims.items():
            if self._claims.get(name) != claim:
                self.busy.know(f"reservation {name}", tuple(self._whole(claim)))
        self._claims = claims

    def _look_at_jobs(self, sight: Sight) -> None:
        now_s, before = self._site.now_s, self._jobs
        soon_s = now_s + self._site.settings.look_every_s
        found: dict[str, tuple[RmsJob, int]] = {}
        for job in sight.jobs:
            if job.state not in OCCUPYING or job.reservation is not None:
                continue
            known = before.get(job.key)
            if known is None or known[1] < soon_s or (known[0] is not job and known[0] != job):
                # One that outlives its limit goes on until it is seen to have ended.
                known = job, max(self._limit_s(job), soon_s)
                self.busy.know(f"job {job.key}", tuple(self._running(job, known[1])))
            found[job.key] = known
        for key in before:
            if key not in found:
                self.busy.know(f"job {key}", ())
        self._jobs = found

    def _limit_s(self, job: RmsJob) -> int:
        start_s = self._site.now_s if job.start_s is None else job.start_s
        return start_s + (FOREVER_S if job.limit_s is None else job.limit_s)

    def _running(self, job: RmsJob, end_s: int) -> Iterator[Taken]:
        number_of, now_s = self._site.book.timeline.number_of, self._site.now_s
        amount = packed(self._site, job.resources)
        for name in job.nodes:
            if name in number_of:
                yield Taken(node=number_of[name], start_s=now_s, end_s=end_s, amount=amount)

    def _whole(self, claim: Claim) -> Iterable[Taken]:
        """Reservations have their nodes as a whole."""
        number_of, (names, start_s, end_s) = self._site.book.timeline.number_of, claim
        for name in names:
            if name in number_of:
                start_s = max(start_s, self._site.now_s)
                yield Taken(node=number_of[name], start_s=start_s, end_s=end_s)

    def _reserved(self, sight: Sight) -> Iterator[tuple[str, Claim]]:
        site = self._site
        for live in site.live.values():
            reservation = live.reservation
            if reservation.end_s > site.now_s:
                yield live.name, (reservation.nodes, reservation.start_s, reservation.end_s)
        for each in sight.reservations:
            if each.name not in site.live and each.end_s > site.now_s:
                yield each.name, (each.nodes, each.start_s, each.end_s)


def packed(site: Site, resources: Resources) -> int | None:
    """What a job takes of a node, packed; None if no node can have so much."""
    layout = site.book.timeline.layout
    if layout.unknown(resources) or any(amount > LARGEST_AMOUNT for _, amount in resources.amounts):
        return None
    return layout.pack(resources)
