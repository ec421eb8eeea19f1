"""Which nodes a lease gets: rules that score single nodes, weighed against each other.

A score is between 0 (taken first) and `MOST` (taken last). The sums of the weighted scores put the nodes of
a plan into stages; within a stage Algorithm 1 of the thesis decides. A site without such rules has one stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MOST = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeState:
    """A node as a lease would find it: how many of its instances have room, during the whole of it.

    `empty_instances` would have room if nothing else were there, `idle_instances` have without best effort
    having to yield. `is_empty`: no reservation takes anything of it during that time.
    """

    room_instances: int
    empty_instances: int
    idle_instances: int
    has_image: bool
    is_empty: bool


class NodeRule(Protocol):
    """One reason to take a node sooner than another."""

    def score(self, node: NodeState) -> int:
        """From 0, taken first, to `MOST`."""


@dataclass(frozen=True, slots=True)
class WithImage:
    """Nodes that have the image, or will in time."""

    def score(self, node: NodeState) -> int:
        return 0 if node.has_image else MOST


@dataclass(frozen=True, slots=True)
class Packing:
    """The fullest first, so that others stay free for what is large."""

    def score(self, node: NodeState) -> int:
        return MOST * node.room_instances // max(1, node.empty_instances)


@dataclass(frozen=True, slots=True)
class Spreading:
    """The emptiest first, so that leases disturb each other least."""

    def score(self, node: NodeState) -> int:
        return MOST - Packing().score(node)


@dataclass(frozen=True, slots=True)
class LeastPreemption:
    """Where the smallest part of the room has to be cleared of best effort."""

    def score(self, node: NodeState) -> int:
        room = max(1, node.room_instances)
        return MOST * (node.room_instances - node.idle_instances) // room


@dataclass(frozen=True, slots=True)
class Energy:
    """Nodes that are in use anyhow: what is empty stays empty, and can be switched off."""

    def score(self, node: NodeState) -> int:
        return MOST if node.is_empty else 0


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A site's order of nodes: rules with weights."""

    rules: tuple[tuple[NodeRule, int], ...]

    def score(self, node: NodeState) -> int:
        return sum(weight * rule.score(node) for rule, weight in self.rules)
