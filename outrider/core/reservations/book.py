"""The book of accepted reservations, and everything an admission decision is made against.

It holds the slot table of reservations, the link that carries their images, and the image
pools. `admission` reads it and makes a `ReservationPlan`; only `Book` changes it, by carrying out a
whole plan or by taking a reservation back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from outrider.core.images.pools import Life, Pools
from outrider.core.links.links import Links
from outrider.core.links.schedule import Insertion
from outrider.core.model import (
    Image,
    LeasePiece,
    Node,
    Placement,
    Reservation,
    Resources,
    Transfer,
    Workspace,
    spans_of,
)
from outrider.core.nodes.selection import Fit
from outrider.core.nodes.timeline import Lease, SiteTimeline

if TYPE_CHECKING:
    from outrider.core.leases.nodes import NodeOrder


class Shipping(Enum):
    """How an image gets to several nodes."""

    PER_NODE = "per-node"
    """One unicast for each node; the instances on one node share it."""
    RELAY = "relay"
    """One for all nodes of a reservation: a relay or multicast costs the link its size once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How transfers are planned at a site."""

    shipping: Shipping = Shipping.PER_NODE
    is_reusing: bool = True
    is_extending: bool = True
    """Whether an image that is in a pool may be kept past its expiry for a later reservation.
    Without it a life is extended only as in the thesis: when the reservation starts before
    the image expires, or while the image's transfer is still to come."""
    is_packing: bool = True
    """Whether, where Algorithm 1's nodes need more transfers than there is time or room for, those
    nodes are tried that need the fewest. Not in the thesis."""
    is_advancing: bool = True
    """Whether a transfer that waits, and is due later, is brought earlier where that makes a request for
    the same image possible. Not in the thesis."""
    split_overhead_s: Callable[[Resources], int] | None = None
    """What suspending, or resuming, one instance of a lease takes; None: leases are never split."""
    least_piece_s: int = 1
    """For how much work at the least a lease that is split has its nodes at a time."""
    node_order: NodeOrder | None = None
    """The site's own order of nodes; None: Algorithm 1's alone."""
    joins_any_image: bool = False
    """The fault of the thesis' own simulator: a reservation joins an earlier transfer to its
    node without comparing the image. Only to reproduce its tables; never anything else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationPlan:
    """Everything that accepting a reservation changes, worked out but not yet done."""

    workspace: Workspace
    start_s: int
    end_s: int
    fits: tuple[Fit, ...]
    transfers: tuple[Transfer, ...] = ()
    insertion: Insertion | None = None
    lives: tuple[tuple[int, int, int], ...] = ()
    """New lives: node, number of the transfer that brings the image, first instant on disk."""
    joined: tuple[tuple[int, Life], ...] = ()
    """Lives of others that the reservation extends, with their nodes."""
    revived: tuple[int, ...] = ()
    """Nodes on which the image lingers and is kept from now on."""
    pushed: tuple[tuple[int, int], ...] = ()
    """Transfers of others that are pushed ahead, with the new first instant on disk."""
    advanced: tuple[int, ...] = ()
    """Waiting transfers of others that bring the image by this start, too: the insertion has them with
    that deadline, in the place of the later one that they had."""
    pieces: tuple[LeasePiece, ...] = ()
    """The parts of a reservation that is split; none if it is not."""
    own: tuple[tuple[int, Image], ...] = ()
    """Of an image with parts, by node what the new life there consists of."""
    bases: tuple[tuple[int, Life], ...] = ()
    """Lives of other images that have parts of it, held from now on."""
    blobs: tuple[tuple[int, Image], ...] = ()
    """Parts that linger by themselves, held from now on."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """When it has its nodes."""
        return spans_of(self.pieces, self.start_s, self.end_s)

    @property
    def saved_bytes(self) -> int:
        """What need not be brought, since it is there or comes for others."""
        image = self.workspace.image
        if image is None:
            return 0
        shared = sum(image.size_bytes - own.size_bytes for _, own in self.own)
        return shared + (len(self.joined) + len(self.revived)) * image.size_bytes


@dataclass(slots=True)
class BookEntry:
    """An accepted reservation and what it holds."""

    reservation: Reservation
    fits: tuple[Fit, ...]
    need: int
    end_s: int
    lives: list[tuple[int, Life]]

    def copies(self) -> list[tuple[int, Life]]:
        """The lives of its own image, without those of others that have parts of it."""
        return [each for each in self.lives if self.is_own(each[1])]

    def is_own(self, life: Life) -> bool:
        """Whether it is of its own image."""
        image = self.reservation.workspace.image
        return image is not None and life.image.key == image.key

    def counted_on(self, life: Life) -> tuple[str, ...]:
        """Of its own image in parts, what the life's transfer does not bring, since it is there before."""
        image = self.reservation.workspace.image
        brought = {part.key for part in life.image.parts}
        return () if image is None else tuple(part.key for part in image.parts if part.key not in brought)

    def amounts(self) -> list[tuple[int, int]]:
        """What it takes of each node, as it is entered in a slot table."""
        return [(chosen.node, self.need * chosen.instances) for chosen in self.fits]

    def spans(self, from_s: int = 0) -> tuple[tuple[int, int], ...]:
        """When it takes that, from `from_s` on."""
        reservation = self.reservation
        last_s = reservation.pieces[-1].end_s if reservation.pieces else self.end_s
        found = spans_of(reservation.pieces, reservation.start_s, self.end_s, from_s)
        if last_s < self.end_s:
            # It was let run on behind its last piece.
            found += spans_of((), last_s, self.end_s, from_s)
        return found


Carried = dict[int, tuple[tuple[int, Life], ...]]
"""By a transfer's number the lives that it brings, with their nodes. A mark of it is a copy without depth."""


class Book:
    """Accepted reservations over the nodes of a site."""

    def __init__(
        self,
        nodes: Sequence[Node],
        terms: Terms,
        *,
        links: Links,
        pools: Pools | None = None,
    ) -> None:
        self.terms = terms
        self.timeline = SiteTimeline(nodes)
        self.links = links
        self.link = links.deadlines
        self.pools = pools or Pools(nodes)
        self.available = self.timeline.everyone
        self.beside = self.timeline
        """The slot table with best effort in it, too, if anybody keeps one."""
        self.entries: dict[str, BookEntry] = {}
        self.next_transfer = 1
        self._carried: Carried = {}

    def deadline_duration_s(self, image: Image) -> int:
        """How long the link is booked for one copy of the image."""
        return self.links.deadline_duration_s(image.size_bytes)

    def lives_of(self, transfer: int) -> Sequence[tuple[int, Life]]:
        """The lives that a transfer brings, with their nodes."""
        return self._carried.get(transfer, ())

    def nodes_waiting(self, name: str) -> frozenset[int]:
        """The nodes of a reservation to which a transfer that waits is to bring its image, or its rest."""
        lives = self.entries[name].lives
        return frozenset(node for node, life in lives if self._is_waiting(life))

    def brought_later(self, name: str) -> frozenset[int]:
        """Those of them that have nothing of it on which it counts: until the transfer begins their pools may
        have promised its room to others."""
        entry = self.entries[name]
        there = {node for node, life in entry.lives if not self._is_waiting(life) or entry.counted_on(life)}
        return self.nodes_waiting(name) - there

    def _is_waiting(self, life: Life) -> bool:
        return life.transfer is not None and self.link.waits(life.transfer)

    def new_transfer_number(self) -> int:
        self.next_transfer += 1
        return self.next_transfer - 1

    def mark_carried(self) -> Carried:
        """Which transfer brings which lives, for `back_to_carried`."""
        return dict(self._carried)

    def back_to_carried(self, carried: Carried) -> None:
        self._carried = carried

    def carry(self, transfer: int, lives: Iterable[tuple[int, Life]]) -> None:
        """Note that `transfer` brings these lives, too."""
        self._carried[transfer] = (*self._carried.get(transfer, ()), *lives)

    def leases(self) -> list[Lease]:
        """What all reservations take, as it is entered in a slot table."""
        return [
            (entry.amounts(), start_s, end_s)
            for entry in self.entries.values()
            for start_s, end_s in entry.spans()
        ]

    def commit(self, plan: ReservationPlan, now_s: int, *, is_renewal: bool = False) -> Reservation:
        """Carry out a plan made against the book as it is.

        In a renewal it takes the place of the reservation of that name, which has been taken back.
        """
        workspace = plan.workspace
        if workspace.name in self.entries and not is_renewal:
            raise ValueError(f"a reservation named {workspace.name} is in the book already")
        need = self.timeline.layout.pack(workspace.resources)
        amounts = [(chosen.node, need * chosen.instances) for chosen in plan.fits]
        for start_s, end_s in plan.spans:
            self.timeline.reserve_all(amounts, start_s, end_s)
        nodes = self.timeline.nodes
        reservation = Reservation(
            workspace=workspace,
            start_s=plan.start_s,
            end_s=plan.end_s,
            placements=tuple(
                Placement(node=nodes[chosen.node].name, instances=chosen.instances) for chosen in plan.fits
            ),
            transfers=tuple(transfer.number for transfer in plan.transfers),
            pieces=plan.pieces,
        )
        lives = self._stage(plan, now_s)
        self.entries[workspace.name] = BookEntry(reservation, plan.fits, need, plan.end_s, lives)
        return reservation

    def add_copies(self, plan: ReservationPlan, now_s: int) -> Reservation:
        """Carry out what a plan says of images, for a reservation that is in the book already."""
        entry = self.entries[plan.workspace.name]
        entry.lives = entry.lives + self._stage(plan, now_s)
        transfers = entry.reservation.transfers + tuple(transfer.number for transfer in plan.transfers)
        entry.reservation = replace(entry.reservation, transfers=transfers)
        return entry.reservation

    def _stage(self, plan: ReservationPlan, now_s: int) -> list[tuple[int, Life]]:
        for number in plan.advanced:
            self.link.remove(number)
            for _, life in self.lives_of(number):
                life.ready_s = min(life.ready_s, plan.start_s)
        if plan.insertion is not None:
            self.link.apply(plan.insertion)
        for transfer, start_s in plan.pushed:
            for node, life in self.lives_of(transfer):
                life.start_s = min(life.start_s, start_s)
                self.pools.changed.add(node)
        self.next_transfer += len(plan.transfers)
        return self._hold(plan, now_s)

    def _hold(self, plan: ReservationPlan, now_s: int) -> list[tuple[int, Life]]:
        image, name = plan.workspace.image, plan.workspace.name
        held: list[tuple[int, Life]] = [*plan.joined, *plan.bases]
        for node, blob in plan.blobs:
            life = self.pools.revive(node, blob.key, blob, now_s, plan.end_s)
            assert life is not None
            held.append((node, life))
        if image is not None:
            for node in plan.revived:
                life = self.pools.revive(node, image.key, image, now_s, plan.end_s)
                assert life is not None
                held.append((node, life))
            own = dict(plan.own)
            brought: dict[int, list[tuple[int, Life]]] = {}
            for node, transfer, start_s in plan.lives:
                life = Life(own.get(node, image), start_s, plan.start_s, plan.end_s, transfer=transfer)
                self.pools.add(node, life)
                brought.setdefault(transfer, []).append((node, life))
                held.append((node, life))
            for transfer, lives in brought.items():
                self.carry(transfer, lives)
        for node, life in held:
            self.pools.extend(node, life, name, plan.end_s)
        return held

    def cancel(self, name: str, now_s: int) -> Reservation:
        """Take a reservation back from now on: its slots, and its transfers if nobody else needs them."""
        entry = self.entries.pop(name)
        self.release_slots(entry, now_s)
        self.let_go(entry.lives, name, now_s)
        return entry.reservation

    def let_go(self, lives: Iterable[tuple[int, Life]], name: str, now_s: int) -> tuple[int, ...]:
        """A reservation does not need these copies any more; the transfers that nobody now needs
        and that are out of the link."""
        dropped: list[int] = []
        for node, life in lives:
            is_waiting = life.transfer is not None and self.link.waits(life.transfer)
            is_dropped = self.pools.leave(node, life, name, now_s, is_waiting=is_waiting)
            if life.transfer is not None and is_dropped and self.uncarry(life.transfer, life):
                dropped.append(life.transfer)
        return tuple(sorted(dropped))

    def uncarry(self, transfer: int, life: Life) -> bool:
        """`transfer` does not bring this life any more. True if it brings nothing else, had not
        begun, and has been taken out of the link."""
        others = tuple(other for other in self._carried.get(transfer, ()) if other[1] is not life)
        if others:
            self._carried[transfer] = others
            return False
        self._carried.pop(transfer, None)
        return self.link.remove(transfer)

    @contextmanager
    def without(self, name: str, now_s: int, *, keeps_copies: bool = False) -> Iterator[None]:
        """For the time being a reservation takes nothing, so that a plan can be made as if it were
        not there. Afterwards everything is as it was. `keeps_copies`: only its slots are free."""
        entry = self.entries[name]
        amounts, spans = entry.amounts(), entry.spans(now_s)
        touched = [self.timeline.touched_buckets(*span) for span in spans]
        link, pools, carried = self.link.mark(), self.pools.mark(entry.lives), dict(self._carried)
        for span in spans:
            self.timeline.release_all(amounts, *span)
        try:
            if not keeps_copies:
                self.let_go(entry.lives, name, now_s)
            yield
        finally:
            self._carried = carried
            self.pools.back_to(pools)
            self.link.back_to(link)
            for span, buckets in zip(spans, touched, strict=True):
                self.timeline.put_back(amounts, *span, buckets)

    def transfer_done(self, number: int, now_s: int) -> Sequence[tuple[int, Life]]:
        """A transfer ended: its images are ready. The lives it brought, with their nodes."""
        lives = self._carried.pop(number, ())
        for node, life in lives:
            life.transfer = None
            life.ready_s = min(life.ready_s, now_s)
            if not life.users:
                life.expires_s = now_s
            self.pools.arrived(number, node, life)
        return lives

    def expect_arrivals(self, now_s: int) -> None:
        """The links have changed: note anew when best-effort transfers will bring their images."""
        for number, lives in self._carried.items():
            if any(life.is_firm for _, life in lives):
                end_s = self.links.end_of(number, now_s)
                for _, life in lives:
                    if end_s is not None and life.is_firm and life.ready_s != end_s:
                        life.ready_s = end_s
                        self.pools.expect(number, life)

    def transfer_begun(self, number: int, now_s: int) -> None:
        """A transfer began: its bytes are on the disks from now on, in place of what lingers."""
        # What expires at this very instant no longer needs its space.
        self.pools.settle(now_s, includes_now=True)
        for node, life in self.lives_of(number):
            life.start_s = min(life.start_s, now_s)
            self.pools.changed.add(node)
            self.pools.make_room(node, now_s)

    def release_slots(self, entry: BookEntry, now_s: int) -> None:
        """Give back what a reservation takes of its nodes from now on; it ends now."""
        for span in entry.spans(now_s):
            self.timeline.release_all(entry.amounts(), *span)
        entry.reservation = replace(entry.reservation, end_s=max(entry.reservation.start_s, now_s))
