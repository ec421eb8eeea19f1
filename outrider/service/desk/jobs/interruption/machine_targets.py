"""To which nodes a job's machines go: those that somebody, a plan or a drained node wants, or other ones.

Of several machines the first one is on the first of their nodes, since there the batch system begins the
job's script.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from outrider.rms.base import RmsJob, Sight
from outrider.service.answers.reply import Trouble
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.state.site import Site


def free_nodes(
    site: Site, job: RmsJob, entries: Iterable[JobEntry], node: str = ""
) -> tuple[str, ...] | Trouble:
    """Other nodes that can take its machines now: `node`, then those with the fewest jobs that are led."""
    if not job.elsewhere:
        return conflict(
            f"job {job.key} can run on no other node: its partition, its user's own wishes or the batch "
            "system do not allow that"
        )
    if node and node not in job.elsewhere:
        return conflict(f"job {job.key} cannot run on {node}: it may on {', '.join(job.elsewhere[:8])}")
    available = site.book.available
    up = {
        each.name
        for number, each in enumerate(site.book.timeline.nodes)
        if available >> number & 1 and each.name in job.elsewhere
    }
    if node and node not in up:
        return conflict(f"node {node} takes no jobs now")
    booked = {
        name for live in site.live.values() if live.reservation.start_s <= site.now_s for name in live.nodes
    }
    busy = [name for each in entries for name in each.job.nodes]
    free = sorted(up - booked - {node}, key=lambda name: (busy.count(name), name))
    return (*([node] if node else []), *free)


def all_elsewhere(
    site: Site, job: RmsJob, entries: Iterable[JobEntry], node: str, count: int
) -> tuple[str, ...] | Trouble:
    """Other nodes for all of its machines, in the order in which the batch system numbers them."""
    chosen = free_nodes(site, job, entries, node)
    if isinstance(chosen, Trouble):
        return chosen
    if len(chosen) < count:
        wanted = "no other node" if count == 1 else f"not {count} other nodes"
        return conflict(f"there is {wanted} for job {job.key} now: try later")
    return tuple(name for name in job.elsewhere if name in chosen[:count])


def as_planned(
    site: Site,
    job: RmsJob,
    entries: Iterable[JobEntry],
    at: Sequence[str],
    planned: tuple[Sequence[str], Sequence[str]],
) -> tuple[str, ...] | Trouble:
    """Where a plan has made room for each of its machines, as long as it can still be so."""
    sources, targets = planned
    led = dict(zip(sources, targets, strict=True))
    if led.keys() != {*at}:
        return conflict(f"job {job.key} is on {', '.join(at)} by now, and not on {', '.join(sources)}")
    for target in targets:
        if target not in led and isinstance(found := free_nodes(site, job, entries, target), Trouble):
            return found
    return tuple(led[node] for node in at)


def away_from(
    site: Site, job: RmsJob, entries: Iterable[JobEntry], left: Collection[str], sight: Sight
) -> tuple[str, ...] | None:
    """For each node of its saved machines the one where that goes on: what is on `left` goes elsewhere, all
    else stays, but for one whose place the first machine has to take; None if there are too few nodes."""
    free, at = free_nodes(site, job, entries), job.saved_on
    if isinstance(free, Trouble):
        return None
    names = sight.numbered or tuple(node.name for node in sight.nodes)
    place = {name: number for number, name in enumerate(names)}
    stays = sorted((name for name in at if name not in left), key=place.__getitem__)
    going = [name for name in at if name in left]
    if at[0] in stays:
        able = [name for name in free if place[name] > place[at[0]]]
    else:
        before = [name for name in free if not stays or place[name] < place[stays[0]]]
        if not (before or stays):
            return None
        if not before:
            going.insert(1, stays[0])
        first = min(before, key=place.__getitem__) if before else stays[0]
        able = [first, *(name for name in free if name != first)]
    if len(able) < len(going):
        return None
    targets = dict(zip(going, able, strict=False))
    return tuple(targets.get(name, name) for name in at)


def rounds(
    sources: Sequence[str], targets: Sequence[str]
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The steps of a move, each with all nodes before and after it: the first machine comes last where it
    takes the place of another, since a node has one of a job's machines at a time."""
    if targets[0] == sources[0] or targets[0] not in sources:
        return ((tuple(sources), tuple(targets)),)
    between = (sources[0], *targets[1:])
    return (tuple(sources), between), (between, tuple(targets))


def conflict(words: str) -> Trouble:
    return Trouble(code="conflict", message=words)
