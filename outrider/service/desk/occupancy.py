"""Until when nodes are busy, as the last look and the book of reservations say."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.core.busy import Busy, Taken
from outrider.core.capacity import LARGEST_AMOUNT
from outrider.core.model import Resources
from outrider.rms.base import JobState, Sight
from outrider.service.desk.site import Site

FOREVER_S = 366 * 86_400
"""A job without a limit is taken to run so long."""
OCCUPYING = (JobState.STARTING, JobState.RUNNING)


def busy_of(site: Site, sight: Sight) -> Busy:
    """Jobs that run, our reservations and those of others."""
    timeline = site.book.timeline
    capacities = [row.capacity for row in timeline.rows]
    return Busy(timeline.layout, capacities, (*_reserved(site, sight), *_running(site, sight)))


def packed(site: Site, resources: Resources) -> int | None:
    """What a job takes of a node, packed; None if no node can have so much."""
    layout = site.book.timeline.layout
    if layout.unknown(resources) or any(amount > LARGEST_AMOUNT for _, amount in resources.amounts):
        return None
    return layout.pack(resources)


def _reserved(site: Site, sight: Sight) -> Iterable[Taken]:
    """Reservations have their nodes as a whole."""
    number_of = site.book.timeline.number_of
    for live in site.live.values():
        reservation = live.reservation
        for name in reservation.nodes:
            if name in number_of and reservation.end_s > site.now_s:
                start_s = max(reservation.start_s, site.now_s)
                yield Taken(node=number_of[name], start_s=start_s, end_s=reservation.end_s)
    for each in sight.reservations:
        for name in each.nodes if each.name not in site.live else ():
            if name in number_of and each.end_s > site.now_s:
                yield Taken(node=number_of[name], start_s=max(each.start_s, site.now_s), end_s=each.end_s)


def _running(site: Site, sight: Sight) -> Iterable[Taken]:
    number_of = site.book.timeline.number_of
    for job in sight.jobs:
        if job.state not in OCCUPYING or job.reservation is not None:
            continue
        start_s = site.now_s if job.start_s is None else job.start_s
        end_s = start_s + (FOREVER_S if job.limit_s is None else job.limit_s)
        # One that outlives its limit goes on until it is seen to have ended.
        end_s = max(end_s, site.now_s + site.settings.look_every_s)
        amount = packed(site, job.resources)
        for name in job.nodes:
            if name in number_of:
                yield Taken(node=number_of[name], start_s=site.now_s, end_s=end_s, amount=amount)
