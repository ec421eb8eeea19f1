"""What others take of the nodes: jobs that run, reservations that somebody else has made.

They are there whether they fit or not. What is free of their slots is entered in the book, so
that no promise is made against it; what is not free is a collision with something promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outrider.core.model import NodeSlot, Resources
from outrider.core.reservations.book import Book

LONGEST_S = 10 * 365 * 86_400
"""What lasts longer, as a job may whose user says so, is taken to last so long: the longest that anything can
be reserved for. The cost of an entry is that of its hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupation:
    """Something that takes slots and is no reservation of the book."""

    name: str
    slots: tuple[NodeSlot, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """So much of a node, packed as in the slot table, for so long."""

    node: int
    amount: int
    start_s: int
    end_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupied:
    """What was entered for an occupation, and the reservations in the way of the rest of it, sorted
    by start and name."""

    name: str
    pieces: tuple[Piece, ...] = ()
    collides: tuple[str, ...] = ()


def occupy(book: Book, occupation: Occupation, now_s: int) -> Occupied:
    """Enter what is free of an occupation from now on; what it collides with is named.

    Nodes and resources that the site does not have are passed over. Where less is free than is
    taken, what is free is entered. The cost is that of the slots; only a collision looks at
    the reservations, once.
    """
    pieces: list[Piece] = []
    clashes: list[tuple[int, int, int]] = []
    batch: list[Piece] = []
    seen: set[int] = set()
    for slot in occupation.slots:
        node, start_s = book.timeline.number_of.get(slot.node), max(slot.start_s, now_s)
        end_s = min(slot.end_s, now_s + LONGEST_S)
        if node is None or start_s >= end_s:
            continue
        if node in seen:
            # What is free now depends on what was entered for it before.
            _enter(book, batch)
            batch, seen = [], set()
        seen.add(node)
        for piece, is_whole in _free(book, node, slot.resources, start_s, end_s):
            if not is_whole:
                clashes.append((node, piece.start_s, piece.end_s))
            if piece.amount:
                batch.append(piece)
                pieces.append(piece)
    _enter(book, batch)
    return Occupied(name=occupation.name, pieces=tuple(pieces), collides=_collisions(book, clashes))


def vacate(book: Book, occupied: Occupied, now_s: int) -> None:
    """Give back from now on exactly what was entered."""
    for (start_s, end_s), amounts in _together(occupied.pieces).items():
        start_s = max(start_s, now_s)
        if start_s < end_s:
            book.timeline.release_all(amounts, start_s, end_s)


def _enter(book: Book, pieces: Iterable[Piece]) -> None:
    for (start_s, end_s), amounts in _together(pieces).items():
        book.timeline.reserve_all(amounts, start_s, end_s)


def _together(pieces: Iterable[Piece]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Nodes and amounts by their time: the slot table's index is changed once for all of them."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        found.setdefault((piece.start_s, piece.end_s), []).append((piece.node, piece.amount))
    return found


def _free(book: Book, node: int, wanted: Resources, start_s: int, end_s: int) -> Iterator[tuple[Piece, bool]]:
    """The slot in pieces, each with as much of it as is free throughout, and whether that is all."""
    row, layout = book.timeline.rows[node], book.timeline.layout
    capacity = layout.unpack(row.capacity)
    amounts = {name: min(amount, capacity[name]) for name, amount in wanted.amounts if capacity[name]}
    need = layout.pack(Resources.from_mapping(amounts))
    if row.fits(need, start_s, end_s):
        yield Piece(node, need, start_s, end_s), True
        return
    for packed, from_s, until_s in row.steps(start_s, end_s):
        free = layout.unpack(packed)
        least = {name: min(amount, free[name]) for name, amount in amounts.items()}
        yield Piece(node, layout.pack(Resources.from_mapping(least)), from_s, until_s), least == amounts


def _collisions(book: Book, clashes: list[tuple[int, int, int]]) -> tuple[str, ...]:
    """The reservations that take anything where something could not be entered."""
    if not clashes:
        return ()
    by_node: dict[int, list[tuple[int, int]]] = {}
    for node, start_s, end_s in clashes:
        by_node.setdefault(node, []).append((start_s, end_s))
    found = [
        (entry.reservation.start_s, name)
        for name, entry in book.entries.items()
        if any(
            entry.reservation.start_s < end_s and start_s < entry.end_s
            for chosen in entry.fits
            for start_s, end_s in by_node.get(chosen.node, ())
        )
    ]
    return tuple(name for _, name in sorted(found))
