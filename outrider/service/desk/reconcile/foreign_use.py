"""What others take of the nodes: jobs that run outside our reservations, and reservations that are not ours.

It is entered in the book, so that nothing is promised against it. A job that can be requeued counts only for
as long as it takes until it could be gone, from now on; so that is entered again as time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from outrider.core.model import NodeSlot, Resources
from outrider.core.reservations.occupation import Occupation, Occupied, occupy, vacate
from outrider.rms.base import RmsJob, Sight
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.nodes.running_jobs import RunningJobs, Started
from outrider.service.desk.state.node_list import part
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.troubles import Troubles

SPARE_S = 10
"""So much longer than they need such jobs are taken to stay, so that this is not entered every second."""
LEAVING = "jobs that can be requeued"
STARTED = "jobs that are about to run"


class ForeignUse:
    """Occupations, as they were entered."""

    def __init__(
        self,
        site: Site,
        troubles: Troubles,
        preemptible: PreemptibleJobs,
        started: Callable[[], Iterable[Started]],
    ) -> None:
        self._site = site
        self._troubles = troubles
        self._preemptible = preemptible
        self._left_s = site.now_s
        """As of when the preemptible jobs were entered last."""
        self._capacity = {node.name: node.capacity for node in site.book.timeline.nodes}
        self._occupied: dict[str, tuple[Occupation, Occupied]] = {}
        self._jobs = RunningJobs()
        self._on: dict[str, dict[str, int]] = {}
        """By node, the jobs that have it and stay, and until when they are taken to."""
        self._takes: dict[str, Resources] = {}
        """What the jobs on one node have of it, where reservations may have the rest."""
        self._last: dict[str, str] = {}
        """By node, the name of what is entered for its jobs: the one that ends last."""
        self._reservations: tuple[str, ...] = ()
        self._started = started
        """The jobs that were told to start, and that no look has shown to run yet."""

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
        self._take_out(STARTED)
        self._take_out(LEAVING)
        for name in gone:
            vacate(self._site.book, self._occupied.pop(name)[1], self._site.now_s)
        for occupation in wanted.values():
            yield from self._enter(occupation)
        yield from self._enter_leaving()
        self._enter_started()

    def leave_in_time(self) -> Iterator[str]:
        """Before anything is promised: from now on the preemptible jobs need their time to go, and who was
        told to start since the last look has its nodes."""
        self._take_out(STARTED)
        if self._preemptible.all and self._site.now_s > self._left_s + SPARE_S:
            self._take_out(LEAVING)
            yield from self._enter_leaving()
        self._enter_started()

    def _enter_started(self) -> None:
        """What these get is what is left: where a job was seen to run, it is entered already."""
        site, ends_s = self._site, dict[str, int]()
        for each in self._started():
            notice_s = self._preemptible.notice_s(each.job)
            gone_s = each.end_s if notice_s is None else min(each.end_s, site.now_s + notice_s + SPARE_S)
            for node in each.nodes:
                ends_s[node] = max(ends_s.get(node, 0), gone_s)
        slots = tuple(
            NodeSlot(node=node, resources=self._capacity[node], start_s=site.now_s, end_s=end_s)
            for node, end_s in sorted(ends_s.items())
            if end_s > site.now_s
        )
        if slots:
            occupation = Occupation(name=STARTED, slots=slots)
            self._occupied[STARTED] = (occupation, occupy(site.book, occupation, site.now_s))

    def _take_out(self, name: str) -> None:
        before = self._occupied.pop(name, None)
        if before is not None:
            vacate(self._site.book, before[1], self._site.now_s)

    def _enter_leaving(self) -> Iterator[str]:
        """Enter the nodes with preemptible jobs, each until the last of its jobs could be gone.

        That they are in the way of a reservation is no conflict: they go before its start. Where others
        of a node's jobs stay, it is one.
        """
        site, now_s = self._site, self._site.now_s
        self._left_s = now_s
        slots = tuple(self._leaving_slot(node, now_s) for node in sorted(self._preemptible.on))
        if not slots:
            return
        occupation = Occupation(name=LEAVING, slots=slots)
        occupied = occupy(site.book, occupation, now_s)
        self._occupied[LEAVING] = (occupation, occupied)
        for name in occupied.collides:
            live = site.live.get(name)
            start_s = 0 if live is None else live.reservation.start_s
            for node in () if live is None else live.nodes:
                staying = self._on.get(node, {}) if node in self._preemptible.on else {}
                end_s, key = max(((end_s, key) for key, end_s in staying.items()), default=(0, ""))
                if end_s > max(start_s, now_s):
                    self._troubles.note_taken(name, [node], f"job {key} on {node} is on {node} in its time")
                    yield f"job {key} on {node} takes what reservation {name} was promised"

    def _leaving_slot(self, node: str, now_s: int) -> NodeSlot:
        gone_s = max(job.run.held_until_s(now_s + SPARE_S) for job in self._preemptible.on[node].values())
        end_s = max(gone_s, now_s + 1, *self._on.get(node, {}).values())
        return NodeSlot(node=node, resources=self._capacity[node], start_s=now_s, end_s=end_s)

    def reserved(
        self, name: str, nodes: Iterable[str], start_s: int, end_s: int, taken: Resources | None = None
    ) -> Iterator[str]:
        """The batch system has made a reservation that has no place in the book: its nodes are given away
        all the same, even if the next look is long in coming. It has what is `taken` of each, or all."""
        occupation = self._reservation(name, nodes, start_s, end_s, taken)
        if occupation.slots and end_s > self._site.now_s and occupation.name not in self._occupied:
            self._reservations += (occupation.name,)
            self._take_out(STARTED)
            yield from self._enter(occupation)
            self._enter_started()

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
            if live is None or _ends_in_time(occupation, live, site.now_s):
                continue
            taken = frozenset(slot.node for slot in occupation.slots) & frozenset(live.nodes)
            words = f"{name} is on {', '.join(sorted(taken)[:3])} in its time"
            self._troubles.note_taken(collided, taken, words)
            yield f"{name} takes what reservation {collided} was promised"

    def busy_until_s(self, nodes: Iterable[str]) -> int:
        """Until when jobs have any of these nodes that cannot be requeued; 0 if there are none."""
        return max((end_s for name in nodes for end_s in self._on.get(name, {}).values()), default=0)

    def _foreign(self, sight: Sight) -> Iterator[Occupation]:
        for reservation in sight.reservations:
            # One of ours that has lost its place still has its nodes in the batch system.
            if reservation.is_ours and reservation.name in self._site.book.entries:
                continue
            taken = None if reservation.is_whole else part(reservation.size)
            occupation = self._reservation(
                reservation.name, reservation.nodes, reservation.start_s, reservation.end_s, taken
            )
            if occupation.slots:
                yield occupation

    def _reservation(
        self, name: str, nodes: Iterable[str], start_s: int, end_s: int, taken: Resources | None
    ) -> Occupation:
        """What a reservation takes of those of its nodes that the site has, from start to end."""
        slots = tuple(
            NodeSlot(
                node=node,
                resources=self._capacity[node] if taken is None else taken,
                start_s=start_s,
                end_s=end_s,
            )
            for node in nodes
            if node in self._capacity
        )
        return Occupation(name=f"reservation {name}", slots=slots)

    def _of_jobs(self, node: str, at_s: int) -> Occupation | None:
        """Until when a node has jobs outside of our reservations, and the last of them."""
        jobs = self._on.get(node)
        if not jobs or node in self._preemptible.on:
            return None
        end_s, key = max((end_s, key) for key, end_s in jobs.items())
        slots = [NodeSlot(node=node, resources=self._capacity[node], start_s=at_s, end_s=end_s)]
        if self._site.settings.parts:
            slots = [
                NodeSlot(node=node, resources=self._takes[name], start_s=at_s, end_s=until_s)
                for name, until_s in sorted(jobs.items())
                if name in self._takes
            ]
            slots += [
                NodeSlot(node=node, resources=self._capacity[node], start_s=at_s, end_s=until_s)
                for name, until_s in sorted(jobs.items())
                if name not in self._takes
            ]
        return Occupation(name=f"job {key} on {node}", slots=tuple(slots))

    def _changed(self, sight: Sight) -> list[str]:
        """The nodes whose jobs have begun, have ended, or go on for longer than they should, in order."""
        changed: set[str] = set()
        least_s = sight.at_s + 2 * self._site.settings.look_every_s
        for change in self._jobs.look(sight, sight.at_s, least_s):
            if change.before is not None:
                changed |= self._leave(change.before)
            if change.after is not None:
                changed |= self._have(change.after, change.end_s)
            else:
                self._preemptible.forget(change.key)
        return sorted(changed)

    def _have(self, job: RmsJob, end_s: int) -> set[str]:
        nodes = {name for name in job.nodes if name in self._capacity}
        if self._site.settings.parts and len(job.nodes) == 1:
            # Of one on several nodes it is not known what it has of each.
            self._takes[job.key] = part(job.resources)
        if not self._preemptible.begin(job, end_s, nodes):
            for name in nodes:
                self._on.setdefault(name, {})[job.key] = end_s
        return nodes

    def _leave(self, job: RmsJob) -> set[str]:
        self._preemptible.leave(job.key)
        self._takes.pop(job.key, None)
        nodes = {name for name in job.nodes if name in self._capacity}
        for name in nodes & self._on.keys():
            self._on[name].pop(job.key, None)
        return nodes


def _ends_in_time(occupation: Occupation, live: Live, now_s: int) -> bool:
    """Whether what is taken of an open reservation's nodes is free again when its event may have come now."""
    terms = live.document.open
    if terms is None:
        return False
    # What has begun just before the event may not have been seen when it came.
    event_s = now_s if live.kept.triggered_s is None else live.kept.triggered_s
    return all(slot.end_s <= event_s + terms.within_s for slot in occupation.slots)


def _is_same(one: Occupation, other: Occupation, now_s: int) -> bool:
    """Whether two occupations take the same from now on: that one has begun is no change."""

    def rest(occupation: Occupation) -> list[tuple[str, int, int, Resources]]:
        return [
            (slot.node, max(slot.start_s, now_s), slot.end_s, slot.resources) for slot in occupation.slots
        ]

    return rest(one) == rest(other)
