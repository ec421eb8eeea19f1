"""Which preemptible jobs make way for a reservation, and when each is told so. Pure decisions.

The jobs are a batch system's: they are not planned here, and what they lose is known only by how long they
have run. A job that yields leaves all of its nodes. What is accepted depends on none of this: nodes are
chosen among those that the book gives, and on these the jobs that would run on have to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.planning import plan_at


@dataclass(frozen=True, kw_only=True, slots=True)
class RequeueTerms:
    """How a job goes: a signal, if it has asked for one, and after its grace time back into the queue."""

    grace_s: int = 0
    """Between the signal and the requeue; 0 without a signal."""
    margin_s: int
    """The batch system's own time to end a job and to clean up after it."""
    goes_by_itself: bool = False
    """Whether it leaves its nodes as soon as it has saved its work: then it is requeued as late as can be."""

    @property
    def notice_s(self) -> int:
        """How long before its nodes are wanted a job has to be told."""
        return self.grace_s + self.margin_s

    def latest_requeue_s(self, start_s: int) -> int:
        """When it has to be requeued, whether or not it had its grace time."""
        return start_s - self.margin_s

    def requeue_s(self, signalled_s: int, start_s: int) -> int:
        """When a job is requeued that was signalled then, for nodes that are wanted at `start_s`."""
        latest_s = self.latest_requeue_s(start_s)
        return latest_s if self.goes_by_itself else min(signalled_s + self.grace_s, latest_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreemptibleRun:
    """A job that runs and may be requeued. Nodes are numbers of the slot table."""

    name: str
    nodes: tuple[int, ...]
    start_s: int
    end_s: int
    """When its limit is reached: it is in nobody's way from then on."""
    terms: RequeueTerms
    keeps_work: bool = False
    """Whether it is signalled, and so can save what it has done."""

    def lost_s(self, at_s: int) -> int:
        """The time of nodes that is lost if it is requeued then."""
        return 0 if self.keeps_work else len(self.nodes) * max(0, at_s - self.start_s)

    def held_until_s(self, now_s: int) -> int:
        """Until when its nodes cannot be had, if it is told now that somebody wants them."""
        return min(self.end_s, now_s + self.terms.notice_s)


Price = tuple[int, int]
"""Less is better: what is lost, then the start of the oldest run, the later the better."""


def fewest_lost(
    book: Book,
    plan: ReservationPlan,
    runs: Iterable[PreemptibleRun],
    now_s: int,
    *,
    places: Mapping[str, int] | None = None,
) -> ReservationPlan:
    """A plan for the same start for which less is lost: on free nodes first, then where jobs lose least,
    and among equals the youngest. The same plan if there is no better one.

    With `places` the site says who yields first: by name, the place of each run in its order."""
    in_way = [run for run in runs if run.end_s > plan.start_s]
    wanted = {chosen.node for chosen in plan.fits}
    if not any(wanted.intersection(run.nodes) for run in in_way):
        return plan
    rooms = _rooms(book, plan)
    stages = _stages(rooms, in_way, plan, places)
    other = plan_at(book, plan.workspace, plan.start_s, now_s, stages=stages)
    if not isinstance(other, ReservationPlan):
        return plan
    before = _price(_on(in_way, wanted), plan.start_s, places)
    after = _price(_on(in_way, {chosen.node for chosen in other.fits}), plan.start_s, places)
    return other if after < before else plan


def _rooms(book: Book, plan: ReservationPlan) -> dict[int, int]:
    """How many instances each node has room for, as far as the book knows."""
    need = book.timeline.layout.pack(plan.workspace.resources)
    most = plan.workspace.instances
    rooms = {
        node: book.timeline.rows[node].most(need, plan.start_s, plan.end_s, most)
        for node in numbers(book.available)
    }
    return {node: room for node, room in rooms.items() if room}


def _stages(
    rooms: Mapping[int, int],
    runs: Sequence[PreemptibleRun],
    plan: ReservationPlan,
    places: Mapping[str, int] | None,
) -> list[dict[int, int]]:
    """Nodes without any job, then as many of the others as are needed, the cheapest first, then the rest."""
    on: dict[int, list[PreemptibleRun]] = {}
    for run in runs:
        for node in run.nodes:
            on.setdefault(node, []).append(run)
    free = {node: room for node, room in rooms.items() if node not in on}
    left = plan.workspace.instances - sum(free.values())
    gained: dict[int, int] = {}
    gone: set[str] = set()

    def price(node: int) -> Price:
        return _price([run for run in on[node] if run.name not in gone], plan.start_s, places)

    queue = [(price(node), node) for node in sorted(rooms.keys() & on.keys())]
    heapify(queue)
    while left > 0 and queue:
        known, node = heappop(queue)
        if node in gained or known != price(node):
            # What else a job has that yields already costs nothing more: that was put in anew.
            continue
        gained[node] = rooms[node]
        left -= rooms[node]
        for run in on[node]:
            if run.name not in gone:
                gone.add(run.name)
                for other in run.nodes:
                    if other in rooms and other not in gained:
                        heappush(queue, (price(other), other))
    rest = {node: room for node, room in rooms.items() if node not in free and node not in gained}
    return [stage for stage in (free, gained, rest) if stage]


def _on(runs: Iterable[PreemptibleRun], nodes: set[int]) -> list[PreemptibleRun]:
    return [run for run in runs if nodes.intersection(run.nodes)]


def _price(runs: Sequence[PreemptibleRun], at_s: int, places: Mapping[str, int] | None = None) -> Price:
    if not runs:
        # Less than the price of any run, whenever it has started.
        return (-1, 0)
    if places is not None:
        # The last of the site's order counts most, and then how many they are.
        return (max(places[run.name] for run in runs), len(runs))
    return (sum(run.lost_s(at_s) for run in runs), -min(run.start_s for run in runs))
