"""What of a book must outlive a restart, as values: reservations, transfers, pools.

A caller writes down what `changes` says a decision changed, and hands all of it to
`restore.restore` later. Nodes go by name. A *copy* is a life in one node's pool; its
number tells it from others and is the same for all who share it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from outrider.core.images.pools import Life, Lingering
from outrider.core.links.links import TransferStanding
from outrider.core.model import Image, KeptHold, Reservation, Transfer
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Book, ReservationPlan


class TransferStage(Enum):
    """How far a transfer is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptTransfer:
    """A transfer and where it stands.

    `on_disk_s` is the first instant at which its bytes may be on a disk, `ready_s` by when they
    are usable. `unwanted` are copies under way that nobody needs any more: node, number, and
    until when they take their space.
    """

    transfer: Transfer
    on_disk_s: int
    ready_s: int
    standing: TransferStanding | None = None
    unwanted: tuple[tuple[str, int, int], ...] = ()

    @property
    def stage(self) -> TransferStage:
        if self.standing is None:
            return TransferStage.DONE
        return TransferStage.RUNNING if self.standing.has_begun else TransferStage.WAITING


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptCopy:
    """A copy in the pool whose last user has just gone."""

    image: Image
    number: int
    ready_s: int
    expires_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptPool:
    """What a node's pool holds that nobody was promised, and how often images were used there.

    A book restored without it brings images anew that are there already, and no more than that.
    """

    node: str
    lingering: tuple[Lingering, ...] = ()
    leaving: tuple[KeptCopy, ...] = ()
    uses: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBook:
    """A whole book. `used_lately` names nodes on which something was taken and is over by now:
    between nodes that are equal otherwise that is a tie-break, nothing else."""

    reservations: tuple[Reservation, ...] = ()
    transfers: tuple[KeptTransfer, ...] = ()
    pools: tuple[KeptPool, ...] = ()
    unavailable: tuple[str, ...] = ()
    used_lately: tuple[str, ...] = ()
    next_transfer: int = 1


def keep(book: Book, now_s: int) -> KeptBook:
    """Everything at once."""
    return KeptBook(
        reservations=tuple(keep_reservation(book, name) for name in book.entries),
        transfers=keep_transfers(book, now_s),
        pools=tuple(pool for node in range(len(book.pools.pools)) if (pool := keep_pool(book, node))),
        unavailable=_names(book, book.timeline.everyone & ~book.available),
        used_lately=_names(book, book.timeline.used_lately(now_s)),
        next_transfer=book.next_transfer,
    )


def changes(book: Book, plan: ReservationPlan, now_s: int) -> tuple[Reservation, tuple[KeptTransfer, ...]]:
    """What carrying out a plan has changed: all that must be on disk before it is promised."""
    numbers = {transfer.number for transfer in plan.transfers}
    numbers.update(number for number, _ in plan.pushed)
    # Somebody may need again what nobody did.
    numbers.update(life.transfer for _, life in plan.joined if life.transfer is not None)
    return keep_reservation(book, plan.workspace.name), keep_transfers(book, now_s, numbers)


def keep_reservation(book: Book, name: str) -> Reservation:
    """A reservation with the copies that it needs."""
    entry = book.entries[name]
    return replace(entry.reservation, holds=_holds(book, entry.lives))


def keep_transfers(book: Book, now_s: int, only: Collection[int] | None = None) -> tuple[KeptTransfer, ...]:
    """The transfers that wait or run; of those in `only`, if given, what is missing has ended."""
    return tuple(
        _keep_transfer(book, standing)
        for standing in book.links.standings(now_s, only)
        if only is None or standing.transfer.number in only
    )


def keep_done(kept: KeptTransfer, at_s: int) -> KeptTransfer:
    """A transfer that has ended."""
    return replace(kept, standing=None, ready_s=min(kept.ready_s, at_s), unwanted=())


def transfers_under_way(book: Book, name: str) -> tuple[int, ...]:
    """The transfers that a reservation waits for: to be looked at anew when it is cancelled."""
    lives = book.entries[name].lives
    return tuple(sorted({life.transfer for _, life in lives if life.transfer is not None}))


def keep_pool(book: Book, node: int) -> KeptPool | None:
    """What a pool holds beyond its promises; None if it never held anything."""
    pool = book.pools.pools[node]
    if not pool.uses and not pool.lingering:
        return None
    leaving = tuple(
        KeptCopy(image=life.image, number=life.number, ready_s=life.ready_s, expires_s=life.expires_s)
        for lives in pool.lives.values()
        for life in lives
        if not life.users and life.transfer is None
    )
    return KeptPool(
        node=book.timeline.nodes[node].name,
        lingering=tuple(pool.lingering.values()),
        leaving=leaving,
        uses=tuple(sorted(pool.uses.items())),
    )


def _keep_transfer(book: Book, standing: TransferStanding) -> KeptTransfer:
    transfer = standing.transfer
    lives = book.lives_of(transfer.number)
    nodes = book.timeline.nodes
    # All its lives have the same times. Where images are not reused it has none.
    start_s, ready_s = (lives[0][1].start_s, lives[0][1].ready_s) if lives else (0, 0)
    return KeptTransfer(
        transfer=transfer,
        on_disk_s=start_s,
        ready_s=ready_s,
        standing=standing,
        unwanted=tuple(
            (nodes[node].name, life.number, life.expires_s) for node, life in lives if not life.users
        ),
    )


def _holds(book: Book, lives: Iterable[tuple[int, Life]]) -> tuple[KeptHold, ...]:
    nodes = book.timeline.nodes
    groups: dict[tuple[int | None, int, Image], list[tuple[str, int]]] = {}
    for node, life in lives:
        if life not in book.pools.pools[node].lives.get(life.image.key, ()):
            # Its user is over, and only has not been told so yet.
            continue
        since_s = life.ready_s if life.transfer is None else 0
        copies = groups.setdefault((life.transfer, since_s, life.image), [])
        copies.append((nodes[node].name, life.number))
    return tuple(
        KeptHold(image=image, copies=tuple(copies), transfer=transfer, since_s=since_s)
        for (transfer, since_s, image), copies in groups.items()
    )


def _names(book: Book, mask: int) -> tuple[str, ...]:
    return tuple(book.timeline.nodes[node].name for node in numbers(mask))
