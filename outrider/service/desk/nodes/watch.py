"""Nodes of reservations that begin soon or have begun: asked at a short interval, since one that dies is
otherwise missed only minutes later, when there is no time left to move what was promised on it.

Two are asked: the node's pool, and, by each look at the batch system, that one's own daemon on the node.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import Site

BEFORE_S = 180
"""So long before its start a reservation's nodes are watched closely."""
EVERY_S = 5
AFTER_S = 60
"""So long after its start they still are."""
LATER_S = 30
"""How often they are asked from then on until its end."""
ASKED_PER_S = 50
MOST_ASKED = 64
"""So many nodes' daemons are asked for with one look; the others with the next."""
SILENT_S = 8
"""A node is gone if looks have found no daemon of the batch system for so long: one may find it being
started anew."""


class NodeWatch:
    """Which nodes are watched now, and which of them the batch system does not reach."""

    def __init__(self, site: Site, node_orders: NodeOrders, agenda: Agenda) -> None:
        self._site = site
        self._node_orders = node_orders
        self._agenda = agenda
        self._next_s: dict[str, int] = {}
        """By reservation, when its nodes are asked next."""
        self._close_until_s = 0
        self._asked_last = ""
        self._silent_since_s: dict[str, int] = {}
        self._gone: set[str] = set()

    def turn(self, name: str) -> None:
        """It may be time to ask a reservation's nodes."""
        now_s, live = self._site.now_s, self._site.live[name]
        reservation = live.reservation
        if self._next_s.get(name, 0) > now_s:
            return
        if begin_s(reservation.start_s) > now_s or reservation.end_s <= now_s:
            # It was moved to another time, and is on the agenda for that.
            self._next_s.pop(name, None)
            return
        is_close = now_s < reservation.start_s + AFTER_S
        wait_s = max(EVERY_S if is_close else LATER_S, len(live.nodes) // ASKED_PER_S)
        self._next_s[name] = now_s + wait_s
        if is_close:
            self._close_until_s = max(self._close_until_s, now_s + wait_s)
        for node in live.nodes:
            self._node_orders.watch(node, now_s, now_s + 2 * wait_s)
        self._agenda.add(now_s + wait_s, Topic.WATCH, name)

    @property
    def is_close(self) -> bool:
        """Whether any node is watched closely now, so that the batch system is to be looked at more often."""
        return self._close_until_s > self._site.now_s

    def nodes(self) -> tuple[str, ...]:
        """The nodes whose daemons are to be asked for with the next look, by turns."""
        found = sorted(set(self._watched()))
        after = [name for name in found if name > self._asked_last]
        chosen = [*after, *found[: len(found) - len(after)]][:MOST_ASKED]
        self._asked_last = chosen[-1] if chosen else ""
        return tuple(chosen)

    def looked(self, asked: tuple[str, ...], silent: tuple[str, ...]) -> None:
        """Of the nodes asked for, these did not answer the batch system."""
        now_s = self._site.now_s
        for name in asked:
            if name not in silent:
                self._silent_since_s.pop(name, None)
                self._gone.discard(name)
            elif now_s - self._silent_since_s.setdefault(name, now_s) >= SILENT_S:
                self._gone.add(name)

    def silent(self) -> list[str]:
        """The nodes of which the last look has found no daemon."""
        return list(self._silent_since_s)

    def is_silent(self, node: str) -> bool:
        """Whether the batch system's daemon on a node has not answered time and again."""
        return node in self._gone

    def _watched(self) -> Iterator[str]:
        for name in [name for name in self._next_s if name not in self._site.live]:
            del self._next_s[name]
        for name in self._next_s:
            yield from self._site.live[name].nodes
        # Also those that reservations were moved away from: they are gone until they answer.
        yield from self._silent_since_s


def begin_s(start_s: int) -> int:
    """From when on the nodes of a reservation that starts then are watched."""
    return start_s - BEFORE_S
