"""The three invariants looked at second by second, from the reservations and not from the tables."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.core.reservations.book import Book
from outrider.core.reservations.occupation import Piece


def check_invariants(
    book: Book, now_s: int, others: Iterable[Piece] = (), *, until_s: int = 120, is_link_in_time: bool = True
) -> None:
    """Slots, link and pools are as they must be whenever no call is in progress."""
    _check_slots(book, now_s, tuple(others), until_s)
    if is_link_in_time:
        _check_link(book, now_s)
    _check_pools(book, now_s, until_s)
    _check_who_holds_what(book)


def _check_slots(book: Book, now_s: int, others: tuple[Piece, ...], until_s: int) -> None:
    layout = book.timeline.layout
    for node, row in enumerate(book.timeline.rows):
        for at_s in range(now_s, until_s):
            taken = sum(
                entry.need * chosen.instances
                for entry in book.entries.values()
                for chosen in entry.fits
                if chosen.node == node and entry.reservation.start_s <= at_s < entry.end_s
            )
            taken += sum(
                piece.amount for piece in others if piece.node == node and piece.start_s <= at_s < piece.end_s
            )
            assert row.free_at(at_s) == row.capacity - taken, f"slots of node {node} at {at_s}"
            assert layout.fits(taken, row.capacity)


def _check_link(book: Book, now_s: int) -> None:
    """Started as late as it is allowed to, and as soon as possible: nobody misses a deadline."""
    free_s = max((now_s, *(end_s for _, end_s in book.link.under_way())))
    for transfer, latest_s in book.link.latest_starts():
        assert transfer.deadline_s is not None
        assert latest_s >= free_s, f"transfer {transfer.number} would have to begin at {latest_s}"
        free_s = latest_s + transfer.duration_s
        assert free_s <= transfer.deadline_s
    for transfer, start_s in book.link.planned(now_s):
        assert transfer.deadline_s is not None
        assert start_s + transfer.duration_s <= transfer.deadline_s


def _check_pools(book: Book, now_s: int, until_s: int) -> None:
    for node, pool in enumerate(book.pools.pools):
        lives = [life for lives in pool.lives.values() for life in lives]
        assert pool.promised_bytes == sum(life.image.size_bytes for life in lives)
        for at_s in range(now_s, until_s):
            held = sum(life.image.size_bytes for life in lives if life.start_s <= at_s < life.expires_s)
            assert pool.limit_bytes is None or held <= pool.limit_bytes, f"pool {node} at {at_s}"
        for key in {*pool.lives, *pool.lingering}:
            assert book.pools.mask_with(key) >> node & 1
    for key, mask in book.pools._where.items():
        for node in range(len(book.pools.pools)):
            pool = book.pools.pools[node]
            assert bool(mask >> node & 1) == (key in pool.lives or key in pool.lingering)


def _check_who_holds_what(book: Book) -> None:
    """A transfer has a purpose, and every copy that is to come has a transfer."""
    begun = {*book.link.aside, *(transfer.number for transfer, _ in book.link.under_way())}
    waiting = {transfer.number for transfer, _ in book.link.latest_starts()}
    if book.terms.is_reusing:
        for number in waiting:
            assert book.lives_of(number), f"transfer {number} waits for nobody"
    for node, pool in enumerate(book.pools.pools):
        for lives in pool.lives.values():
            for life in lives:
                if life.transfer is not None:
                    assert life.transfer in waiting | begun
                    assert (node, life) in book.lives_of(life.transfer)
    for name, entry in book.entries.items():
        for node, life in entry.lives:
            if life in book.pools.pools[node].lives.get(life.image.key, ()):
                assert life.users[name] == entry.end_s
                assert life.expires_s >= entry.end_s


def lacks(book: Book, name: str) -> list[int]:
    """The nodes on which a reservation has no copy that is there or promised by its start."""
    entry = book.entries[name]
    image = entry.reservation.workspace.image
    if image is None:
        return []
    has = {
        node
        for node, life in entry.lives
        if life in book.pools.pools[node].lives.get(image.key, ())
        and life.ready_s <= entry.reservation.start_s
    }
    return sorted({chosen.node for chosen in entry.fits} - has)
