"""The board on which best effort is placed: everything that is taken, by reservations and by runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import (
    DiskQueue,
    Segment,
    SegmentShare,
    SuspensionRules,
    memory_bytes,
)
from outrider.core.images.pools import Life, Stay
from outrider.core.links.fifo import Scheduled
from outrider.core.model import Image, Workspace
from outrider.core.nodes.free_masks import FreeStairs
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.selection import Fit
from outrider.core.nodes.timeline import SiteTimeline
from outrider.core.reservations.book import Book

if TYPE_CHECKING:
    from outrider.core.leases.preemption import Candidate, PreemptionOrder


class Yielding(Enum):
    """Which nodes a reservation gets where best effort would have to yield."""

    SITE_ORDER = "site order"
    """Those that it would get without best effort: which runs stop is not looked at."""
    YOUNGEST = "youngest"
    """Those on which the oldest that would stop is the youngest."""
    CHEAPEST = "cheapest"
    """Those on which instances lose the least time; among equals as for the youngest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRules:
    backfilling: Backfilling = Backfilling.GREEDY
    places: int | None = 1
    """With RESERVING: how many waiting workspaces have a place at a time. 1 is aggressive
    (EASY), None conservative."""
    suspension: SuspensionRules = field(default_factory=SuspensionRules)
    yielding: Yielding = Yielding.CHEAPEST
    preemption: PreemptionOrder | None = None
    """Who makes way first; None: the youngest."""


@dataclass(slots=True, eq=False)
class BestEffortRun:
    """Best-effort instances that have a place."""

    order: int
    index: int
    workspace: Workspace
    need: int
    ready_s: int
    segments: tuple[Segment, ...]
    first_shares: tuple[SegmentShare, ...]
    """Where it was placed: kept when its segments are taken back before it begins."""
    lives: list[tuple[int, Life]]
    placed_s: int
    submitted_s: int = 0
    transfers: tuple[Scheduled, ...] = ()
    has_begun: bool = False
    changes: int = 0
    """How often its segments were planned anew: what was expected of older ones is void."""
    is_in_book: bool = False
    """Whether it keeps reservations away: it runs and cannot be suspended."""
    pauses: int = 0
    """How often it has made way for others' first slices."""
    is_slice: bool = False
    """Whether it is stopped, and waits again, when its one segment is over."""
    is_tight: bool = False
    """Whether its segments could end no earlier on their nodes when that was looked at last."""
    name: str = field(init=False)
    first_nodes: int = field(init=False)
    """A mask of the nodes where it was placed."""

    def __post_init__(self) -> None:
        self.name = f"{self.workspace.name}/{self.index}"
        self.first_nodes = sum([1 << share.node for share in self.first_shares])

    @property
    def together(self) -> int:
        """How many instances it has: all of a parallel workspace, one of a serial one."""
        return self.workspace.instances if self.workspace.is_parallel else 1

    @property
    def start_s(self) -> int:
        return self.segments[0].start_s

    @property
    def end_s(self) -> int:
        return self.segments[-1].end_s

    def nodes_from(self, now_s: int) -> set[int]:
        """The nodes that it uses now or later."""
        return {share.node for segment in self.segments if segment.end_s > now_s for share in segment.shares}


def candidate_of(run: BestEffortRun, now_s: int) -> Candidate:
    """A run as policies of preemption look at it."""
    from outrider.core.leases.preemption import Candidate

    return Candidate(
        name=run.name,
        order=(run.order, run.index),
        duration_s=run.workspace.duration_s,
        instances=run.together,
        owner=run.workspace.owner,
        done_s=sum(max(0, min(each.end_s, now_s) - each.start_s - each.resume_s) for each in run.segments),
        memory_bytes=run.together * memory_bytes(run.workspace.resources),
    )


class QueueBoard:
    """What placing best effort is decided against, and what it changes."""

    def __init__(self, book: Book, rules: QueueRules) -> None:
        self.book = book
        self.links = book.links
        self.rules = rules
        self.everything = SiteTimeline(book.timeline.nodes, is_tidy=False)
        self.everything.fill(book.leases(), now_s=0)
        book.beside = self.everything
        self.disks = [DiskQueue() for _ in book.timeline.nodes]
        self.runs: dict[str, BestEffortRun] = {}
        self._largest: dict[int, int] = {}
        self._large_enough: dict[int, int] = {}
        self.lent: dict[str, tuple[tuple[tuple[int, int], ...], tuple[Fit, ...]]] = {}
        """Open leases that are not in `everything`, because best effort may run there: when, and where."""
        self.private: list[Stay] = []
        """Where images are not reused: each instance's own file."""

    def free_nodes(self, need: int, at_s: int) -> int:
        """The nodes with room for one instance at an instant."""
        return self.everything.free_nodes(need, at_s) & self.book.available

    def free_stairs(self, need: int, at_s: int, nodes: int) -> FreeStairs:
        """Of some nodes: until when so many of them stay free together."""
        return self.everything.free_masks(need).stairs(at_s, nodes & self.book.available)

    def first_suspension_s(self, need: int, at_s: int, free: int) -> int:
        """The first later instant at which what takes some of these nodes, all of which are free, could be
        suspended, at the earliest: any of them is taken then, and a reservation begins or ends on one."""
        book = self.book.timeline
        if self.largest_room(need) > 1:
            # What takes a part of a node may lose its place when less is taken of it than the need.
            return book.next_boundary(free, at_s)
        masks = self.everything.free_masks(need)
        return next((loss_s for loss_s in masks.losses(at_s, free) if book.changes_on(free, loss_s)), FOREVER)

    def yielding_order(self, runs: Sequence[BestEffortRun], now_s: int) -> list[BestEffortRun]:
        """Runs, whoever is to make way first in front. Who is spared comes last: it can only be moved before
        it begins, because afterwards it is in the book."""
        youngest_first = sorted(runs, key=lambda run: (run.order, run.index), reverse=True)
        order = self.rules.preemption
        if order is None:
            return youngest_first
        place = {each.name: number for number, each in enumerate(
            order.sort([candidate_of(run, now_s) for run in youngest_first])
        )}  # fmt: skip
        return sorted(youngest_first, key=lambda run: place.get(run.name, len(place)))

    def nodes_for(self, image: Image | None) -> int:
        """A mask of the nodes whose pool, if empty, has room for the image."""
        if image is None or not self.book.terms.is_reusing:
            return self.book.timeline.everyone
        mask = self._large_enough.get(image.size_bytes)
        if mask is None:
            limits = [pool.limit_bytes for pool in self.book.pools.pools]
            mask = sum(
                1 << node for node, limit in enumerate(limits) if limit is None or image.size_bytes <= limit
            )
            self._large_enough[image.size_bytes] = mask
        return mask

    def largest_room(self, need: int) -> int:
        """How many instances fit on the biggest node when it is empty."""
        room = self._largest.get(need)
        if room is None:
            layout = self.everything.layout
            capacities = self.everything.by_capacity
            room = max(layout.most(need, capacity, FOREVER) for capacity in capacities)
            self._largest[need] = room
        return room

    def occupy(self, run: BestEffortRun, from_s: int = 0) -> None:
        """Enter a run's segments from `from_s` on in the slot table, and what they do to disks."""
        for segment in run.segments:
            if segment.end_s <= from_s:
                continue
            self.everything.reserve_all(segment.amounts(), max(segment.start_s, from_s), segment.end_s)
            for node, start_s, length_s in segment.disk:
                if start_s >= from_s:
                    self.disks[node].take(start_s, length_s)

    def vacate(self, run: BestEffortRun, from_s: int) -> None:
        """Give back what a run has from `from_s` on; its segments are cut accordingly."""
        run.is_tight = False
        kept: list[Segment] = []
        for segment in run.segments:
            if segment.end_s <= from_s:
                kept.append(segment)
                continue
            start_s = max(segment.start_s, from_s)
            self.everything.release_all(segment.amounts(), start_s, segment.end_s)
            done: list[tuple[int, int, int]] = []
            for node, begin_s, length_s in segment.disk:
                if begin_s < from_s:
                    done.append((node, begin_s, length_s))
                else:
                    self.disks[node].give_back(begin_s, length_s)
            if segment.start_s < from_s:
                resume_s = min(segment.resume_s, from_s - segment.start_s)
                suspend_s = max(0, from_s - (segment.end_s - segment.suspend_s))
                shares = segment.shares
                kept.append(Segment(segment.start_s, from_s, shares, resume_s, suspend_s, tuple(done)))
        run.segments = tuple(kept)
