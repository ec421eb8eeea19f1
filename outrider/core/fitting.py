"""Which nodes a reservation gets (thesis, Algorithm 1).

Candidates are the nodes with room for at least one instance throughout. Those where the
image is or will be in time come first, then those with room for more than one instance;
instances are dealt out greedily in that order. Among equals a node that is wholly free in
the interval comes before one that is not, then the order of the site's nodes decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.core.timeline import Timeline, numbers


@dataclass(frozen=True, slots=True)
class Fit:
    """So many instances on the node of this number."""

    node: int
    instances: int


def fit(
    timeline: Timeline,
    *,
    instances: int,
    need: int,
    start_s: int,
    end_s: int,
    holders: Sequence[int] = (),
    available: int | None = None,
    most_per_node: int | None = None,
) -> list[Fit] | int:
    """The nodes for `instances`, or how many instances there is room for if they do not all fit.

    `holders` are the nodes that hold the image at `start_s` or will by then; `available` is
    a mask of the nodes that may be used at all.
    """
    allowed = timeline.everyone if available is None else available
    at_most = instances if most_per_node is None else most_per_node
    chosen: list[Fit] = []
    left = instances
    for node, room in _candidates(timeline, need, start_s, end_s, holders, allowed, max(2, instances)):
        taken = min(room, left, at_most)
        chosen.append(Fit(node, taken))
        left -= taken
        if not left:
            return chosen
    return instances - left


def _candidates(
    timeline: Timeline, need: int, start_s: int, end_s: int, holders: Sequence[int], allowed: int, limit: int
) -> Iterator[tuple[int, int]]:
    """Candidate nodes in Algorithm 1's order, each with how many instances it has room for.

    Made lazily: a decision usually takes the first few of ten thousand. Rooms are counted up
    to `limit`, which is at least 2 so that "more than one" can be told.
    """
    rows = timeline.rows
    holding = 0
    ones: list[int] = []
    for node in holders:
        holding |= 1 << node
        if allowed >> node & 1:
            room = rows[node].most(need, start_s, end_s, limit)
            if room > 1:
                yield node, room
            elif room:
                ones.append(node)
    for node in ones:
        yield node, 1

    several = one = 0
    rooms: dict[int, int] = {}
    for capacity, nodes in timeline.by_capacity.items():
        rooms[capacity] = timeline.layout.most(need, capacity, limit)
        if rooms[capacity] > 1:
            several |= nodes
        elif rooms[capacity]:
            one |= nodes
    rest = allowed & ~holding
    touched = timeline.touched(start_s, end_s)
    for node in numbers(rest & several & ~touched):
        yield node, rooms[rows[node].capacity]
    ones = []
    for node in numbers(rest & several & touched):
        room = rows[node].most(need, start_s, end_s, limit)
        if room > 1:
            yield node, room
        elif room:
            ones.append(node)
    for node in numbers(rest & one & ~touched):
        yield node, 1
    for node in ones:
        yield node, 1
    for node in numbers(rest & one & touched):
        if rows[node].fits(need, start_s, end_s):
            yield node, 1
