"""Parts of nodes where the batch system gives a reservation certain processors, the same for all of its time.

That so many are free at each instant does not suffice there: they might be others after a while. So what
overlaps a reservation on a node counts as if all of it overlapped at once; then as many are free throughout,
whichever processors the batch system has given to whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outrider.core.model import Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.rms.base import RmsJob
from outrider.service.desk.nodes.running_jobs import FOREVER_S, OCCUPYING
from outrider.service.desk.state.node_list import is_part
from outrider.service.desk.state.site import Live, Site

CPUS = "cpus"


def crowded(site: Site, workspace: Workspace, start_s: int, end_s: int, without: str = "") -> int:
    """A mask of the nodes that cannot have a part of this size in [start_s, end_s); `without` one of those
    that are there."""
    if not (site.settings.has_fixed_parts and is_part(workspace.resources)):
        return 0
    book, need = site.book, workspace.resources[CPUS]
    taken: dict[int, int] = {}
    for name, entry in book.entries.items():
        if name == without or entry.reservation.start_s >= end_s or start_s >= entry.end_s:
            continue
        resources = entry.reservation.workspace.resources
        if is_part(resources):
            for chosen in entry.fits:
                taken[chosen.node] = taken.get(chosen.node, 0) + resources[CPUS]
    for node, cpus in _of_jobs(site, start_s):
        taken[node] = taken.get(node, 0) + cpus
    nodes = book.timeline.nodes
    return sum(1 << node for node, cpus in taken.items() if cpus + need > nodes[node].capacity[CPUS])


def objection(site: Site, plan: ReservationPlan, without: str) -> str:
    """Why a plan cannot be carried out for that; nothing if it can."""
    mask = crowded(site, plan.workspace, plan.start_s, plan.end_s, without)
    for chosen in plan.fits:
        if mask >> chosen.node & 1:
            name = site.book.timeline.nodes[chosen.node].name
            return words_of(name)
    return ""


def words_of(node: str) -> str:
    return (
        f"the processors that are free on {node} are not the same ones throughout this time, and the batch "
        "system keeps certain ones for a reservation"
    )


def extension_fault(site: Site, live: Live, end_s: int) -> str:
    """Why a reservation that has begun cannot go on until then; nothing if it can, as far as this goes."""
    entry = site.book.entries.get(live.name)
    if entry is None or end_s <= entry.end_s:
        return ""
    mask = crowded(site, entry.reservation.workspace, entry.reservation.start_s, end_s, live.name)
    full = [site.book.timeline.nodes[each.node].name for each in entry.fits if mask >> each.node & 1]
    return words_of(full[0]) if full else ""


@contextmanager
def uncrowded(site: Site, workspace: Workspace, without: str = "") -> Iterator[bool]:
    """For the time being leave out the nodes that cannot keep the same processors from a fixed start on;
    whether there are any."""
    book, start_s = site.book, workspace.start_s
    available = book.available
    if start_s is not None and workspace.finish_by_s is None:
        book.available &= ~crowded(site, workspace, start_s, start_s + workspace.duration_s, without)
    try:
        yield book.available != available
    finally:
        book.available = available


def _of_jobs(site: Site, start_s: int) -> Iterator[tuple[int, int]]:
    """What jobs outside of reservations have that may run at the start."""
    number_of, now_s = site.book.timeline.number_of, site.now_s
    for job in site.seen_jobs:
        if job.reservation is None and job.state in OCCUPYING and _end_s(job, now_s) > start_s:
            for node in job.nodes:
                if node in number_of:
                    yield number_of[node], job.resources[CPUS]


def _end_s(job: RmsJob, now_s: int) -> int:
    return (now_s if job.start_s is None else job.start_s) + (job.limit_s or FOREVER_S)
