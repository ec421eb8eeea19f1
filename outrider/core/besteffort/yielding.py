"""On which nodes a reservation gets its slots, by what best effort there loses by yielding.

A reservation is accepted or refused as if there were no best effort. If the nodes that it would
get then are not free, others are asked for: first what is free, then what costs least.
The plan on those nodes is taken if one can be made; it may need transfers that the first would not,
because an image can be brought before the start and a run that is stopped gets its time back only after
the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.core.besteffort.board import BestEffortRun, QueueBoard, Yielding
from outrider.core.nodes.node_timeline import NodeTimeline
from outrider.core.nodes.timeline import SiteTimeline, mask_of, numbers
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.planning import plan_at


def gentlest(board: QueueBoard, plan: ReservationPlan, now_s: int) -> ReservationPlan:
    """A plan for the same start whose runs lose least by yielding: the same one if it has none to lose."""
    if board.rules.yielding is Yielding.SITE_ORDER:
        return plan
    book = board.book
    need = book.timeline.layout.pack(plan.workspace.resources)
    wanted = [(chosen.node, chosen.instances) for chosen in plan.fits]
    rows = board.everything.rows
    if all(rows[node].fits(need * count, plan.start_s, plan.end_s) for node, count in wanted):
        return plan
    clearing = _Clearing(board, need, plan.start_s, plan.end_s, now_s)
    stages = clearing.stages(plan.workspace.instances)
    other = plan_at(book, plan.workspace, plan.start_s, now_s, stages=stages)
    if not isinstance(other, ReservationPlan):
        return plan
    chosen = [(fit.node, fit.instances) for fit in other.fits]
    price = clearing.price_of(chosen)
    is_gentler = price < clearing.price_of(wanted) if price else clearing.costs_anything(wanted)
    return other if is_gentler else plan


Price = tuple[int, ...]
Piece = tuple[int, int, int]
"""What is taken of a node, from when to when."""


@dataclass(slots=True)
class _Site:
    """What nodes would have free in an interval once some runs have yielded."""

    yielded: dict[str, BestEffortRun] = field(default_factory=dict)
    rows: dict[int, NodeTimeline] = field(default_factory=dict)
    """Copies, of the nodes that runs have left."""


class _Clearing:
    """Runs that yield in an interval, and what that gives."""

    def __init__(self, board: QueueBoard, need: int, start_s: int, end_s: int, now_s: int) -> None:
        self._board = board
        self._need = need
        self._start_s, self._end_s = start_s, end_s
        self._pieces: dict[str, dict[int, list[Piece]]] = {}
        """What each run takes within the interval, by node."""
        self._runs_on: dict[int, list[BestEffortRun]] = {}
        ordered = board.yielding_order(list(board.runs.values()), now_s)
        self._place = {run.name: number for number, run in enumerate(ordered)}
        for run in ordered:
            if run.is_in_book:
                continue
            pieces = self._pieces[run.name] = self._pieces_of(run)
            for node in pieces:
                self._runs_on.setdefault(node, []).append(run)

    def stages(self, instances: int) -> list[dict[int, int]]:
        """How many instances on which nodes: without any yielding, then if few yield, then if all do."""
        room = self._rooms(self._board.book.timeline, self._board.book.available, instances)
        free = self._rooms(self._board.everything, mask_of(room, len(self._board.everything.rows)), instances)
        free = {node: min(free.get(node, 0), count) for node, count in room.items()}
        left = instances - sum(free.values())
        taken = self._enough(free, room, left) if left > 0 else _Site()
        gained: dict[int, int] = {}
        for node in sorted(taken.rows.keys() & free.keys()):
            count = self._room(taken, node, room[node])
            if count > free[node]:
                gained[node] = count - free[node]
        beyond = {node: room[node] - free[node] - gained.get(node, 0) for node in free}
        stages = (free, gained, beyond)
        return [{node: count for node, count in stage.items() if count} for stage in stages]

    def _rooms(self, table: SiteTimeline, nodes: int, instances: int) -> dict[int, int]:
        """For how many instances, at most, which of these nodes have room; those without any are left out."""
        if all(table.layout.most(self._need, capacity, 2) == 1 for capacity in table.by_capacity):
            free = table.free_masks(self._need).throughout(self._start_s, self._end_s) & nodes
            return dict.fromkeys(numbers(free), 1)
        rooms = (
            (node, table.rows[node].most(self._need, self._start_s, self._end_s, instances))
            for node in numbers(nodes)
        )
        return {node: room for node, room in rooms if room}

    def _enough(self, free: dict[int, int], room: dict[int, int], left: int) -> _Site:
        """The site when so many more instances have room: the cheapest yield first, and none in vain."""
        site, counts = _Site(), dict(free)
        prices = {node: self._next(site, node, free[node]) for node in free if free[node] < room[node]}
        while left > 0 and prices:
            node = min(prices, key=lambda node: (prices[node][0], node))
            victims = prices[node][1]
            if not victims:
                del prices[node]
                continue
            for run in victims:
                self._yield(site, run)
            touched = {node}.union(*(self._nodes_of(run) for run in victims))
            for each in sorted(touched & free.keys()):
                count = self._room(site, each, room[each])
                left -= count - counts[each]
                counts[each] = count
                prices.pop(each, None)
                if count < room[each]:
                    prices[each] = self._next(site, each, count)
        return self._without_excess(site, free, room, -left)

    def _without_excess(self, site: _Site, free: dict[int, int], room: dict[int, int], excess: int) -> _Site:
        """Who yielded first may not have to any more once a gang has, which gives all of its nodes."""
        if excess <= 0:
            return site
        names = list(site.yielded)
        for name in names:
            fewer = _Site()
            for run in site.yielded.values():
                if run.name != name:
                    self._yield(fewer, run)
            lost = sum(
                self._room(site, node, room[node]) - self._room(fewer, node, room[node])
                for node in self._nodes_of(site.yielded[name]) & free.keys()
            )
            if lost <= excess:
                site, excess = fewer, excess - lost
        return site

    def _room(self, site: _Site, node: int, most: int) -> int:
        return self._row(site, node).most(self._need, self._start_s, self._end_s, most)

    def price_of(self, wanted: Sequence[tuple[int, int]]) -> Price:
        """What it costs best effort if a reservation gets so many instances on these nodes."""
        site = _Site()
        for node, count in wanted:
            for run in self._victims(site, node, count):
                self._yield(site, run)
        return self._price(site.yielded.values())

    def costs_anything(self, wanted: Sequence[tuple[int, int]]) -> bool:
        """Whether anybody would have to yield for that."""
        site = _Site()
        return any(self._victims(site, node, count) for node, count in wanted)

    def _price(self, runs: Iterable[BestEffortRun]) -> Price:
        """Less is better. The time that instances lose, or that of the oldest run, the older the worse."""
        runs = list(runs)
        if not runs:
            return ()
        if self._board.rules.preemption is not None:
            places = sorted((self._place[run.name] for run in runs), reverse=True)
            return (sum(place + 1 for place in places), *places)
        youngest = min((run.order, run.index) for run in runs)
        oldest = (-youngest[0], -youngest[1])
        if self._board.rules.yielding is Yielding.YOUNGEST:
            return (*oldest, len(runs))
        rules, away_s = self._board.rules.suspension, self._end_s - self._start_s
        lost_s = 0
        for run in runs:
            writing_s = rules.overhead_s(run.workspace.resources)
            lost_s += run.together * (away_s + writing_s + rules.resuming_s(writing_s))
        return (lost_s, *oldest)

    def _next(self, site: _Site, node: int, count: int) -> tuple[Price, list[BestEffortRun]]:
        """The price of one more instance on a node, and who would yield."""
        victims = self._victims(site, node, count + 1)
        return self._price(victims), victims

    def _victims(self, site: _Site, node: int, count: int) -> list[BestEffortRun]:
        """Who would yield on a node for so many instances, in the site's order, beside who has."""
        row = self._row(site, node)
        left = row.copy()
        victims: list[BestEffortRun] = []
        for run in self._runs_on.get(node, ()):
            if left.fits(self._need * count, self._start_s, self._end_s):
                break
            if run.name not in site.yielded:
                self._leave(run, node, left)
                victims.append(run)
        return victims

    def _yield(self, site: _Site, run: BestEffortRun) -> None:
        site.yielded[run.name] = run
        for node in sorted(self._nodes_of(run)):
            row = site.rows.get(node)
            if row is None:
                row = site.rows[node] = self._board.everything.rows[node].copy()
            self._leave(run, node, row)

    def _leave(self, run: BestEffortRun, node: int, row: NodeTimeline) -> None:
        for piece in self._pieces[run.name].get(node, ()):
            row.release(*piece)

    def _row(self, site: _Site, node: int) -> NodeTimeline:
        return site.rows.get(node) or self._board.everything.rows[node]

    def _nodes_of(self, run: BestEffortRun) -> set[int]:
        """Where a run takes anything in the interval."""
        return set(self._pieces[run.name])

    def _pieces_of(self, run: BestEffortRun) -> dict[int, list[Piece]]:
        found: dict[int, list[Piece]] = {}
        for segment in run.segments:
            start_s, end_s = max(segment.start_s, self._start_s), min(segment.end_s, self._end_s)
            if start_s < end_s:
                for share in segment.shares:
                    found.setdefault(share.node, []).append((share.amount, start_s, end_s))
        return found
