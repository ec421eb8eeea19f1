"""A book made anew after a restart, from what was kept of it.

It answers every later request as the old one would have. What cannot be put back, because a
node is gone or gives less than before, is named with the reason, and so is what has become
late: a promise is met or reported, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from outrider.core.images.pools import Life, Pools
from outrider.core.links.links import Links, TransferStanding
from outrider.core.model import KeptHold, Node, Reservation
from outrider.core.nodes.selection import Fit
from outrider.core.nodes.timeline import Lease, mask_of
from outrider.core.reservations.book import Book, BookEntry, Terms
from outrider.core.restart.snapshot import (
    KeptBook,
    KeptPool,
    KeptTransfer,
    TransferStage,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A reservation that is not in the restored book, and why."""

    reservation: Reservation
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """The book, and what a caller must attend to.

    `late` are reservations that wait for a transfer which can no longer be there in time;
    `overfull` are nodes whose pools are smaller than what was promised on them.
    """

    book: Book
    lost: tuple[Lost, ...] = ()
    late: tuple[str, ...] = ()
    overfull: tuple[str, ...] = ()


def restore(
    nodes: Sequence[Node],
    terms: Terms,
    kept: KeptBook,
    *,
    links: Links,
    pools: Pools | None = None,
    doubtful: frozenset[str] = frozenset(),
    now_s: int,
) -> Restored:
    """The book as it was. `links` and `pools` are new, made as for the first start.

    `doubtful`: reservations whose users know that they may lose their place.
    """
    book = Book(nodes, terms, links=links, pools=pools)
    # In the order in which they were planned, which is that of best effort on its link.
    transfers = {
        each.transfer.number: each for each in sorted(kept.transfers, key=lambda each: each.transfer.number)
    }
    lost: list[Lost] = []
    sound: list[Reservation] = []
    for each in kept.reservations:
        message = _fault(book, each, transfers)
        if message:
            lost.append(Lost(reservation=replace(each, holds=()), message=message))
        else:
            sound.append(each)
    sound = _put_slots(book, sound, doubtful, now_s, lost)
    book.timeline.use_lately(_mask(book, kept.used_lately), now_s)
    book.available &= ~_mask(book, kept.unavailable)
    book.next_transfer = max(kept.next_transfer, max(transfers, default=0) + 1)

    shelf = _Shelf(book, transfers)
    for each in sound:
        _enter(book, each, shelf)
    for transfer in transfers.values():
        shelf.take_unwanted(transfer)
    for each in kept.reservations:
        if each.workspace.name not in book.entries:
            shelf.take_lost(each)
    shelf.put({pool.node: pool for pool in kept.pools})
    # What could not be put back may be some other time, and its copies' numbers must be its own.
    book.pools.number_from(
        number for each in kept.reservations for hold in each.holds for _, number in hold.copies
    )
    standings = [standing for each in transfers.values() if (standing := _needed(book, each))]
    links.resume([_ending(each, links, now_s) for each in standings], now_s)
    return Restored(book=book, lost=tuple(lost), late=_late(book, now_s), overfull=_overfull(book, now_s))


class _Shelf:
    """The copies that are being put back, by their numbers."""

    def __init__(self, book: Book, transfers: dict[int, KeptTransfer]) -> None:
        self._book = book
        self._transfers = transfers
        self._number_of = book.timeline.number_of
        self._found: dict[int, tuple[int, Life]] = {}

    def hold(self, user: str, holds: Iterable[KeptHold], until_s: int) -> list[tuple[int, Life]]:
        """The copies that `user` needs until then."""
        held: list[tuple[int, Life]] = []
        found, number_of = self._found, self._number_of
        for hold in holds:
            make = _maker(hold, None if hold.transfer is None else self._transfers[hold.transfer])
            for name, number in hold.copies:
                copy = found.get(number)
                if copy is None:
                    copy = found[number] = number_of[name], make(number)
                life = copy[1]
                life.users[user] = until_s
                if until_s > life.expires_s:
                    life.expires_s = until_s
                held.append(copy)
        return held

    def take_unwanted(self, kept: KeptTransfer) -> None:
        """What is under way arrives, wanted or not, and takes its space."""
        for name, number, until_s in kept.unwanted:
            if kept.standing is not None and name in self._number_of and number not in self._found:
                hold = KeptHold(image=kept.transfer.image, copies=(), transfer=kept.transfer.number)
                life = _maker(hold, kept)(number)
                life.expires_s = until_s
                self._found[number] = (self._number_of[name], life)

    def take_lost(self, lost: Reservation) -> None:
        """The same for what was under way to a reservation that cannot be put back."""
        for hold in lost.holds:
            transfer = None if hold.transfer is None else self._transfers.get(hold.transfer)
            if transfer is not None and transfer.stage is TransferStage.RUNNING:
                unwanted = tuple((name, number, transfer.ready_s) for name, number in hold.copies)
                self.take_unwanted(replace(transfer, unwanted=unwanted))

    def put(self, kept: dict[str, KeptPool]) -> None:
        """Fill the pools, in the order in which they were filled first."""
        book, pools = self._book, self._book.pools
        for name in sorted(kept.keys() & self._number_of.keys()):
            for left in kept[name].leaving:
                life = Life(left.image, left.ready_s, left.ready_s, left.expires_s, number=left.number)
                self._found.setdefault(left.number, (self._number_of[name], life))
        arriving: dict[int, list[tuple[int, Life]]] = {}
        copies = [self._found[number] for number in sorted(self._found)]
        for copy in copies:
            transfer = copy[1].transfer
            if transfer is not None:
                arriving.setdefault(transfer, []).append(copy)
        pools.fill(copies)
        for number, lives in sorted(arriving.items()):
            book.carry(number, lives)
            if lives[0][1].is_firm:
                pools.expect(number, lives[0][1])
        for name in sorted(kept.keys() & self._number_of.keys()):
            node = self._number_of[name]
            pools.pools[node].uses.update(kept[name].uses)
            for entry in kept[name].lingering:
                pools.keep(node, entry)


def _maker(hold: KeptHold, kept: KeptTransfer | None) -> Callable[[int], Life]:
    """Makes a hold's copies, by their numbers, as they were but for their users; until these are known each
    expires as soon as it is there."""
    image = hold.image
    if kept is None:
        since_s = hold.since_s
        return lambda number: Life(image, since_s, since_s, since_s, number=number)
    from_s, ready_s = kept.on_disk_s, kept.ready_s
    is_firm = kept.transfer.deadline_s is None
    transfer = None if kept.standing is None else kept.transfer.number
    return lambda number: Life(image, from_s, ready_s, from_s, {}, transfer, is_firm, number)


def _needed(book: Book, kept: KeptTransfer) -> TransferStanding | None:
    """Where a transfer stands, unless it waits for a deadline of somebody who is not there any more."""
    has_deadline = kept.transfer.deadline_s is not None
    if kept.stage is TransferStage.WAITING and has_deadline and not book.lives_of(kept.transfer.number):
        return None
    return kept.standing


def _ending(standing: TransferStanding, links: Links, now_s: int) -> TransferStanding:
    """The same, but what runs does not take longer from now on than it takes in all: it may have been
    begun by a clock that was ahead, and would keep the link until that time comes."""
    if not standing.has_begun or standing.end_s is None or standing.transfer.deadline_s is None:
        return standing
    latest_s = now_s + links.transfer_duration_s(standing.transfer.image, standing.transfer.nodes)
    return replace(standing, end_s=min(standing.end_s, latest_s))


def _fault(book: Book, reservation: Reservation, transfers: dict[int, KeptTransfer]) -> str:
    """Why a reservation cannot be put back; nothing if it can, as far as it tells itself."""
    number_of = book.timeline.number_of
    gone = [name for name in reservation.nodes if name not in number_of]
    gone += [name for hold in reservation.holds for name, _ in hold.copies if name not in number_of]
    if gone:
        return f"the site has no node {gone[0]} any more"
    unknown = book.timeline.layout.unknown(reservation.workspace.resources)
    if unknown:
        return f"no node has the resource {unknown[0]} any more"
    needed = [hold.transfer for hold in reservation.holds if hold.transfer is not None]
    missing = [number for number in needed if number not in transfers]
    return f"nothing is known of transfer {missing[0]}, which it needs" if missing else ""


def _put_slots(
    book: Book,
    kept: list[Reservation],
    doubtful: frozenset[str],
    now_s: int,
    lost: list[Lost],
) -> list[Reservation]:
    """Enter slots in the table: all at once or, if they do not fit any more, as many as do.

    Who was promised first comes first; but what is doubtful comes last: while it had no place, others
    may have been promised the same, and nobody has told them that they may lose it.
    """
    wanted = [_leases(book, each) for each in kept]
    try:
        book.timeline.fill([lease for leases in wanted for lease in leases], now_s)
    except ValueError:
        pairs = sorted(zip(kept, wanted, strict=True), key=lambda pair: pair[0].workspace.name in doubtful)
        fitting = {
            each.workspace.name for each, leases in pairs if _fits_still(book, each, leases, now_s, lost)
        }
        kept = [each for each in kept if each.workspace.name in fitting]
    return kept


def _fits_still(
    book: Book, reservation: Reservation, leases: list[Lease], now_s: int, lost: list[Lost]
) -> bool:
    if _reserve_if_free(book, leases, now_s):
        return True
    message = "its nodes do not have what it was promised any more"
    lost.append(Lost(reservation=replace(reservation, holds=()), message=message))
    return False


def _reserve_if_free(book: Book, leases: list[Lease], now_s: int) -> bool:
    rows = book.timeline.rows
    if not all(
        rows[node].fits(need, start_s, end_s) for amounts, start_s, end_s in leases for node, need in amounts
    ):
        return False
    for lease in leases:
        book.timeline.reserve_all(*lease)
    return True


def _leases(book: Book, reservation: Reservation) -> list[Lease]:
    """What a reservation takes: one lease, or one for each of its pieces."""
    need, number_of = book.timeline.layout.pack(reservation.workspace.resources), book.timeline.number_of
    amounts = [(number_of[each.node], need * each.instances) for each in reservation.placements]
    return [(amounts, *span) for span in reservation.spans]


def _enter(book: Book, kept: Reservation, shelf: _Shelf) -> None:
    reservation = kept.without_holds()
    name, number_of = reservation.workspace.name, book.timeline.number_of
    book.entries[name] = BookEntry(
        reservation,
        tuple(Fit(number_of[each.node], each.instances) for each in reservation.placements),
        book.timeline.layout.pack(reservation.workspace.resources),
        reservation.end_s,
        shelf.hold(name, kept.holds, reservation.end_s),
    )


def _mask(book: Book, names: Iterable[str]) -> int:
    number_of = book.timeline.number_of
    return mask_of((number_of[name] for name in names if name in number_of), len(book.timeline.rows))


def _late(book: Book, now_s: int) -> tuple[str, ...]:
    """Who waits for a transfer that would have had to begin before now, or to have ended."""
    link = book.link
    overdue = set(link.overdue(now_s))
    overdue.update(
        number
        for number, aside in link.aside.items()
        if aside.deadline_s is not None and aside.deadline_s < now_s
    )
    late: set[str] = set()
    for standing in book.links.standings(now_s):
        number, is_firm = standing.transfer.number, standing.transfer.deadline_s is None
        for _, life in book.lives_of(number) if is_firm or number in overdue else ():
            for user in life.users:
                entry = book.entries.get(user)
                if entry is not None and (not is_firm or entry.reservation.start_s < life.ready_s):
                    late.add(user)
    return tuple(sorted(late))


def _overfull(book: Book, now_s: int) -> tuple[str, ...]:
    nodes = zip(book.timeline.nodes, book.pools.pools, strict=True)
    return tuple(
        node.name
        for node, pool in nodes
        if pool.limit_bytes is not None
        and pool.promised_bytes > pool.limit_bytes
        and pool.peak((), now_s) > pool.limit_bytes
    )
