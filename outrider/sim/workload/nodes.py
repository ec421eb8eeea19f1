"""Nodes that are all alike, as the thesis' testbed and most simulations have them."""

from __future__ import annotations

from outrider.core.model import Node, Resources


def uniform_nodes(count: int, capacity: Resources, *, pool_bytes: int | None = None) -> tuple[Node, ...]:
    """Nodes n1, n2, ... with the numbers padded, so that names sort as numbers do."""
    width = len(str(count))
    return tuple(
        Node(name=f"n{number:0{width}}", capacity=capacity, pool_bytes=pool_bytes)
        for number in range(1, count + 1)
    )
