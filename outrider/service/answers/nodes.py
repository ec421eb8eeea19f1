"""What is answered about nodes, and about what differed between them and the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """A node: `state` is up, drained, down or away (its pool does not answer)."""

    name: str
    state: str
    capacity: str
    limit_bytes: int | None
    used_bytes: int | None
    reported_s: int | None
    images: int
    arriving: int
    reservation: str
    next_reservation_s: int | None
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeList:
    nodes: tuple[NodeView, ...]
    next_after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciled:
    """What differed between store, batch system and nodes, and what was done about it."""

    findings: tuple[str, ...]
