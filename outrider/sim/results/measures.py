"""What a simulation of a site with images was like: utilisation, disks, promises.

Pure functions of an `Outcome`. What is counted job by job is in `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from outrider.core.images.pools import Stay
from outrider.core.model import Node
from outrider.core.site_view import unit_of
from outrider.sim.world import SimulationResult


def processor_resource(nodes: Iterable[Node]) -> str:
    """What a site calls its processors: `cpus`, or as near to it as its nodes have (Haizea: `CPU`)."""
    return unit_of({name for node in nodes for name, _ in node.capacity.amounts})


def use_over_time(outcome: SimulationResult, resource: str) -> list[tuple[int, int]]:
    """How much of a resource is in use: (instant, amount from then on), from 0 to the last change."""
    return amounts_over_time(_changes(outcome, resource))


def _changes(outcome: SimulationResult, resource: str) -> Iterator[tuple[int, int]]:
    for reservation in outcome.kept:
        workspace = reservation.workspace
        amount = workspace.resources[resource] * workspace.instances
        for start_s, end_s in reservation.spans:
            yield start_s, amount
            yield end_s, -amount
    each = {name: workspace.resources[resource] for name, workspace in outcome.workspaces.items()}
    for done in outcome.done:
        for segment in done.segments:
            amount = each[done.workspace] * sum(share.instances for share in segment.shares)
            yield segment.start_s, amount
            yield segment.end_s, -amount


def utilisation(outcome: SimulationResult, resource: str) -> float:
    """The share of a resource in use, on average from 0 to the last change (thesis, section 8.3.1)."""
    steps = use_over_time(outcome, resource)
    last_s = steps[-1][0]
    capacity = sum(node.capacity[resource] for node in outcome.nodes)
    if not last_s or not capacity:
        return 0.0
    used = sum(amount * (end_s - start_s) for (start_s, amount), (end_s, _) in pairwise(steps))
    return used / (last_s * capacity)


def disk_over_time(stays: Iterable[Stay], node: int) -> list[tuple[int, int]]:
    """The bytes of images on one node's disk: (instant, bytes from then on)."""
    return amounts_over_time(_disk_changes(stay for stay in stays if stay.node == node))


def disks_over_time(stays: Iterable[Stay]) -> list[tuple[int, int]]:
    """The same on all nodes' disks together."""
    by_node: dict[int, list[Stay]] = {}
    for stay in stays:
        by_node.setdefault(stay.node, []).append(stay)
    return amounts_over_time(change for own in by_node.values() for change in _disk_changes(own))


def peak_disk_bytes(stays: Iterable[Stay]) -> dict[int, int]:
    """The most bytes of images that each node's disk held at once."""
    by_node: dict[int, list[Stay]] = {}
    for stay in stays:
        by_node.setdefault(stay.node, []).append(stay)
    return {
        node: max(held for _, held in amounts_over_time(_disk_changes(own)))
        for node, own in sorted(by_node.items())
    }


def _disk_changes(stays: Iterable[Stay]) -> Iterator[tuple[int, int]]:
    """Bytes that come and go on one node. Stays of one image in the pool are one file."""
    pooled: dict[str, list[Stay]] = {}
    for stay in stays:
        if stay.is_private:
            yield stay.start_s, stay.size_bytes
            yield stay.end_s, -stay.size_bytes
        else:
            pooled.setdefault(stay.key, []).append(stay)
    for same in pooled.values():
        same.sort(key=lambda stay: stay.start_s)
        until_s = -1
        for stay in same:
            if stay.start_s > until_s:
                if until_s >= 0:
                    yield until_s, -stay.size_bytes
                yield stay.start_s, stay.size_bytes
            until_s = max(until_s, stay.end_s)
        yield until_s, -same[-1].size_bytes


def amounts_over_time(changes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Changes of an amount summed up: (instant, amount from then on), from 0 on."""
    totals: dict[int, int] = {0: 0}
    for at_s, amount in changes:
        totals[at_s] = totals.get(at_s, 0) + amount
    steps: list[tuple[int, int]] = []
    held = 0
    for at_s in sorted(totals):
        held += totals[at_s]
        steps.append((at_s, held))
    return steps
