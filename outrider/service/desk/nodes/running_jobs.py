"""Jobs outside of our reservations that have nodes: what has changed from one look to the next.

Of thousands of jobs that run few begin or end in between, and only these are dealt with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outrider.rms.base import JobState, RmsJob, Sight

FOREVER_S = 366 * 86_400
"""A job without a limit is taken to run so long."""
OCCUPYING = (JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as it was and as it is now, None where it had or has no nodes; and until when it is taken to
    have them."""

    key: str
    before: RmsJob | None
    after: RmsJob | None
    end_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A job that was told to start on these nodes, and until when it has them at most."""

    job: RmsJob
    nodes: tuple[str, ...]
    end_s: int


class RunningJobs:
    """These jobs, as the last look showed them."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[RmsJob, int]] = {}

    def look(self, sight: Sight, now_s: int, least_s: int) -> Iterator[JobChange]:
        """What is new. A job that outlives its limit is taken to go on until `least_s` at least."""
        before, found = self._jobs, dict[str, tuple[RmsJob, int]]()
        for job in sight.jobs:
            if job.state not in OCCUPYING or job.reservation is not None:
                continue
            known = before.get(job.key)
            if known is None or known[1] < least_s or (known[0] is not job and known[0] != job):
                start_s = now_s if job.start_s is None else job.start_s
                end_s = max(start_s + (FOREVER_S if job.limit_s is None else job.limit_s), least_s)
                yield JobChange(job.key, None if known is None else known[0], job, end_s)
                known = job, end_s
            found[job.key] = known
        for key, (gone, end_s) in before.items():
            if key not in found:
                yield JobChange(key, gone, None, end_s)
        self._jobs = found
