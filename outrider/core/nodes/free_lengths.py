"""For how long the nodes of a site together stay free from an instant on.

It is the answer to two questions at once: for how many instances there is room for so long, and for how long
for so many.
"""

from __future__ import annotations

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline, numbers


def longest_free(
    timeline: SiteTimeline,
    *,
    need: int,
    instances: int,
    at_s: int,
    within_s: int,
    available: int,
    most_per_node: int | None,
) -> list[int]:
    """For how long, from an instant on, these nodes have room for one instance, for two, and so on up to
    `instances`. What is `within_s` or more is for ever: nobody asks how much more."""
    most = instances if most_per_node is None else most_per_node
    end_s = at_s + within_s
    touched = timeline.touched(at_s, end_s) & available
    rows, layout = timeline.rows, timeline.layout
    for_ever = 0
    ends: list[int] = []
    for capacity, nodes in timeline.by_capacity.items():
        full = layout.most(need, capacity, most)
        if full:
            for_ever += full * (nodes & available & ~touched).bit_count()
            for node in numbers(nodes & touched):
                ends += rows[node].room_ends(need, at_s, end_s, full)
    lengths = [FOREVER if until_s == end_s else until_s - at_s for until_s in ends]
    lengths.sort(reverse=True)
    return ([FOREVER] * min(for_ever, instances) + lengths)[:instances]
