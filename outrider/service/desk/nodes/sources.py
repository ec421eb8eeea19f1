"""From where an image is to come to a node, and how fast, when several need it there.

There is one transfer of an image to a node, whoever waits for it. A deadline's terms hold for all:
its rate, and its place in the chain. Best effort is held back at its other nodes meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from outrider.core.model import TransferClass
from outrider.service.desk.nodes.state import NOT_ALLOWED, Need, NodeStatus
from outrider.service.ports import KNOWN, READ, Relay, Source
from outrider.service.settings import Settings

UPSTREAM_S = 15
"""How long a node of a chain waits for the one before it to have been told."""
READING_SHARE = 10
"""The part of best effort's link, as a divisor, for what is read without a place in it."""
WAIT_S = 2
"""So soon it is looked again whether another node has read an image."""
MOST_UPSTREAM = 2
"""So many of the nodes before it is a node told of: whoever is nearer has what those further up have, too."""
T = TypeVar("T", int, str)


def before_in_chain(nodes: Sequence[T], node: T) -> tuple[T, ...]:
    """The nodes that pass an image on to this one, the nearest first."""
    place = nodes.index(node) if node in nodes else 0
    return tuple(reversed(nodes[:place]))


def rate_of(status: NodeStatus, need: Need, settings: Settings) -> int | None:
    """With what an image may come to a node: with what a deadline has, if one needs the same there. What is
    only read uses a link by itself, unless the deadline's is read at the same address."""
    planned = _planned(status, need.digest)
    if planned is not None and need.is_read and (planned.uri != need.uri or not planned.is_read):
        planned = None
    rate = need.rate_bytes_per_s if planned is None else planned.rate_bytes_per_s
    if rate is None and need.is_read and need.deadline_s is None:
        # A job that counts on a reservation's transfer has no time of a link for what it reads.
        return max(1, settings.best_effort_rate_bytes_per_s // READING_SHARE)
    return rate


def chain_of(status: NodeStatus, digest: str) -> tuple[str, ...] | None:
    """The nodes before it from which an image with a deadline comes; None if nothing with a deadline does."""
    planned = _planned(status, digest)
    return None if planned is None else planned.upstream


def sources(statuses: Mapping[str, NodeStatus], status: NodeStatus, need: Need) -> tuple[Source, ...]:
    """The nodes before it in the chain, the planned address, the image's own, and others that have it.

    The chain is a deadline's, if one needs the same there; who may take from whom is the need's own.
    """
    planned = _planned(status, need.digest) or need
    upstream = planned.upstream
    before = [name for name in upstream if _can_send(statuses, name) and _may_take(statuses[name], need)]
    others = _others(statuses, status, need) if need.failures else []
    near = [Relay(node=name, digest=need.digest) for name in before[:MOST_UPSTREAM]]
    far = [Relay(node=name, digest=need.digest) for name in others[:2] if name not in before[:MOST_UPSTREAM]]
    if need.failures % 2:
        # Something is wrong with the way that was tried: begin at the other end.
        return (need.uri, *far, *near)
    mirror = [planned.mirror] if planned.mirror else []
    return (*near, *mirror, need.uri, *far)


def may_be_told(statuses: Mapping[str, NodeStatus], need: Need, now_s: int) -> bool:
    """A node of a chain waits for the one before it, which would send it away otherwise."""
    if need.is_told or need.is_there or not need.upstream or now_s - need.since_s >= UPSTREAM_S:
        return True
    before = statuses.get(need.upstream[0])
    other = None if before is None else before.needs.get(need.owner)
    return before is None or other is None or other.is_told or other.is_there or other.failures > 0


def proof_of(need: Need) -> str:
    """How a node finds out whether what it has for others is this need's, too. The first of a chain reads it
    at once, in the time of its transfer."""
    return need.proof or ("" if need.upstream else READ)


class Provers:
    """Which node reads an image that it has for others, to show that a reservation or job gets it anyhow: one
    does so for all its nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}

    def told(self, node: str, need: Need, code: str, words: str) -> None:
        """What a node says to an order."""
        need.is_barred, need.is_read = code == NOT_ALLOWED, not code and words == READ
        if need.is_read:
            self._nodes[need.owner] = node

    def has_proof(
        self, statuses: Mapping[str, NodeStatus], status: NodeStatus, need: Need, now_s: int
    ) -> bool:
        """Whether the node can be told now how its right is shown, which its need notes; or else later."""
        # The node before it, to which the image comes, shows it too: to read it beside takes the link twice.
        name = self._nodes.get(need.owner, (*need.upstream, status.name)[0])
        prover = statuses[name].needs.get(need.owner) if _can_send(statuses, name) else None
        if prover is None or prover.digest != need.digest or prover.has_failed_often or prover.shows_nothing:
            name = status.name
        self._nodes[need.owner] = name
        if name == status.name:
            need.proof = READ
        elif prover is not None and prover.is_there:
            need.proof = KNOWN
        need.next_s = now_s if need.proof else now_s + WAIT_S
        return bool(need.proof)

    def forget(self, node: str, owner: str) -> None:
        if self._nodes.get(owner) == node:
            del self._nodes[owner]


def has_others(statuses: Mapping[str, NodeStatus], status: NodeStatus, need: Need) -> bool:
    """Whether another node has an image that it may give to this one."""
    return bool(_others(statuses, status, need))


def is_to_begin_anew(status: NodeStatus, need: Need) -> bool:
    """Whether a deadline's image is on its way there in another chain, whose other nodes have less of the
    link: one of best effort, or of a transfer that goes on beside the plan. It has to come by the deadline's
    own way, with the bytes that are there.

    Whether its node is known to have been told makes no difference: it may be told at this moment. What comes
    by that way already, since another needs it with a deadline, goes on.
    """
    if need.deadline_s is None:
        return False
    before = _planned(status, need.digest, without=need)
    if before is not None and before.upstream == need.upstream:
        return False
    if before is not None and not before.is_there and _rate(before) < _rate(need):
        return True
    return any(
        other.upstream != need.upstream
        for other in status.needs.values()
        if other.digest == need.digest
        and other.transfer is not None
        # A job may count on what comes with a deadline, too: that goes on.
        and TransferClass.of(other.transfer) is not TransferClass.DEADLINE
        and other.deadline_s is None
        and not other.is_there
    )


def is_best_effort_alone(status: NodeStatus, digest: str) -> bool:
    """Whether an image is on its way to a node, and for no deadline."""
    coming = [each for each in status.needs.values() if each.digest == digest and not each.is_there]
    classes = {TransferClass.of(each.transfer) for each in coming if each.transfer is not None}
    return bool(classes) and TransferClass.DEADLINE not in classes


def _others(statuses: Mapping[str, NodeStatus], status: NodeStatus, need: Need) -> list[str]:
    return [
        each.name
        for each in statuses.values()
        if need.digest in each.images and each.name != status.name and _may_take(each, need)
    ]


def _planned(status: NodeStatus, digest: str, *, without: Need | None = None) -> Need | None:
    """The deadline by whose plan an image comes: the one that has the most of the link, since one that was
    late has little, and else the first."""
    found = (
        each
        for each in status.needs.values()
        if each.digest == digest and each.deadline_s is not None and each.transfer is not None
    )
    return max((each for each in found if each is not without), key=_rate, default=None)


def _rate(need: Need) -> int:
    return need.rate_bytes_per_s or 0


def _may_take(source: NodeStatus, need: Need) -> bool:
    """Whether a reservation has a right to a node's copy. To know its digest gives none: a private
    one has to be there for this very reservation."""
    image, own = source.images.get(need.digest), source.needs.get(need.owner)
    if own is not None and own.is_barred:
        return False
    if image is None or image.is_public:
        return True
    # What was there already was pinned without anybody asking whose it is.
    return own is not None and own.is_there and own.transfer is not None


def _can_send(statuses: Mapping[str, NodeStatus], name: str) -> bool:
    status = statuses.get(name)
    return status is not None and status.silent_since_s is None


def patience_s(need: Need, now_s: int, most_s: int) -> int:
    """How long to wait before asking again how far an image is: not beyond its arrival at the rate of
    late, nor beyond its deadline. What was there in time is to be known in time."""
    if need.rate > 0:
        most_s = min(most_s, -(-(need.size_bytes - need.arrived_bytes) // need.rate))
    if need.deadline_s is not None and now_s < need.deadline_s:
        most_s = min(most_s, need.deadline_s - 1 - now_s)
    return max(1, most_s)
