"""Which nodes a reservation gets (thesis, Algorithm 1).

Candidates are the nodes with room for at least one instance throughout. Those where the
image is or will be in time come first, then those with room for more than one instance;
instances are dealt out greedily in that order. Among equal holders the site's order decides.
Among other equals a node on which nothing is taken in the interval, nor near it (within a
bucket of the slot table), comes before one that is not so; then the site's order decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

from outrider.core.nodes.free_masks import FreeMasks
from outrider.core.nodes.free_runs import RoomsFrom
from outrider.core.nodes.timeline import SiteTimeline, numbers


class Fit(NamedTuple):
    """So many instances on the node of this number."""

    node: int
    instances: int


def fit(
    timeline: SiteTimeline,
    *,
    instances: int,
    need: int,
    start_s: int,
    end_s: int,
    holders: int = 0,
    is_holder: Callable[[int], bool] | None = None,
    available: int | None = None,
    most_per_node: int | None = None,
) -> list[Fit] | int:
    """The nodes for `instances`, or how many instances there is room for if they do not all fit.

    `holders` is a mask of the nodes that may hold the image at `start_s`; `is_holder`, if
    given, is asked whether one really does, and only when it is about to be chosen.
    `available` is a mask of the nodes that may be used at all.
    """
    allowed = timeline.everyone if available is None else available
    at_most = instances if most_per_node is None else most_per_node
    known = timeline.room_by_runs(need, at_most, start_s, end_s, allowed)
    if known is not None and known < instances:
        return known
    chosen: list[Fit] = []
    left = instances
    for node, room in _candidates(
        timeline, need, start_s, end_s, holders & allowed, is_holder, allowed, max(2, instances)
    ):
        taken = min(room, left, at_most)
        chosen.append(Fit(node, taken))
        left -= taken
        if not left:
            return chosen
    return instances - left


def first_whole(
    timeline: SiteTimeline,
    masks: FreeMasks,
    *,
    instances: int,
    start_s: int,
    end_s: int,
    holders: int,
    available: int,
) -> list[int] | None:
    """The same where no node has room for two instances, from the masks of the need alone: the nodes, or None
    if they are too few."""
    free = masks.throughout(start_s, end_s) & available
    if free.bit_count() < instances:
        return None
    held, rest = free & holders, free & ~holders
    if held.bit_count() >= instances:
        return list(islice(numbers(held), instances))
    touched = timeline.touched(start_s, end_s)
    order = chain(numbers(held), numbers(rest & ~touched), numbers(rest & touched))
    return list(islice(order, instances))


def fit_in_stages(
    stages: Sequence[Mapping[int, int]],
    *,
    instances: int,
    holders: int,
    is_holder: Callable[[int], bool],
    available: int,
    is_packed: bool = False,
    most_per_node: int | None = None,
) -> list[Fit] | int:
    """The same where each stage says how many more instances which nodes have room for: what
    an earlier one has is taken first, and within one Algorithm 1's order decides. If it `is_packed`,
    of the nodes without the image those with most room come first, so that the fewest need it."""
    taken: dict[int, int] = {}
    left = instances
    at_most = instances if most_per_node is None else most_per_node
    for stage in stages:
        rooms = [(node, room) for node, room in sorted(stage.items()) if available >> node & 1]
        ranked = [
            (not (holders >> node & 1 and is_holder(node)), -room if is_packed else room < 2, node, room)
            for node, room in rooms
        ]
        for _, _, node, room in sorted(ranked):
            count = min(room, left, at_most - taken.get(node, 0))
            if not count:
                continue
            taken[node] = taken.get(node, 0) + count
            left -= count
            if not left:
                return [Fit(node, count) for node, count in taken.items()]
    return instances - left


def _candidates(
    timeline: SiteTimeline,
    need: int,
    start_s: int,
    end_s: int,
    holders: int,
    is_holder: Callable[[int], bool] | None,
    allowed: int,
    limit: int,
) -> Iterator[tuple[int, int]]:
    """Candidate nodes in Algorithm 1's order, each with how many instances it has room for.

    Made lazily: a decision usually takes the first few of ten thousand. Rooms are counted up
    to `limit`, which is at least 2 so that "more than one" can be told.
    """
    rows, known = timeline.rows, timeline.rooms_from(need, start_s, end_s)
    rooms: dict[int, int] = {}
    several = one = 0
    for capacity, nodes in timeline.by_capacity.items():
        rooms[capacity] = timeline.layout.most(need, capacity, limit)
        if rooms[capacity] > 1:
            several |= nodes
        elif rooms[capacity]:
            one |= nodes
    found = 0
    ones: list[int] = []
    for node in numbers(holders & several):
        if known is None:
            room = rows[node].room(need, rooms[rows[node].capacity], start_s, end_s)
        else:
            room = known.room(node, end_s)
        if room and (is_holder is None or is_holder(node)):
            found |= 1 << node
            if room > 1:
                yield node, room
            else:
                ones.append(node)
    fits = _fits(timeline, known, need, start_s, end_s)
    small: Iterator[int]
    small = (node for node in fits(numbers(holders & one)) if is_holder is None or is_holder(node))
    for node in merge(ones, small) if ones else small:
        found |= 1 << node
        yield node, 1

    rest = allowed & ~found
    touched = timeline.touched(start_s, end_s)
    for node in numbers(rest & several & ~touched):
        yield node, rooms[rows[node].capacity]
    ones = []
    for node in numbers(rest & several & touched):
        if known is None:
            room = rows[node].room(need, rooms[rows[node].capacity], start_s, end_s)
        else:
            room = known.room(node, end_s)
        if room > 1:
            yield node, room
        elif room:
            ones.append(node)
    for node in numbers(rest & one & ~touched):
        yield node, 1
    small = fits(numbers(rest & one & touched))
    for node in merge(ones, small) if ones else small:
        yield node, 1


def _fits(
    timeline: SiteTimeline, known: RoomsFrom | None, need: int, start_s: int, end_s: int
) -> Callable[[Iterable[int]], Iterator[int]]:
    """Picks the nodes with room for one instance."""
    if known is not None:
        return lambda nodes: (node for node in nodes if known.room(node, end_s))
    rows = timeline.rows
    return lambda nodes: (node for node in nodes if rows[node].fits(need, start_s, end_s))
