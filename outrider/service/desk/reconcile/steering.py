"""The share of reservations that adapts: what the service has seen of jobs and of reservations' use.

Everything comes from looks at the batch system. After a restart, and when nodes come or go, learning begins
anew, at the share that the policy file names.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.leases.adaptive import AdaptiveShare
from outrider.metadata.policies import Policies
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.reservations.booked_usage import share_of
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log


@dataclass(slots=True)
class _Use:
    booked: int
    used: int = 0


class Steering:
    """Tells the share what each look shows."""

    def __init__(self, site: Site, log: Log) -> None:
        self._site = site
        self._log = log
        self._waiting: frozenset[str] = frozenset()
        self._came = 0
        self._uses: dict[str, _Use] = {}
        """Of reservations that were seen before their time came: what began unseen is not judged."""
        self._seen_s = site.now_s

    def seen(self, policies: Policies) -> None:
        share, site = share_of(self._site, policies), self._site
        if share is None:
            return
        waiting = [job for job in site.seen_jobs if _waits(job)]
        keys = frozenset(job.key for job in waiting)
        self._came += sum(job.tasks for job in waiting if job.key not in self._waiting)
        self._waiting = keys
        self._see_use(share)
        units = len(site.book.timeline.nodes)
        move = share.look(sum(job.tasks for job in waiting), self._came, units, site.now_s)
        if move is not None:
            before, after = move.before_percent, move.after_percent
            self._log.info("share of reservations has moved", before=before, after=after, words=move.words)

    def _see_use(self, share: AdaptiveShare) -> None:
        """How many nodes of each reservation jobs have had since the last look; who has gone is judged."""
        site = self._site
        gone_s, self._seen_s = site.now_s - self._seen_s, site.now_s
        for job in site.seen_jobs:
            use = self._uses.get(job.reservation or "")
            if use is not None and job.state is JobState.RUNNING:
                use.used += len(job.nodes) * gone_s
        for name in [name for name in self._uses if name not in site.live]:
            use = self._uses.pop(name)
            share.ended(use.booked, use.used)
        for name, live in site.live.items():
            booked = live.reservation
            if name not in self._uses and site.now_s <= booked.start_s:
                self._uses[name] = _Use(len(live.nodes) * (booked.end_s - booked.start_s))


def _waits(job: RmsJob) -> bool:
    is_held = job.state is JobState.HELD and job.is_held_by_us
    return job.reservation is None and (job.state is JobState.PENDING or is_held)
