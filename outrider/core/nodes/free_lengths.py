"""For how long each node of a site stays free from an instant on, where it has room for one instance or none.

It is the answer to two questions at once: how many nodes are free for so long, and for how long so many are.
"""

from __future__ import annotations

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline, numbers


def longest_free(
    timeline: SiteTimeline, *, need: int, at_s: int, available: int, most_per_node: int | None
) -> list[int] | None:
    """For how long, from an instant on, one of these nodes is free for a need, two are, and so on. None if
    a node has room for more than one instance: how many then depends on how long."""
    layout = timeline.layout
    if most_per_node != 1 and any(layout.most(need, capacity, 2) > 1 for capacity in timeline.by_capacity):
        return None
    fitting = 0
    for capacity, nodes in timeline.by_capacity.items():
        if layout.fits(need, capacity):
            fitting |= nodes & available
    rows = timeline.rows
    untils = [rows[node].free_until(need, at_s) for node in numbers(fitting)]
    lengths = [until_s if until_s == FOREVER else until_s - at_s for until_s in untils if until_s > at_s]
    return sorted(lengths, reverse=True)
