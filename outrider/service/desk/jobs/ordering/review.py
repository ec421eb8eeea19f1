"""All jobs that wait, reviewed after each look, those that came first first: a few in one go.

What was chosen for a job before is still right, or is not. Where each will probably be is thought
about anew, those first that came first; so a review that has begun ends before another begins, and
nothing is chosen for anybody in between.
"""

from __future__ import annotations

from collections import deque

from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.options.sizes import JobSizes
from outrider.service.desk.jobs.ordering.queues import WAITING, JobQueues
from outrider.service.desk.jobs.ordering.schedule import JobTurns
from outrider.service.desk.jobs.ordering.worth import in_order
from outrider.service.desk.jobs.placement import JobPlacer
from outrider.service.desk.state.site import Site

REVIEWED_AT_ONCE = 50
MOST_IMPROVED = 10
"""Jobs for which a better place is looked for in one go."""
IMPROVED_PER_S = 20
"""So many jobs are looked at for a better place within a second, on average: where thousands wait, it
is each one's turn every few minutes."""


class JobReview:
    """One review after the other."""

    def __init__(
        self, site: Site, jobs: JobQueues, placer: JobPlacer, schedule: JobTurns, sizes: JobSizes
    ) -> None:
        self._site = site
        self._jobs = jobs
        self._placer = placer
        self._schedule = schedule
        self._sizes = sizes
        self._left: deque[str] = deque()
        self._is_wanted = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._left) or self._is_wanted

    def begin(self) -> None:
        """There is something new: as soon as the review that is under way is over."""
        self._is_wanted = True

    def go_on(self) -> None:
        """Review the next few."""
        if not self._left and self._is_wanted:
            self._placer.begin()
            self._schedule.go_on()
            if self._schedule.is_under_way:
                return
            self._is_wanted = False
            self._left.extend(in_order(self._jobs.entries, self._site.now_s))
        improved = 0
        for _ in range(min(REVIEWED_AT_ONCE, len(self._left))):
            entry = self._jobs.entries.get(self._left.popleft())
            if entry is not None:
                improved += self._review(entry, may_improve=improved < MOST_IMPROVED)

    def _review(self, entry: JobEntry, *, may_improve: bool) -> bool:
        """True if a better place was looked for."""
        self._jobs.touch(entry)
        if entry.stage is Stage.WAITING and not entry.is_scheduled:
            self._jobs.to_choose.add(entry.key, entry.job.uid)
        if entry.stage not in (Stage.STAGING, Stage.STAGED):
            return False
        for node in self._placer.renew(entry):
            self._placer.drop(entry, node)
        self._jobs.mend(entry)
        if entry.job.state not in WAITING or entry.is_scheduled:
            # It is where it was led to; or is thought about with all others, at once.
            return False
        now_s = self._site.now_s
        may_improve = may_improve and now_s >= entry.improve_s
        if may_improve and entry.may_have_options and self._sizes.decide(entry):
            return True
        is_tried = self._placer.stand(entry, may_improve=may_improve)
        if is_tried:
            entry.improve_s = now_s + len(self._jobs.entries) // IMPROVED_PER_S
        return is_tried
