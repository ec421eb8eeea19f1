"""EASY backfilling without a profile: the policy `aggressive`, made fast.

It decides exactly as `ProfileQueue` does with one reservation and no blocks. Without
blocks, free processors only grow until the first waiting job's reservation, so two
numbers describe it: the shadow time at which that job will have its processors, and
the extra ones that it will leave over then.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from outrider.core.besteffort.counted.jobs import CountedJob, already_known, not_running, too_wide


class EasyQueue:
    """The first waiting job holds a reservation; the others may pass it within its limits.

    What makes it fast: running jobs are kept sorted by their estimated ends; nothing is
    looked at while even the narrowest waiting job is too wide; and after an instant
    without a completion only the newly submitted jobs are looked at, because time alone
    never makes room for a job that did not fit.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._free = capacity
        self._now_s = 0
        self._waiting: list[CountedJob] = []
        # (estimated end, number, processors), sorted; and where to find a job in it.
        self._running: list[tuple[int, int, int]] = []
        self._entries: dict[int, tuple[int, int, int] | None] = {}
        # So many waiting jobs of each width, and the narrowest width among them.
        self._widths: dict[int, int] = {}
        self._narrowest = capacity + 1
        # The first waiting job's reservation, and how many jobs at the front of the
        # queue are known not to start before the next completion.
        self._shadow_s = 0
        self._extra = 0
        self._examined = 0

    def submit(self, job: CountedJob, now_s: int) -> None:
        width = job.processors
        if width > self._capacity:
            raise too_wide(job, self._capacity)
        if job.number in self._entries:
            raise already_known(job)
        self._entries[job.number] = None
        self._waiting.append(job)
        self._widths[width] = self._widths.get(width, 0) + 1
        if width < self._narrowest:
            self._narrowest = width

    def finished(self, job: CountedJob, now_s: int) -> None:
        entry = self._entries.get(job.number)
        if entry is None:
            raise not_running(job)
        del self._entries[job.number]
        del self._running[bisect_left(self._running, entry)]
        self._free += job.processors
        self._examined = 0

    def schedule(self, now_s: int) -> list[CountedJob]:
        if now_s < self._now_s:
            raise ValueError(f"time went backwards, from {self._now_s} to {now_s}")
        self._now_s = now_s
        if self._free < self._narrowest:
            return []
        # An overrunning job moves the shadow time by living on, so nothing known holds.
        if self._examined and self._running[0][0] <= now_s:
            self._examined = 0
        started = [] if self._examined else self._start_from_the_front()
        if self._waiting:
            if not self._examined:
                self._reserve_for_the_first()
                self._examined = 1
            started += self._backfill()
        return started

    def _start_from_the_front(self) -> list[CountedJob]:
        """Starts jobs in the order of the queue until one does not fit."""
        count = 0
        for job in self._waiting:
            if job.processors > self._free:
                break
            self._start(job)
            count += 1
        started = self._waiting[:count]
        del self._waiting[:count]
        return started

    def _reserve_for_the_first(self) -> None:
        """Finds the first waiting job's shadow time and extra processors."""
        needed = self._waiting[0].processors
        # A job past its estimate is taken to end within the next second.
        soonest_s = self._now_s + 1
        free = self._free
        shadow_s = 0
        for end_s, _, processors in self._running:
            if free >= needed and max(end_s, soonest_s) > shadow_s:
                break
            free += processors
            shadow_s = max(end_s, soonest_s)
        self._shadow_s = shadow_s
        self._extra = free - needed

    def _backfill(self) -> list[CountedJob]:
        """Starts what ends by the shadow time or needs only the extra processors."""
        waiting = self._waiting
        longest_s = self._shadow_s - self._now_s
        started = []
        places = []
        for place in range(self._examined, len(waiting)):
            job = waiting[place]
            width = job.processors
            if width > self._free:
                continue
            if job.requested_s > longest_s:
                if width > self._extra:
                    continue
                self._extra -= width
            self._start(job)
            started.append(job)
            places.append(place)
            if self._free < self._narrowest:
                break
        for place in reversed(places):
            del waiting[place]
        self._examined = len(waiting)
        return started

    def _start(self, job: CountedJob) -> None:
        width = job.processors
        entry = (self._now_s + job.requested_s, job.number, width)
        self._entries[job.number] = entry
        insort(self._running, entry)
        self._free -= width
        left = self._widths[width] - 1
        self._widths[width] = left
        if not left:
            del self._widths[width]
            if width == self._narrowest:
                self._narrowest = min(self._widths, default=self._capacity + 1)
