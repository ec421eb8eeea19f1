"""What the walk before found for the first jobs of the queue, and how much of it is still so.

A place depends on what is taken of nodes by others and by the jobs ahead. A change on some nodes leaves it as
it is if none of them is a node of the place and none of them could start the job by then: before the place's
start too few nodes were free together, and none has been added. The first place of which that is not certain,
and all behind it, are looked for anew, so that what is found is what a walk from the beginning finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.core.besteffort.jobs.order import Rank


class Wanted(Protocol):
    """What of a job a place depends on."""

    @property
    def nodes_wanted(self) -> int: ...
    @property
    def need(self) -> int: ...
    @property
    def limit_s(self) -> int: ...
    @property
    def eligible(self) -> int: ...
    @property
    def image(self) -> str: ...


class Free(Protocol):
    """What is free of nodes."""

    def free_from(self, node: int, need: int, from_s: int, duration_s: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk found for a job that had a right to a place in the future."""

    turn: tuple[Rank, str]
    job: Wanted
    start_s: int | None
    """None if it fits nowhere."""
    nodes: int
    """A mask; nothing if it started, since it waits no more."""
    has_started: bool = False


@dataclass(slots=True)
class KeptPlaces:
    """Of one walk, in the queue's order, as long as each job had a right to a place in the future."""

    found: list[Found]
    now_s: int
    available: int
    starts_behind: int = 0
    """A mask of the nodes that went to jobs which started without such a right, behind all others."""

    def until(
        self,
        queue: Sequence[tuple[Rank, str]],
        jobs: Mapping[str, tuple[Rank, Wanted]],
        changed: int,
    ) -> list[Found]:
        """Those that are first in the queue still, and whose nodes nobody has touched. When an image can be
        somewhere nobody here knows: a job that has one, and all behind it, are not among them."""
        waiting = [each for each in self.found if not each.has_started]
        taken = self._taken_behind()
        kept: list[Found] = []
        for each, behind, turn in zip(waiting, taken, queue, strict=False):
            is_same = each.turn == turn and jobs[turn[1]][1] is each.job
            if not is_same or each.job.image or each.nodes & (changed | behind):
                break
            kept.append(each)
        return kept

    def _taken_behind(self) -> list[int]:
        """For each that waits the nodes that were given away behind it, which it did not know then."""
        behind, masks = self.starts_behind, []
        for each in reversed(self.found):
            if each.has_started:
                behind |= each.nodes
            else:
                masks.append(behind)
        return masks[::-1]


def unaffected(
    wanted: Wanted, start_s: int | None, free: Free, changed: Iterable[int], usable: int, now_s: int
) -> bool:
    """Whether nothing that has changed on nodes lets a job start by the start of its place."""
    nodes = wanted.eligible & usable
    if start_s is None and nodes.bit_count() < wanted.nodes_wanted:
        return True
    for node in changed:
        if nodes >> node & 1:
            from_s = free.free_from(node, wanted.need, now_s, wanted.limit_s)
            if start_s is None or from_s <= start_s:
                return False
    return True
