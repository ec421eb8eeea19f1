"""The nodes of a site as they are written down, so that a start need not wait for the batch system."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from outrider.core.model import Node, Reservation, Resources
from outrider.rms.base import NodeState, RmsNode
from outrider.service.ports import HeldBytes, NodeRoom
from outrider.service.settings import Settings
from outrider.store.records import NodeRecord

VERSION = 1

WHOLE = "node"
"""A resource of which a reservation of whole nodes takes all that a node has, however little it needs of
the others, and one of a part some."""
SHARES = 1 << 20
"""So much of it every node has."""
PART = 2
"""So much of it a part of a node takes. One is what earlier versions wrote for a whole node."""


def whole(resources: Resources) -> Resources:
    """These resources of a node, and with them all of it."""
    return Resources.from_mapping(dict(resources.amounts) | {WHOLE: SHARES})


def part(resources: Resources) -> Resources:
    """These resources of a node, which it may give beside others."""
    return Resources.from_mapping(dict(resources.amounts) | {WHOLE: PART})


def is_part(resources: Resources) -> bool:
    """Whether something takes no more of a node than these."""
    return resources[WHOLE] == PART


def as_now(reservation: Reservation) -> Reservation:
    """A reservation from the store. Earlier versions wrote a whole node otherwise, and reservations of
    theirs are always of such."""
    workspace = reservation.workspace
    if workspace.resources[WHOLE] != 1:
        return reservation
    workspace = replace(workspace, resources=whole(workspace.resources))
    return replace(reservation, workspace=workspace)


def parts(resources: Resources) -> Resources:
    """The same without that: as people and the batch system know them."""
    return Resources.from_mapping({name: amount for name, amount in resources.amounts if name != WHOLE})


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedNode:
    """A node as it was last seen."""

    name: str
    capacity: Resources
    state: NodeState
    limit_bytes: int | None = None
    room: NodeRoom | None = None
    """What others held of its pool when it spoke last."""

    def node(self, settings: Settings) -> Node:
        limit_bytes = settings.pool_bytes if self.limit_bytes is None else self.limit_bytes
        return Node(name=self.name, capacity=whole(self.capacity), pool_bytes=limit_bytes)


def read_roster(records: Iterable[NodeRecord]) -> dict[str, ListedNode]:
    """The nodes that are written down, by name."""
    found: dict[str, ListedNode] = {}
    for record in records:
        fields: dict[str, Any] = json.loads(record.report)
        if fields.get("version") != VERSION or "capacity" not in fields:
            continue
        found[record.name] = ListedNode(
            name=record.name,
            capacity=Resources.from_mapping(fields["capacity"]),
            state=NodeState(fields["state"]),
            limit_bytes=fields["limit_bytes"],
            room=_read_room(fields.get("room")),
        )
    return found


def record_of(listed: ListedNode, now_s: int) -> NodeRecord:
    fields = {
        "version": VERSION,
        "capacity": dict(listed.capacity.amounts),
        "state": listed.state.value,
        "limit_bytes": listed.limit_bytes,
        "room": _write_room(listed.room),
    }
    return NodeRecord(
        name=listed.name,
        reported_s=now_s,
        is_available=listed.state is NodeState.UP,
        report=json.dumps(fields, separators=(",", ":")),
    )


def seen(node: RmsNode, before: ListedNode | None) -> ListedNode:
    if before is not None and before.state is node.state and before.capacity == node.capacity:
        return before
    if before is not None:
        return replace(before, state=node.state, capacity=node.capacity)
    return ListedNode(name=node.name, capacity=node.capacity, state=node.state)


def is_same_site(one: dict[str, ListedNode], other: dict[str, ListedNode]) -> bool:
    """Whether a book over one is a book over the other: the same nodes with the same capacities."""
    return list(one) == list(other) and all(
        each is other[name] or each.capacity == other[name].capacity for name, each in one.items()
    )


def _write_room(room: NodeRoom | None) -> dict[str, object] | None:
    """For the store."""
    if room is None:
        return None
    held = [[each.digest, each.size_bytes, each.until_s] for each in room.held]
    return {"capacity_bytes": room.capacity_bytes, "held": held}


def _read_room(fields: dict[str, object] | None) -> NodeRoom | None:
    """From the store; None of a service that did not ask for it yet."""
    if fields is None:
        return None
    held = fields["held"]
    assert isinstance(held, list)
    return NodeRoom(
        capacity_bytes=int(str(fields["capacity_bytes"])),
        held=tuple(HeldBytes(digest=digest, size_bytes=size, until_s=end) for digest, size, end in held),
    )
