"""Backfilling for every policy, told plainly over a profile of free processors.

This is the definition that the faster `EasyQueue` is compared with. It keeps running
jobs (until their estimated ends), blocks and the reservations of waiting jobs in one
profile, so that a single question, "does it fit here?", answers every policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.besteffort.counted.easy import EasyQueue
from outrider.core.besteffort.counted.jobs import (
    Block,
    CountedJob,
    CountedQueue,
    Policy,
    already_known,
    not_running,
    too_wide,
)
from outrider.core.nodes.free_profile import FreeProfile


def counted_queue(policy: Policy, *, capacity: int, blocks: Sequence[Block] = ()) -> CountedQueue:
    """The fastest implementation of this policy; all of them decide alike."""
    if policy == Policy(reservations=1) and not blocks:
        return EasyQueue(capacity=capacity)
    return ProfileQueue(policy, capacity=capacity, blocks=blocks)


class ProfileQueue:
    """The first N waiting jobs hold reservations; whoever disturbs none may start.

    Each call to `schedule` walks the queue in its order. A job that holds a reservation
    is moved to the earliest time that the rest of the profile, all other reservations
    included, leaves it: its old place is still free for it, so it never moves back.
    Planning everything anew instead would let an early completion move one job forward
    onto the place that another one was promised.

    A promise rests on the estimates of the running jobs. When one of them outlives its
    estimate, it is taken to end within the next second, and all promises are made anew,
    in the order of the queue. So they are when `schedule` was not called in time.
    """

    def __init__(self, policy: Policy, *, capacity: int, blocks: Sequence[Block] = ()) -> None:
        self._policy = policy
        self._capacity = capacity
        self._profile = FreeProfile(capacity)
        self._now_s = 0
        self._waiting: dict[int, CountedJob] = {}
        self._running: dict[int, CountedJob] = {}
        self._planned_end_s: dict[int, int] = {}
        self._reserved_start_s: dict[int, int] = {}
        # Whether another walk, with nothing freed meanwhile, would move no reservation.
        self._is_settled = False
        for block in blocks:
            self._profile.add(block.start_s, block.end_s, -block.processors)
        if self._profile.lowest() < 0:
            raise ValueError(f"the blocks together need more than {capacity} processors")

    def submit(self, job: CountedJob, now_s: int) -> None:
        if job.processors > self._capacity:
            raise too_wide(job, self._capacity)
        if job.number in self._waiting or job.number in self._running:
            raise already_known(job)
        self._waiting[job.number] = job

    def finished(self, job: CountedJob, now_s: int) -> None:
        if self._running.pop(job.number, None) is None:
            raise not_running(job)
        planned_end_s = self._planned_end_s.pop(job.number)
        if now_s < planned_end_s:
            self._profile.add(now_s, planned_end_s, job.processors)
            self._is_settled = False

    def schedule(self, now_s: int) -> list[CountedJob]:
        if now_s < self._now_s:
            raise ValueError(f"time went backwards, from {self._now_s} to {now_s}")
        self._now_s = now_s
        self._profile.forget_before(now_s)
        if self._extend_overrunning() or self._has_missed_a_promise():
            self._drop_promises()
        was_settled, self._is_settled = self._is_settled, True
        started = []
        for job in self._waiting.values():
            reserved_s = self._reserved_start_s.get(job.number)
            if was_settled and reserved_s is not None and reserved_s > now_s:
                continue
            if self._starts_now(job):
                started.append(job)
            elif not self._policy.is_backfilling:
                break
        for job in started:
            del self._waiting[job.number]
        return started

    def promised_start_s(self, number: int) -> int | None:
        """When a waiting job will start at the latest, if it holds a reservation."""
        return self._reserved_start_s.get(number)

    def _starts_now(self, job: CountedJob) -> bool:
        """Starts the job if it fits at this instant, else reserves for it if it may."""
        profile, now_s = self._profile, self._now_s
        reserved_s = self._reserved_start_s.pop(job.number, None)
        if reserved_s is not None:
            profile.add(reserved_s, reserved_s + job.requested_s, job.processors)
        if reserved_s is not None or self._may_reserve():
            start_s = profile.earliest_s(now_s, job.requested_s, job.processors)
        elif profile.fits(now_s, job.requested_s, job.processors):
            start_s = now_s
        else:
            return False
        profile.add(start_s, start_s + job.requested_s, -job.processors)
        if reserved_s is not None and start_s != reserved_s:
            self._is_settled = False
        if start_s > now_s:
            self._reserved_start_s[job.number] = start_s
            return False
        self._running[job.number] = job
        self._planned_end_s[job.number] = now_s + job.requested_s
        return True

    def _may_reserve(self) -> bool:
        limit = self._policy.reservations
        return limit is None or len(self._reserved_start_s) < limit

    def _extend_overrunning(self) -> bool:
        """Takes jobs past their estimate to end within the next second; whether any is."""
        now_s = self._now_s
        late = [number for number, end_s in self._planned_end_s.items() if end_s <= now_s]
        for number in late:
            self._planned_end_s[number] = now_s + 1
            self._profile.add(now_s, now_s + 1, -self._running[number].processors)
        return bool(late)

    def _has_missed_a_promise(self) -> bool:
        return any(start_s < self._now_s for start_s in self._reserved_start_s.values())

    def _drop_promises(self) -> None:
        for number, start_s in self._reserved_start_s.items():
            job = self._waiting[number]
            self._profile.add(start_s, start_s + job.requested_s, job.processors)
        self._reserved_start_s.clear()
        self._is_settled = False
