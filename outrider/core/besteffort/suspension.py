"""How best-effort work runs around reservations: suspended before one, resumed after it.

A *run* is a list of segments, each on nodes of its own. Suspending writes an instance's
memory to its node's disk at the end of a segment, resuming reads it at the beginning of
the next; both take time out of the segment and, if so configured, one at a time on each
node. A segment too short to be worth its overhead is not used.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from outrider.core.model import LeasePiece, Resources, Workspace
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline

BYTES_PER_MIB = 1 << 20
MEMORY_UNITS = {"memory_mib": BYTES_PER_MIB, "memory_gib": 1 << 30, "Memory": BYTES_PER_MIB}
"""By the names under which workloads and sites have memory (`Memory` is Haizea's), the bytes of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspensionRules:
    """Whether and at what cost best effort is suspended before a reservation."""

    is_allowed: bool = True
    disk_bytes_per_s: int | None = None
    """Memory is written and read at this rate; None makes it free and instantaneous."""
    read_bytes_per_s: int | None = None
    """Memory is read at this rate; None: as it is written."""
    saving_s: int = 0
    """What each suspension takes beside writing, on its disk."""
    restart_s: int = 0
    """What each resumption takes beside reading: what a job that saves itself has to do again."""
    node_percents: tuple[int, ...] = ()
    """How fast each node writes and reads, in per cent of these rates; empty: all nodes as they say."""
    is_serialised: bool = True
    """Whether the instances of one node write and read one after the other."""
    is_shared: bool = False
    """Whether all nodes write to and read from one file system, one instance of the site after the other."""
    is_migrating: bool = False
    """Whether what is suspended may be resumed on other nodes."""
    migration_bytes_per_s: int | None = 12_500_000
    """Memory and image are moved to other nodes at this rate; None: they are there at once."""
    makes_way_for_all: bool = False
    """Whether a run is also planned around other best-effort runs, not only reservations. For
    serial instances this fills every gap, as the thesis' simulator does; what must run in
    parallel is torn into small pieces by it."""
    least_run_s: int = 1
    """The least useful time for which a segment is worth being used."""

    def of(self, workspace: Workspace) -> SuspensionRules:
        """The rules for a workspace: what is not preemptible is never suspended."""
        return self if workspace.is_preemptible or not self.is_allowed else replace(self, is_allowed=False)

    def overhead_s(self, resources: Resources) -> int:
        """What suspending, or resuming, one instance takes."""
        if self.disk_bytes_per_s is None:
            return 0
        return self.saving_s + -(-memory_bytes(resources) // self.disk_bytes_per_s)

    def reading_s(self, writing_s: int) -> int:
        """How long it takes to read what one suspension of that time writes."""
        if self.disk_bytes_per_s is None:
            return writing_s
        writing_s = max(0, writing_s - self.saving_s)
        if self.read_bytes_per_s is None:
            return writing_s
        return -(-writing_s * self.disk_bytes_per_s // self.read_bytes_per_s)

    def resuming_s(self, writing_s: int) -> int:
        """What resuming one instance takes, if no other one is in the way."""
        return self.reading_s(writing_s) + self.restart_s

    def writing_on(self, node: int, writing_s: int) -> int:
        """What one suspension takes on a node, of what takes so long at the rate."""
        return self.saving_s + self._on(node, writing_s - self.saving_s) if self.node_percents else writing_s

    def reading_on(self, node: int, reading_s: int) -> int:
        """What one resumption's reading takes on a node."""
        return self._on(node, reading_s) if self.node_percents else reading_s

    def _on(self, node: int, seconds: int) -> int:
        return -(-100 * seconds // self.node_percents[node])

    def disk_of(self, node: int) -> int:
        """The disk that a node writes to; a shared one is the first node's."""
        return 0 if self.is_shared else node

    def migration_seconds(self, resources: Resources, image_bytes: int) -> int:
        """What moving one suspended instance to another node takes."""
        if self.migration_bytes_per_s is None:
            return 0
        return -(-(memory_bytes(resources) + image_bytes) // self.migration_bytes_per_s)


_RULES = SuspensionRules()


def memory_bytes(resources: Resources) -> int:
    """What is written when an instance is suspended."""
    found = 0
    for name, amount in resources.amounts:
        if name in MEMORY_UNITS:
            found += amount * MEMORY_UNITS[name]
    return found


class SegmentShare(NamedTuple):
    """What one node gives to a segment: so many instances, so much in all."""

    node: int
    instances: int
    amount: int


@lru_cache(maxsize=1 << 16)
def whole_share(node: int, need: int) -> SegmentShare:
    """One instance on a node: a site has few sizes, and places are made of them all the time."""
    return SegmentShare(node, 1, need)


class Segment(NamedTuple):
    """The nodes are taken in [start_s, end_s); the first and last seconds may be overhead."""

    start_s: int
    end_s: int
    shares: tuple[SegmentShare, ...]
    resume_s: int = 0
    suspend_s: int = 0
    disk: tuple[tuple[int, int, int], ...] = ()
    """When which node's disk is busy for it: (node, start, seconds)."""

    def amounts(self) -> list[tuple[int, int]]:
        """What it takes from which node."""
        return [(share.node, share.amount) for share in self.shares]

    @property
    def useful_s(self) -> int:
        return self.end_s - self.start_s - self.resume_s - self.suspend_s


class DiskQueue:
    """One node's disk, which suspends or resumes one thing at a time."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def latest_start(self, end_s: int, length_s: int) -> int:
        """The latest start of `length_s` free seconds that end by `end_s`."""
        start_s = end_s - length_s
        for taken_start_s, taken_end_s in reversed(self._taken):
            if taken_end_s <= start_s:
                break
            if taken_start_s < start_s + length_s:
                start_s = taken_start_s - length_s
        return start_s

    def earliest_start(self, start_s: int, length_s: int) -> int:
        """The earliest start, from `start_s` on, of `length_s` free seconds."""
        taken = self._taken
        for index in range(max(0, bisect_left(taken, (start_s, start_s)) - 1), len(taken)):
            taken_start_s, taken_end_s = taken[index]
            if taken_start_s >= start_s + length_s:
                break
            if taken_end_s > start_s:
                start_s = taken_end_s
        return start_s

    def safe_by(self, start_s: int, lengths: Sequence[int]) -> int:
        """An end by which so many things can have been written from `start_s` on, or by any later one.

        Each is written as late as it can be, so before everything that is in the way a gap may
        remain that is too short for the longest.
        """
        end_s = start_s + sum(lengths)
        first = max(0, bisect_left(self._taken, (start_s, start_s)) - 1)
        for taken_start_s, taken_end_s in self._taken[first:]:
            if taken_start_s >= end_s:
                break
            if taken_end_s > start_s:
                end_s += taken_end_s - max(taken_start_s, start_s) + max(lengths)
        return end_s

    def take(self, start_s: int, length_s: int) -> None:
        insort(self._taken, (start_s, start_s + length_s))

    def give_back(self, start_s: int, length_s: int) -> None:
        index = bisect_left(self._taken, (start_s, start_s + length_s))
        if index < len(self._taken) and self._taken[index] == (start_s, start_s + length_s):
            del self._taken[index]


def joined(done: tuple[Segment, ...], rest: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Segments in sequence, the last of `done` and the first of `rest` made one if they touch."""
    if not done or not rest:
        return done + rest
    last, first = done[-1], rest[0]
    if last.end_s != first.start_s or first.resume_s or last.shares != first.shares:
        return done + rest
    whole = last._replace(end_s=first.end_s, suspend_s=first.suspend_s, disk=last.disk + first.disk)
    return (*done[:-1], whole, *rest[1:])


def instant_of(segments: Sequence[Segment | LeasePiece], work_s: int) -> int:
    """When so much useful work has been done."""
    for segment in segments:
        if work_s <= segment.useful_s:
            return segment.start_s + segment.resume_s + work_s
        work_s -= segment.useful_s
    raise ValueError(f"the segments are {work_s} s short of the work")


def free_until(table: SiteTimeline, shares: Sequence[SegmentShare], start_s: int, end_s: int) -> int:
    """The first instant from `start_s` on at which not every share is free; at most `end_s`."""
    masks = table.whole_masks(shares)
    if masks is not None:
        return masks.all_until(_nodes(shares), start_s, end_s)
    for share in shares:
        end_s = table.rows[share.node].free_until(share.amount, start_s, end_s)
    return end_s


def _nodes(shares: Sequence[SegmentShare]) -> int:
    return sum([1 << share.node for share in shares])


def next_fit(
    table: SiteTimeline, shares: Sequence[SegmentShare], start_s: int, before_s: int = FOREVER
) -> int:
    """The first instant from `start_s` on at which every share is free; FOREVER if never. If that is not
    earlier than `before_s`, any instant from then on."""
    masks = table.whole_masks(shares)
    if masks is not None:
        return masks.next_all(_nodes(shares), start_s, before_s)
    while True:
        later_s = start_s
        for share in shares:
            later_s = table.rows[share.node].next_fit(share.amount, later_s)
            if later_s >= before_s:
                return later_s
        if later_s in (start_s, FOREVER):
            return later_s
        start_s = later_s


def plan_run(
    table: SiteTimeline,
    disks: Sequence[DiskQueue],
    shares: tuple[SegmentShare, ...],
    start_s: int,
    work_s: int,
    rules: SuspensionRules,
    overhead_s: int,
    *,
    is_resumed: bool = False,
    reserved: SiteTimeline | None = None,
) -> tuple[Segment, ...] | None:
    """Segments on these nodes that do `work_s` of work from `start_s` on; None if not possible.

    The first segment begins exactly at `start_s`, unless what is planned is the rest of
    something suspended (`is_resumed`). With `reserved`, the slot table of reservations alone,
    it makes way for those and for nothing else.
    """
    if is_resumed:
        start_s = next_fit(table, shares, start_s)
    segments: list[Segment] = []
    resuming = _NOTHING
    while start_s < FOREVER:
        if is_resumed:
            resuming = _resuming(disks, shares, start_s, overhead_s, rules)
        whole_s = start_s + resuming.seconds + work_s
        end_s = free_until(table, shares, start_s, whole_s)
        if end_s == whole_s:
            segments.append(Segment(start_s, end_s, shares, resuming.seconds, 0, resuming.disk))
            return tuple(segments)
        if not rules.is_allowed or (
            reserved is not None and not any(reserved.rows[share.node].changes_at(end_s) for share in shares)
        ):
            return None
        written = suspending(disks, shares, end_s, overhead_s, rules)
        useful_s = end_s - start_s - resuming.seconds - written.seconds
        if useful_s >= min(rules.least_run_s, work_s):
            disk = resuming.disk + written.disk
            segments.append(Segment(start_s, end_s, shares, resuming.seconds, written.seconds, disk))
            work_s -= useful_s
            is_resumed = True
        elif not segments and not is_resumed:
            return None
        start_s = next_fit(table, shares, end_s)
    return None


def is_tight(
    table: SiteTimeline,
    segments: Sequence[Segment],
    from_s: int,
    overhead_s: int,
    rules: SuspensionRules = _RULES,
) -> bool:
    """Whether planned segments can end no earlier on their nodes: their shares are never free together
    between them, and no segment waits for a disk. They begin at `from_s` at the earliest."""
    shares: tuple[SegmentShare, ...] = ()
    writing_s = resuming_s = 0
    for segment in segments:
        if segment.shares is not shares:
            shares = segment.shares
            writing_s, resuming_s = _turns(shares, overhead_s, rules)
        if segment.suspend_s > writing_s or segment.resume_s > resuming_s:
            return False
        if from_s < segment.start_s and next_fit(table, shares, from_s, segment.start_s) < segment.start_s:
            return False
        from_s = segment.end_s
    return True


class Overhead(NamedTuple):
    """Seconds taken out of a segment, and when each node's disk is busy."""

    seconds: int
    disk: tuple[tuple[int, int, int], ...] = ()


_NOTHING = Overhead(0)


def suspending(
    disks: Sequence[DiskQueue],
    shares: Sequence[SegmentShare],
    end_s: int,
    overhead_s: int,
    rules: SuspensionRules,
) -> Overhead:
    """What must be taken before `end_s` so that every node's disk has written all by then."""
    if not overhead_s:
        return _NOTHING
    if not rules.is_serialised:
        return Overhead(max(rules.writing_on(share.node, overhead_s) for share in shares))
    lengths = _writing(shares, overhead_s, rules)
    disk = tuple((node, disks[node].latest_start(end_s, length_s), length_s) for node, length_s in lengths)
    return Overhead(end_s - min(start_s for _, start_s, _ in disk), disk)


def _resuming(
    disks: Sequence[DiskQueue],
    shares: Sequence[SegmentShare],
    start_s: int,
    overhead_s: int,
    rules: SuspensionRules,
) -> Overhead:
    """What must be taken after `start_s` so that every node's disk has read all."""
    reading_s = rules.reading_s(overhead_s)
    if not reading_s or not rules.is_serialised:
        seconds = max(rules.reading_on(share.node, reading_s) for share in shares) + rules.restart_s
        return Overhead(seconds) if seconds else _NOTHING
    lengths = _reading(shares, reading_s, rules)
    disk = tuple(
        (node, disks[node].earliest_start(start_s, length_s), length_s) for node, length_s in lengths
    )
    read_s = max(begin_s + length_s for _, begin_s, length_s in disk)
    return Overhead(read_s - start_s + rules.restart_s, disk)


_Lengths = tuple[tuple[int, int], ...]
"""For how long each disk is busy, one instance after the other."""


def _writing(shares: Sequence[SegmentShare], each_s: int, rules: SuspensionRules) -> _Lengths:
    if rules.is_shared:
        return _on_the_shared(shares, each_s, rules)
    return tuple((share.node, rules.writing_on(share.node, each_s) * share.instances) for share in shares)


def _reading(shares: Sequence[SegmentShare], each_s: int, rules: SuspensionRules) -> _Lengths:
    if rules.is_shared:
        return _on_the_shared(shares, each_s, rules)
    return tuple((share.node, rules.reading_on(share.node, each_s) * share.instances) for share in shares)


def _on_the_shared(shares: Sequence[SegmentShare], each_s: int, rules: SuspensionRules) -> _Lengths:
    return ((rules.disk_of(0), each_s * sum(share.instances for share in shares)),)


def _turns(shares: Sequence[SegmentShare], overhead_s: int, rules: SuspensionRules) -> tuple[int, int]:
    """What suspending and resuming take if no disk has anything else to do."""
    reading_s = rules.reading_s(overhead_s)
    if rules.node_percents:
        writing_s = max(seconds for _, seconds in _writing(shares, overhead_s, rules))
        read_s = max(seconds for _, seconds in _reading(shares, reading_s, rules))
        return writing_s, read_s + rules.restart_s
    counts = [share.instances for share in shares]
    in_turn = sum(counts) if rules.is_shared else max(counts)
    return in_turn * overhead_s, in_turn * reading_s + rules.restart_s
