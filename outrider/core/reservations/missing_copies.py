"""Images that turn out to be somewhere else than the book counts on, and what to do about it.

A node loses a copy, or never gets it; a copy turns up by itself; a node says what its pool
really holds. The book follows, and what a promise lacks is planned anew: in time if the link
allows, else as early as is possible without making others late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from outrider.core.images.pools import Life, Lingering
from outrider.core.model import Image, Transfer
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan, Shipping
from outrider.core.reservations.planning import CopySources, plan_copies
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.stock import Stock


@dataclass(frozen=True, kw_only=True, slots=True)
class LostCopy:
    """The reservations that needed a copy, by start and name, and the transfers that were to bring
    nothing else and are out of the link."""

    users: tuple[str, ...] = ()
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Restaged:
    """How a reservation gets what it lacks: new transfers, and by when all of it is there.

    `is_late`: that is after the start, or after now if the reservation has begun.
    """

    transfers: tuple[Transfer, ...] = ()
    deadline_s: int
    is_late: bool = False


def lose_copy(book: Book, node: str, key: str, now_s: int, *, uri: str | None = None) -> LostCopy:
    """A node does not have an image that the book counts on, and nothing brings it there any more; of one
    with `uri` only that address is of no use.

    A transfer that runs goes on: it brings the image to its other nodes, or nothing.
    """
    number = book.timeline.number_of[node]
    pools = book.pools
    if uri is None:
        pools.forget(number, key)
    gone = [life for life in pools.pools[number].lives.get(key, ()) if uri in (None, life.image.uri)]
    users = {user for life in gone for user in life.users}
    gone += _built_on(book, number, key, users)
    users.update(user for life in gone for user in life.users)
    dropped: list[int] = []
    for life in gone:
        transfer = life.transfer
        pools.lose(number, life)
        if transfer is not None and _brings_no_more(book, transfer, life):
            dropped.append(transfer)
    entries = [(user, entry) for user in users if (entry := book.entries.get(user)) is not None]
    for _, entry in entries:
        entry.lives = [each for each in entry.lives if not any(each[1] is life for life in gone)]
    names = sorted((entry.reservation.start_s, user) for user, entry in entries)
    return LostCopy(users=tuple(user for _, user in names), dropped=tuple(sorted(dropped)))


def _built_on(book: Book, number: int, key: str, users: Collection[str]) -> list[Life]:
    """Copies there that were to bring only the rest, beside that image, each once, however many users it has.
    One whose transfer runs goes on, and brings what its node lacks."""
    found: dict[int, Life] = {}
    for entry in (book.entries[user] for user in users if user in book.entries):
        for node, life in entry.lives:
            is_rest = node == number and bool(life.image.parts) and life.image.key != key
            if is_rest and life.transfer is not None and book.link.waits(life.transfer):
                found[id(life)] = life
    return list(found.values())


def copy_arrived(
    book: Book, node: str, key: str, now_s: int, *, there: Image | None = None
) -> tuple[int, ...]:
    """An image that transfers were to bring to a node is there by itself, and ready now. `there`: as what,
    if not everybody may count on it.

    The transfers that have nothing else to bring and are out of the link are returned; one that
    runs goes on. If the pool has promised its room to others until the transfer was to begin,
    nothing changes: the image may have to leave again before then.
    """
    number = book.timeline.number_of[node]
    pool = book.pools.pools[number]
    dropped: list[int] = []
    for life in tuple(pool.lives.get(key, ())):
        transfer = life.transfer
        if transfer is None or (there is not None and not life.image.may_be(there)):
            continue
        earlier = (now_s, life.start_s, life.image.size_bytes)
        if life.start_s > now_s and not pool.has_room((earlier,), now_s, key):
            continue
        book.pools.changed.add(number)
        life.transfer = None
        life.start_s, life.ready_s = min(life.start_s, now_s), min(life.ready_s, now_s)
        if not life.users:
            life.expires_s = now_s
        book.pools.arrived(transfer, number, life)
        if _brings_no_more(book, transfer, life):
            dropped.append(transfer)
        if key in pool.lingering:
            # It is what the life promises from now on.
            del pool.lingering[key]
    return tuple(sorted(dropped))


def _brings_no_more(book: Book, transfer: int, life: Life) -> bool:
    """A transfer does not bring this copy any more. True if it is therefore out of the link."""
    is_out = book.uncarry(transfer, life)
    others = book.lives_of(transfer)
    if others and life.is_firm:
        # Best effort goes on to expect the other copies.
        book.pools.expect(transfer, others[0][1])
    return is_out


def crowded_out(book: Book, number: int, here: Collection[str], now_s: int) -> tuple[str, ...]:
    """The reservations whose image has yet to come to a node, and finds no room there any more: others
    hold it, or the disk is full. By start and name. Of what is `here` the bytes are there already."""
    pool = book.pools.pools[number]
    most = pool.room_bytes
    if most is None or pool.is_roomy_beside(0):
        return ()
    users: set[str] = set()
    for key, lives in pool.lives.items():
        for life in lives if key not in here else ():
            from_s = max(life.start_s, now_s)
            is_to_come = life.transfer is not None and from_s < life.expires_s
            if is_to_come and pool.peak_within(from_s, life.expires_s, (), now_s) > most:
                users.update(life.users)
    entries = [(user, entry) for user in users if (entry := book.entries.get(user)) is not None]
    return tuple(user for _, user in sorted((entry.reservation.start_s, user) for user, entry in entries))


def awaited(book: Book, node: str) -> tuple[str, ...]:
    """The images that transfers are to bring to a node: candidates for `copy_arrived`."""
    lives_by_key = book.pools.pools[book.timeline.number_of[node]].lives
    return tuple(
        sorted(key for key, lives in lives_by_key.items() if any(life.transfer is not None for life in lives))
    )


def note_pool(
    book: Book, node: str, images: Iterable[Lingering], now_s: int, *, private: Collection[str] = ()
) -> tuple[str, ...]:
    """What a node says that its pool holds; the images that should be ready there but are not.

    Those are candidates for `lose_copy`. What no life of the book claims lingers from now on, unless it is
    `private`, and nothing else does: where nothing may linger (`keep_bytes` is 0), nothing is noted.
    """
    number = book.timeline.number_of[node]
    pool = book.pools.pools[number]
    found = {image.key: image for image in images}
    spare = found.keys() - pool.lives.keys() - set(private)
    for key in sorted(pool.lingering.keys() - spare):
        book.pools.forget(number, key)
    parts = {part.key for lives in pool.lives.values() for life in lives for part in life.image.parts}
    for key in sorted(spare - parts) if pool.keep_bytes else ():
        book.pools.keep(number, found[key])
        pool.uses[key] = found[key].uses
    missing = [
        key
        for key, lives in pool.lives.items()
        if key not in found
        and any(life.transfer is None and life.ready_s <= now_s and life.users for life in lives)
    ]
    return tuple(sorted(missing))


def part_with(book: Book, name: str, node: str, now_s: int) -> None:
    """A reservation cannot use the copies of its image that it counts on there, which others keep."""
    entry, number = book.entries[name], book.timeline.number_of[node]
    gone = [each for each in entry.copies() if each[0] == number]
    entry.lives = [each for each in entry.lives if each not in gone]
    book.let_go(gone, name, now_s)


def restage(book: Book, name: str, now_s: int, *, without: Collection[str] = ()) -> Restaged | Refusal:
    """Plan how a reservation gets its image on those of its nodes where it lacks it; and what others have on
    nodes that are in `without` is of no use to it.

    By its start, if the link allows. Otherwise at the earliest deadline that makes nobody late, or
    with what others bring to its nodes anyhow, if that is there as early. A copy that cannot
    be there before the reservation ends, or for which a pool has no room, is refused and
    changes nothing. The reservation may have begun.
    """
    entry = book.entries[name]
    image, start_s = entry.reservation.workspace.image, max(entry.reservation.start_s, now_s)
    if image is None or entry.end_s <= now_s:
        return Restaged(deadline_s=start_s)
    shunned = frozenset(book.timeline.number_of[node] for node in without)
    found, coming = _sources(book, entry, image, start_s, now_s, shunned)
    every = replace(found, missing=tuple(sorted((*found.missing, *(node for node, _ in coming)))))
    plan = _plan(book, entry, image, every, start_s, now_s)
    if isinstance(plan, Refusal) and (plan.cause is Cause.LINK or coming):
        plan = _plan_late(book, entry, image, every, start_s, now_s)
        if coming:
            awaiting = replace(found, joined=found.joined + coming)
            waiting = _plan_late(book, entry, image, awaiting, start_s, now_s)
            if isinstance(plan, Refusal) or (
                isinstance(waiting, ReservationPlan) and _ready_s(waiting, now_s) <= _ready_s(plan, now_s)
            ):
                plan = waiting
    if isinstance(plan, Refusal):
        return plan
    deadline_s = _ready_s(plan, now_s)
    if deadline_s >= entry.end_s:
        return _never_there(book, entry, image, every.missing)
    book.add_copies(plan, now_s)
    return Restaged(transfers=plan.transfers, deadline_s=deadline_s, is_late=deadline_s > start_s)


def _plan_late(
    book: Book, entry: BookEntry, image: Image, sources: CopySources, start_s: int, now_s: int
) -> ReservationPlan | Refusal:
    """What is missing by the earliest deadline that leaves everybody else theirs."""
    link = book.link
    is_one = book.terms.shipping is Shipping.RELAY and sources.missing
    needed_s = (1 if is_one else len(sources.missing)) * book.deadline_duration_s(image)
    plan = _plan(book, entry, image, sources, link.earliest_deadline(needed_s, now_s, start_s), now_s)
    if isinstance(plan, ReservationPlan) or plan.cause is Cause.POOL:
        return plan
    # A gap before a release, or before what is late already, is of no use: behind all that waits.
    waits_s = [transfer.deadline_s or 0 for transfer, _ in link.latest_starts()]
    last_s = max((now_s, start_s, *(end_s for _, end_s in link.under_way()), *waits_s))
    return _plan(book, entry, image, sources, last_s + needed_s, now_s)


def _ready_s(plan: ReservationPlan, now_s: int) -> int:
    """By when all is there that a plan brings or counts on."""
    instants = [life.ready_s for _, life in plan.joined]
    return max((now_s, *instants, plan.start_s if plan.transfers else now_s))


def _sources(
    book: Book, entry: BookEntry, image: Image, start_s: int, now_s: int, shunned: Collection[int]
) -> tuple[CopySources, tuple[tuple[int, Life], ...]]:
    """Where each node without the image can have it from; and copies that are brought there for others,
    but later."""
    stock = Stock(book, image, start_s, entry.end_s, now_s)
    has = {node for node, life in entry.lives if life in _lives(book, node, image)}
    joined: list[tuple[int, Life]] = []
    revived: list[int] = []
    coming: list[tuple[int, Life]] = []
    missing: list[int] = []
    for node in sorted({chosen.node for chosen in entry.fits} - has):
        lives = [life for life in _lives(book, node, image) if image.may_be(life.image, is_coming=True)]
        later = [life for life in lives if _comes_after(book, life, start_s)]
        if not book.terms.is_reusing or node in shunned:
            missing.append(node)
        elif stock.holds(node):
            if node in stock.lives:
                joined.append((node, stock.lives[node]))
            else:
                revived.append(node)
        elif later:
            coming.append((node, min(later, key=lambda life: (life.ready_s, life.number))))
        else:
            missing.append(node)
    found = CopySources(joined=tuple(joined), revived=tuple(revived), missing=tuple(missing))
    return found, tuple(coming)


def _lives(book: Book, node: int, image: Image) -> list[Life]:
    return book.pools.pools[node].lives.get(image.key, [])


def _comes_after(book: Book, life: Life, start_s: int) -> bool:
    """Whether a transfer whose end is promised brings it, too late for this start."""
    is_promised = life.transfer is not None and life.transfer not in book.link.aside and not life.is_firm
    return is_promised and life.ready_s > start_s


def _plan(
    book: Book, entry: BookEntry, image: Image, sources: CopySources, deadline_s: int, now_s: int
) -> ReservationPlan | Refusal:
    """Copies for some nodes by a deadline; the slots are there already."""
    workspace, end_s = entry.reservation.workspace, entry.end_s
    plan = plan_copies(book, workspace, image, sources, deadline_s, end_s, now_s)
    if isinstance(plan, Refusal) and plan.cause is Cause.POOL:
        return Refusal(cause=Cause.POOL, start_s=deadline_s, end_s=end_s, image=image, nodes=plan.nodes)
    return plan


def _never_there(book: Book, entry: BookEntry, image: Image, missing: tuple[int, ...]) -> Refusal:
    """The copies would arrive when the reservation is over: nobody would use them."""
    return Refusal(
        cause=Cause.LINK,
        start_s=entry.end_s,
        end_s=entry.end_s,
        image=image,
        nodes=tuple(book.timeline.nodes[node].name for node in missing),
        needed_s=len(missing) * book.deadline_duration_s(image),
    )
