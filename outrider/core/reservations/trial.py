"""Several changes to a book that are kept together or not at all.

`Book.without` hides one reservation while a plan is made. A `Trial` really takes reservations back and
really enters plans, one after the other, because each plan has to see what the one before it takes; and
it can undo all of that, to the last step of every slot table and pool. It remembers the nodes that it
touches, so its cost is theirs and not the site's, but for flat copies of two tables of the book.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.core.images.pools import Life, Lingering
from outrider.core.model import Reservation
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan

LifeValues = tuple[int, int, int, dict[str, int], int | None]


@dataclass(frozen=True, slots=True)
class _PoolMark:
    """One node's pool as it was."""

    lives: dict[str, list[Life]]
    lingering: dict[str, Lingering]
    uses: dict[str, int]
    promised_bytes: int


class Trial:
    """Changes to a book from one instant on. Nothing else may change it until they are kept or undone."""

    def __init__(self, book: Book, now_s: int) -> None:
        self._book = book
        self._now_s = now_s
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        self._pools: dict[int, _PoolMark] = {}
        self._lives: dict[int, tuple[Life, LifeValues]] = {}
        self._index = book.timeline.mark_index()
        self._link = book.link.mark()
        self._entries = dict(book.entries)
        self._touched: dict[str, tuple[BookEntry, Reservation, list[tuple[int, Life]], int]] = {}
        self._carried = book.mark_carried()
        self._next_transfer = book.next_transfer
        self._images = book.pools.mark_images()

    def touch(self, name: str) -> Reservation:
        """Remember what a reservation has, because the caller is about to change it."""
        entry = self._book.entries[name]
        self._touched.setdefault(name, (entry, entry.reservation, entry.lives, entry.end_s))
        nodes = {chosen.node for chosen in entry.fits} | {node for node, _ in entry.lives}
        for _, life in entry.lives:
            if life.transfer is not None:
                nodes.update(node for node, _ in self._book.lives_of(life.transfer))
        self._save(nodes)
        for _, life in entry.lives:
            # One that has expired is in no pool any more.
            self._save_life(life)
        return entry.reservation

    def take_out(self, name: str) -> Reservation:
        """Take a reservation back from now on."""
        reservation = self.touch(name)
        self._book.cancel(name, self._now_s)
        return reservation

    def place(self, plan: ReservationPlan) -> Reservation:
        """Enter a plan that was made against the book as it is now."""
        nodes = {chosen.node for chosen in plan.fits} | {node for node, _ in plan.joined}
        nodes.update(node for number, _ in plan.pushed for node, _ in self._book.lives_of(number))
        self._save(nodes)
        return self._book.commit(plan, self._now_s)

    def undo(self) -> None:
        """Everything is as it was when the trial began."""
        book = self._book
        for node, (times, free) in self._rows.items():
            book.timeline.rows[node].times, book.timeline.rows[node].free = times, free
        book.timeline.back_to_index(self._index)
        book.link.back_to(self._link)
        for node, mark in self._pools.items():
            self._put_back(node, mark)
        for life, (start_s, ready_s, expires_s, users, number) in self._lives.values():
            life.start_s, life.ready_s, life.expires_s = start_s, ready_s, expires_s
            life.users, life.transfer = users, number
        book.pools.back_to_images(self._images)
        for entry, reservation, held, end_s in self._touched.values():
            entry.reservation, entry.lives, entry.end_s = reservation, held, end_s
        book.entries.clear()
        book.entries.update(self._entries)
        book.back_to_carried(self._carried)
        book.next_transfer = self._next_transfer

    def _put_back(self, node: int, mark: _PoolMark) -> None:
        pool = self._book.pools.pools[node]
        pool.lives, pool.lingering, pool.uses = mark.lives, mark.lingering, mark.uses
        pool.promised_bytes = mark.promised_bytes
        self._book.pools.changed.add(node)

    def _save(self, nodes: Iterable[int]) -> None:
        rows, pools = self._book.timeline.rows, self._book.pools.pools
        for node in nodes:
            if node in self._rows:
                continue
            self._rows[node] = list(rows[node].times), list(rows[node].free)
            pool = pools[node]
            self._pools[node] = _PoolMark(
                {key: list(lives) for key, lives in pool.lives.items()},
                dict(pool.lingering),
                dict(pool.uses),
                pool.promised_bytes,
            )
            for lives in pool.lives.values():
                for life in lives:
                    self._save_life(life)

    def _save_life(self, life: Life) -> None:
        values = (life.start_s, life.ready_s, life.expires_s, dict(life.users), life.transfer)
        self._lives.setdefault(id(life), (life, values))
