"""What others take of the nodes: jobs that run outside our reservations, and reservations that are not ours.

It is entered in the book, so that nothing is promised against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.core.model import NodeSlot
from outrider.core.reservations.occupation import Occupation, Occupied, occupy, vacate
from outrider.rms.base import RmsJob, Sight
from outrider.service.desk.nodes.running_jobs import RunningJobs
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.troubles import Troubles


class ForeignUse:
    """Occupations, as they were entered."""

    def __init__(self, site: Site, troubles: Troubles) -> None:
        self._site = site
        self._troubles = troubles
        self._capacity = {node.name: node.capacity for node in site.book.timeline.nodes}
        self._occupied: dict[str, tuple[Occupation, Occupied]] = {}
        self._jobs = RunningJobs()
        self._on: dict[str, dict[str, int]] = {}
        """By node, the jobs that have it and until when they are taken to."""
        self._last: dict[str, str] = {}
        """By node, the name of what is entered for its jobs: a reservation takes whole nodes, so that the
        one that ends last is enough."""
        self._reservations: tuple[str, ...] = ()

    def look(self, sight: Sight) -> Iterator[str]:
        """Enter what is taken now; what was promised to others, in words."""
        wanted = {each.name: each for each in self._foreign(sight)}
        gone = [name for name in self._reservations if name not in wanted]
        self._reservations = tuple(wanted)
        for node in self._changed(sight):
            before, occupation = self._last.get(node, ""), self._of_jobs(node, sight.at_s)
            if occupation is not None:
                wanted[occupation.name] = occupation
                self._last[node] = occupation.name
            elif before:
                del self._last[node]
            if before and (occupation is None or occupation.name != before):
                gone.append(before)
        for name in gone:
            vacate(self._site.book, self._occupied.pop(name)[1], self._site.now_s)
        for occupation in wanted.values():
            yield from self._enter(occupation)

    def reserved(self, name: str, nodes: Iterable[str], start_s: int, end_s: int) -> Iterator[str]:
        """The batch system has made a reservation that has no place in the book: its nodes are given away
        all the same, even if the next look is long in coming."""
        occupation = self._reservation(name, nodes, start_s, end_s)
        if occupation.slots and end_s > self._site.now_s and occupation.name not in self._occupied:
            self._reservations += (occupation.name,)
            yield from self._enter(occupation)

    def _enter(self, occupation: Occupation) -> Iterator[str]:
        site, name = self._site, occupation.name
        before = self._occupied.get(name)
        if before is not None:
            if _is_same(before[0], occupation, site.now_s):
                return
            vacate(site.book, before[1], site.now_s)
        occupied = occupy(site.book, occupation, site.now_s)
        self._occupied[name] = (occupation, occupied)
        for collided in occupied.collides:
            live = site.live.get(collided)
            if live is None:
                continue
            taken = frozenset(slot.node for slot in occupation.slots) & frozenset(live.nodes)
            words = f"{name} is on {', '.join(sorted(taken)[:3])} in its time"
            self._troubles.note_taken(collided, taken, words)
            yield f"{name} takes what reservation {collided} was promised"

    def _foreign(self, sight: Sight) -> Iterator[Occupation]:
        for reservation in sight.reservations:
            # One of ours that has lost its place still has its nodes in the batch system.
            if reservation.is_ours and reservation.name in self._site.book.entries:
                continue
            occupation = self._reservation(
                reservation.name, reservation.nodes, reservation.start_s, reservation.end_s
            )
            if occupation.slots:
                yield occupation

    def _reservation(self, name: str, nodes: Iterable[str], start_s: int, end_s: int) -> Occupation:
        """What a reservation takes of those of its nodes that the site has, from start to end."""
        slots = tuple(
            NodeSlot(node=node, resources=self._capacity[node], start_s=start_s, end_s=end_s)
            for node in nodes
            if node in self._capacity
        )
        return Occupation(name=f"reservation {name}", slots=slots)

    def _of_jobs(self, node: str, at_s: int) -> Occupation | None:
        """Until when a node has jobs outside of our reservations, and the last of them."""
        jobs = self._on.get(node)
        if not jobs:
            return None
        end_s, key = max((end_s, key) for key, end_s in jobs.items())
        slot = NodeSlot(node=node, resources=self._capacity[node], start_s=at_s, end_s=end_s)
        return Occupation(name=f"job {key} on {node}", slots=(slot,))

    def _changed(self, sight: Sight) -> list[str]:
        """The nodes whose jobs have begun, have ended, or go on for longer than they should, in order."""
        changed: set[str] = set()
        least_s = sight.at_s + 2 * self._site.settings.look_every_s
        for change in self._jobs.look(sight, sight.at_s, least_s):
            if change.before is not None:
                changed |= self._leave(change.before)
            if change.after is not None:
                changed |= self._have(change.after, change.end_s)
        return sorted(changed)

    def _have(self, job: RmsJob, end_s: int) -> set[str]:
        nodes = {name for name in job.nodes if name in self._capacity}
        for name in nodes:
            self._on.setdefault(name, {})[job.key] = end_s
        return nodes

    def _leave(self, job: RmsJob) -> set[str]:
        nodes = {name for name in job.nodes if name in self._on}
        for name in nodes:
            self._on[name].pop(job.key, None)
        return nodes


def _is_same(one: Occupation, other: Occupation, now_s: int) -> bool:
    """Whether two occupations take the same from now on: that one has begun is no change."""

    def rest(occupation: Occupation) -> list[tuple[str, int, int]]:
        return [(slot.node, max(slot.start_s, now_s), slot.end_s) for slot in occupation.slots]

    return rest(one) == rest(other)
