"""What the desk knows of each user's part in what all share: time on nodes, room in pools, the link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cachemgr.base.shares import BYTES, Share
from outrider.service.desk.jobs.job import Led, Stage
from outrider.service.desk.jobs.transfers import Hauling
from outrider.service.desk.state.site import Site

JOBS = "jobs"
WAITING = (Stage.RESOLVING, Stage.WAITING, Stage.STAGING)


def shares_of(site: Site, hauling: Hauling, jobs: Iterable[Led]) -> list[Share]:
    """By user. What has no limit for one user has a `most` of 0."""
    waiting: Counter[int] = Counter()
    coming: Counter[int] = Counter()
    for led in jobs:
        if led.stage not in WAITING:
            continue
        waiting[led.job.uid] += 1
        if led.image is not None and led.via:
            copies = sum(node not in led.ready for node in led.via)
            coming[led.job.uid] += copies * led.image.size_bytes
    found = [*site.holding.shares(), *hauling.shares()]
    for thing, unit, counted in (
        ("jobs that wait for images", JOBS, waiting),
        ("bytes on the link for jobs", BYTES, coming),
    ):
        found += [Share(thing, unit, str(uid), amount, 0, 0) for uid, amount in counted.items() if amount]
    return found
