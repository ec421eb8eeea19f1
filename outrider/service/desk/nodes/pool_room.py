"""Room in the nodes' pools: what is promised of each is kept there, and what others hold is not promised.

Both are told with every call to a node. How much it has to keep is derived from the book whenever that
has changed; what it says of others goes into the book, and is written down, lest a service that was
started anew promise what users hold before every node has spoken.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.core.images.encumbrance import NOTHING, Encumbrance, ForeignHold
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.missing_copies import crowded_out
from outrider.core.reservations.refusal import size
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log
from outrider.service.ports import NodeRoom

ROUND_S = 60
"""Ends are rounded up to so much: that of a job's copy is an estimate that moves with time."""


class PoolRooms:
    """All pools of the site."""

    def __init__(self, site: Site, node_orders: NodeOrders, troubles: Troubles, log: Log) -> None:
        self._site = site
        self._node_orders = node_orders
        self._troubles = troubles
        self._log = log
        self._last: dict[str, NodeRoom] = {}
        """What each node has said, as it was entered in the book."""
        self._put_off: dict[str, int] = {}
        """Nodes that have not spoken yet: what each is to keep is worked out when it is asked."""
        self._full: set[str] = set()
        """Nodes of which it was said that their disks are full."""

    def take_up(self, rooms: Mapping[str, NodeRoom]) -> None:
        """As it was when the nodes spoke last; then every node is to keep what the book promises."""
        site = self._site
        for name, room in rooms.items():
            self._encumber(name, encumbrance_of(room))
        site.book.pools.changed.update(range(len(site.book.pools.pools)))
        self.tell()

    def tell(self) -> None:
        """Let nodes keep what is promised of them, where that has changed."""
        site, pools = self._site, self._site.book.pools
        if not pools.changed:
            return
        changed, pools.changed = sorted(pools.changed), set()
        for node in changed:
            name = site.book.timeline.nodes[node].name
            if self._node_orders.has_spoken(name):
                self._promise(name, node)
            else:
                # All of them at once would make a start with thousands of nodes longer.
                self._put_off[name] = node

    def about_to_ask(self, name: str) -> None:
        """A node is spoken to next: what it is to keep is worked out, if that was put off."""
        node = self._put_off.pop(name, None)
        if node is not None:
            self._promise(name, node)

    def _promise(self, name: str, node: int) -> None:
        now_s, pool = self._site.now_s, self._site.book.pools.pools[node]
        # What users never get may be kept for longer than needed: that takes nothing from them.
        is_spared = pool.promised_bytes <= self._node_orders.spared_bytes(name)
        kept_bytes = pool.promised_bytes if is_spared else pool.peak((), now_s)
        self._node_orders.promise(name, kept_bytes, now_s)

    def heard(self, status: NodeStatus, used_bytes: int) -> NodeRoom | None:
        """A node has said what others hold there: as it counts from now on, if that is new to the book."""
        number = self._site.book.timeline.number_of.get(status.name)
        room = known_room(status, used_bytes, self._site.now_s)
        self.about_to_ask(status.name)
        if number is None or room is None:
            return None
        is_new = False
        if room != self._last.get(status.name):
            self._last[status.name] = room
            self._site.book.pools.changed.add(number)
            self._note_full(status.name, number, room)
            is_new = self._encumber(status.name, encumbrance_of(room))
        pool = self._site.book.pools.pools[number]
        if self._troubles.has_crowded or not pool.is_roomy_beside(0):
            self._look_for_crowded(status, number)
        return room if is_new else None

    def doubts(self, plan: ReservationPlan) -> dict[str, int]:
        """The nodes of a plan of which users may have taken the room since they spoke, and how much they
        would have to keep for it and all other promises at the worst instant.

        There is no doubt within what a node keeps already, nor within what it never leaves to users. Of a
        node that has never spoken nothing is sure.
        """
        site, image = self._site, plan.workspace.image
        if image is None:
            return {}
        begins = {node: start_s for node, _, start_s in plan.lives}
        begins.update(dict.fromkeys(plan.revived, site.now_s))
        found: dict[str, int] = {}
        for node, start_s in begins.items():
            pool, name = site.book.pools.pools[node], site.book.timeline.nodes[node].name
            status = self._node_orders.statuses.get(name)
            if status is not None and is_unknown(site.book, status):
                found[name] = pool.promised_bytes + image.size_bytes
            if status is None or status.room is None or pool.room_bytes is None:
                continue
            users_bytes = max(status.room.users_bytes, pool.foreign_bytes)
            sure_bytes = max(status.kept_bytes, pool.room_bytes - users_bytes)
            if pool.promised_bytes + image.size_bytes <= sure_bytes:
                continue
            peak_bytes = pool.peak(((start_s, plan.end_s, image.size_bytes),), site.now_s)
            if peak_bytes > sure_bytes:
                found[name] = peak_bytes
        return found

    def _encumber(self, name: str, encumbrance: Encumbrance) -> bool:
        number = self._site.book.timeline.number_of.get(name)
        if number is None:
            return False
        pool = self._site.book.pools.pools[number]
        if encumbrance.capacity_bytes is not None and encumbrance.capacity_bytes >= (pool.limit_bytes or 0):
            encumbrance = Encumbrance(holds=encumbrance.holds)
        if pool.encumbrance == encumbrance:
            return False
        pool.encumber(NOTHING if encumbrance == NOTHING else encumbrance)
        return True

    def _note_full(self, name: str, number: int, room: NodeRoom) -> None:
        """Say once that a disk has less room than its pool may take, and once that it has it again."""
        limit_bytes = self._site.book.pools.pools[number].limit_bytes
        is_full = limit_bytes is not None and room.capacity_bytes < limit_bytes
        if is_full and name not in self._full:
            self._log.warning(
                "node's disk is full",
                node=name,
                words=f"its pool of {size(limit_bytes or 0)} has room for {size(room.capacity_bytes)}",
            )
            self._full.add(name)
        elif not is_full and name in self._full:
            self._log.info("node's disk has room again", node=name)
            self._full.discard(name)

    def _look_for_crowded(self, status: NodeStatus, number: int) -> None:
        """Promises whose images cannot come to a node, since others hold its room or its disk is full."""
        site = self._site
        here = {each.digest for each in status.arriving if not each.has_failed} | status.images.keys()
        names = crowded_out(site.book, number, here, site.now_s)
        for name in names:
            live = site.live.get(name)
            if live is None:
                continue
            pool = site.book.pools.pools[number]
            self._troubles.note_crowded(
                name,
                status.name,
                f"image {live.document.uri} has no room in the pool of {status.name}, of whose "
                f"{size(pool.room_bytes or 0)} others hold {size(pool.foreign_bytes)}",
            )
        self._troubles.keep_crowded(status.name, names)


def is_unknown(book: Book, status: NodeStatus) -> bool:
    """Whether a node has never said how large its pool is, and the site's configuration does not either."""
    number = book.timeline.number_of.get(status.name)
    return status.heard_s is None and number is not None and book.pools.pools[number].limit_bytes is None


def known_room(status: NodeStatus, used_bytes: int, now_s: int) -> NodeRoom | None:
    """What a node has said, and no more than it has on its disk if that has refused an image lately."""
    room = status.room
    if status.full_until_s <= now_s:
        return room
    held = () if room is None else room.held
    capacity_bytes = used_bytes if room is None else min(room.capacity_bytes, used_bytes)
    return NodeRoom(capacity_bytes=capacity_bytes, held=held)


def encumbrance_of(room: NodeRoom) -> Encumbrance:
    """What a node has said, as the book counts it."""
    return Encumbrance(
        holds=tuple(
            ForeignHold(
                key=each.digest, size_bytes=each.size_bytes, until_s=-(-each.until_s // ROUND_S) * ROUND_S
            )
            for each in room.held
        ),
        capacity_bytes=room.capacity_bytes,
    )
