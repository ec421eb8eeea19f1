"""Requests that wait for nodes: whether users have taken the room since these spoke, and that it is kept.

Such a node is told to keep the bytes before anybody is promised them, and says what others hold. What begins
soon may have to wait for a look at the batch system, too. Then the request is decided as if it had come only
then. What lasts too long is decided by what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.metadata.decision import PolicyRefusal
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.requests import Asked

BATCH_SYSTEM = ""
"""Stands for the batch system among the nodes."""
PATIENCE_S = 10
"""How long nodes have for their answers."""
MOST_ROUNDS = 3
"""So often a request is decided anew because other nodes were found for it, or others were faster."""


@dataclass(slots=True)
class Inquiry:
    """A request with what was known of it, and the nodes that it waits for."""

    asked: Asked
    program: PolicyRefusal | None = None
    is_judged: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    waits_for: set[str] = field(default_factory=set)
    is_late: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether it is decided now, whatever nodes may still have to say."""
        return self.is_late or self.rounds >= MOST_ROUNDS


class Inquiries:
    """All of them, by their tickets."""

    def __init__(self, node_orders: NodeOrders, agenda: Agenda) -> None:
        self._node_orders = node_orders
        self._agenda = agenda
        self._open: dict[int, Inquiry] = {}

    def begin(self, inquiry: Inquiry, nodes: dict[str, int], now_s: int) -> None:
        """Let these nodes keep so much for a request, and wait for them."""
        ticket = inquiry.asked.ticket
        inquiry.rounds += 1
        inquiry.nodes, inquiry.waits_for = nodes, set(nodes)
        self._open[ticket] = inquiry
        self._agenda.add(now_s + PATIENCE_S, Topic.ROOM, f"{ticket} {inquiry.rounds}")
        for name, size_bytes in inquiry.nodes.items():
            self._node_orders.keep_for(ticket, name, size_bytes, now_s)

    def heard(self, node: str, *, has_answered: bool) -> list[Inquiry]:
        """A node has answered or failed to: what can be decided now."""
        status = self._node_orders.statuses.get(node)
        found = []
        for inquiry in self._open.values():
            if node not in inquiry.waits_for:
                continue
            if not has_answered or status is None or status.kept_bytes >= inquiry.nodes[node]:
                inquiry.waits_for.discard(node)
                if not inquiry.waits_for:
                    found.append(inquiry)
        return [self._end(inquiry) for inquiry in found]

    def due(self, subject: str) -> Inquiry | None:
        """Its nodes have had their time; None if it was decided meanwhile, or goes on in another round."""
        ticket, rounds = (int(part) for part in subject.split())
        inquiry = self._open.get(ticket)
        if inquiry is None or inquiry.rounds != rounds:
            return None
        inquiry.is_late = True
        return self._end(inquiry)

    def give_up(self) -> list[Asked]:
        """Nothing can be decided any more: whoever waits is to be told."""
        found = list(self._open.values())
        self._open.clear()
        for inquiry in found:
            self.decided(inquiry)
        return [inquiry.asked for inquiry in found]

    def _end(self, inquiry: Inquiry) -> Inquiry:
        del self._open[inquiry.asked.ticket]
        return inquiry

    def decided(self, inquiry: Inquiry) -> None:
        """What nodes kept for it alone they need not keep any more."""
        self._node_orders.decided(inquiry.asked.ticket, inquiry.nodes)
