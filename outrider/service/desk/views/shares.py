"""What the desk knows of each user's part in what all share: time on nodes, room in pools, the link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cachemgr.base.shares import BYTES, Share
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.state.site import Site

JOBS = "jobs"
WAITING = (Stage.RESOLVING, Stage.WAITING, Stage.STAGING)


def shares_of(site: Site, best_effort: BestEffortTransfers, jobs: Iterable[JobEntry]) -> list[Share]:
    """By user. What has no limit for one user has a `most` of 0."""
    waiting: Counter[int] = Counter()
    coming: Counter[int] = Counter()
    for entry in jobs:
        if entry.stage not in WAITING:
            continue
        waiting[entry.job.uid] += 1
        for each in entry.parts:
            if each.image is not None and each.via:
                copies = sum(node not in each.here for node in each.via)
                coming[entry.job.uid] += copies * each.image.size_bytes
    found = [*site.holding.shares(), *best_effort.shares()]
    for thing, unit, counted in (
        ("jobs that wait for images", JOBS, waiting),
        ("bytes on the link for jobs", BYTES, coming),
    ):
        found += [Share(thing, unit, str(uid), amount, 0, 0) for uid, amount in counted.items() if amount]
    return found
