"""What is answered about kinds of leases: offers in the place of a refusal, occurrences of what recurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """Other terms that would be accepted, with the nodes that it would have now.

    `kind` says in what they differ: later, fewer-nodes, shorter, fewer-nodes-later or
    shorter-with-fewer-nodes. `name` is what it is accepted by; empty if it is not held.
    """

    name: str
    kind: str
    start_s: int
    end_s: int
    node_count: int
    nodes: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence:
    """One of the reservations of a request that recurs. `name` is empty if it is refused."""

    name: str
    number: int
    result: Literal["accepted", "refused"]
    start_s: int
    end_s: int
    nodes: str
    reason: str
