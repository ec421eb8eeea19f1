"""Books and requests for the tests of admission: small ones by hand, larger ones at random."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random

from outrider.core.images.encumbrance import Encumbrance, ForeignHold
from outrider.core.images.pools import Life
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.admission import admit
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from tests.unit.core.sites import Site

A = Image(uri="a", size_bytes=10)
B = Image(uri="b", size_bytes=10)
C = Image(uri="c", size_bytes=18)
ONE = Resources.of(cpus=1)
HORIZON_S = 70


def nodes(count: int, cpus: int = 2, pool_bytes: int | None = None) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"n{number}", capacity=Resources.of(cpus=cpus), pool_bytes=pool_bytes)
        for number in range(count)
    )


def wanted(
    name: str, start_s: int, duration_s: int, image: Image | None = None, instances: int = 1, **more: int
) -> Workspace:
    return Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=more.get("cpus", 1)),
        duration_s=duration_s,
        image=image,
        start_s=start_s,
        finish_by_s=more.get("finish_by_s"),
    )


def accept(book: Book, workspace: Workspace, now_s: int) -> ReservationPlan:
    answer = admit(book, workspace, now_s)
    assert isinstance(answer, ReservationPlan), answer
    return answer


def begin_next(book: Book, now_s: int) -> int:
    following = book.link.next_start(now_s)
    assert following is not None
    assert following[0] == now_s
    number = book.link.begin(following[1], now_s).number
    book.transfer_begun(number, now_s)
    return number


def end_running(book: Book, now_s: int) -> None:
    first, _ = book.link.under_way()[0]
    book.transfer_done(book.link.end(first.number, now_s).number, now_s)


def free_s(book: Book, now_s: int) -> int:
    """From when on nothing runs by the plan."""
    return max((now_s, *(end_s for _, end_s in book.link.under_way())))


def pass_time(book: Book, now_s: int, until_s: int) -> None:
    """Let transfers begin and end as the link says."""
    while True:
        for _, end_s in book.link.under_way():
            if end_s > until_s:
                return
            now_s = end_s
            end_running(book, now_s)
        following = book.link.next_start(now_s)
        if following is None or following[0] > until_s:
            return
        now_s = following[0]
        begin_next(book, now_s)


def life_values(life: Life) -> object:
    users = sorted(life.users.items())
    return life.image, life.start_s, life.ready_s, life.expires_s, users, life.transfer, life.is_firm


def held(lives: Sequence[tuple[int, Life]]) -> object:
    return [(node, life_values(life)) for node, life in lives]


def snapshot(book: Book) -> object:
    """Everything in the book, as values."""
    return (
        [(list(row.times), list(row.free)) for row in book.timeline.rows],
        dict(book.timeline._touched),
        (dict(book.timeline._begins), dict(book.timeline._ends)),
        list(book.timeline._instants),
        book.link.latest_starts(),
        book.link.mark(),
        book.link.under_way(),
        [
            (
                [(key, [life_values(life) for life in lives]) for key, lives in pool.lives.items()],
                dict(pool.lingering),
                dict(pool.uses),
                pool.limit_bytes,
            )
            for pool in book.pools.pools
        ],
        deepcopy(book.pools._where),
        list(book.pools.stays),
        [
            (entry.reservation, entry.fits, entry.need, entry.end_s, held(entry.lives))
            for entry in book.entries.values()
        ],
        [(number, held(lives)) for number, lives in book._carried.items()],
        (book.next_transfer, book.available),
    )


def promises(book: Book, now_s: int) -> object:
    """What a later request can notice: room in slots, on the link and in pools, and images."""
    rows = [
        [(at_s, free) for at_s, free in zip(row.times, row.free, strict=True) if at_s > now_s]
        for row in book.timeline.rows
    ]
    lives = [
        sorted(
            (key, life.ready_s, life.expires_s, sorted(life.users))
            for key in pool.lives
            for life in pool.lives[key]
        )
        for pool in book.pools.pools
    ]
    at_now = [row.free_at(now_s) for row in book.timeline.rows]
    carried = {number: len(book.lives_of(number)) for number in book._carried}
    return rows, at_now, book.link.latest_starts(), lives, carried, sorted(book.entries), book.pools._where


def random_book(chance: Random, *, has_limits: bool) -> tuple[Book, int]:
    """A book in the middle of its life."""
    pool_bytes = chance.choice([20, 30]) if has_limits else None
    site = Site(
        nodes=tuple(
            Node(name=f"n{number}", capacity=Resources.of(cpus=chance.randint(1, 3)), pool_bytes=pool_bytes)
            for number in range(chance.randint(1, 3))
        ),
        shipping=chance.choice(list(Shipping)),
        is_reusing=chance.random() < 0.8,
        is_extending=chance.random() < 0.6,
        keep_bytes=chance.choice([0, 30]) if has_limits else 0,
        reserve_s=chance.choice([None, 0, 4]),
    )
    book, now_s = site.book(), 0
    for number in range(chance.randint(0, 9)):
        until_s = now_s + chance.choice([0, 0, 1, 3])
        pass_time(book, now_s, until_s)
        now_s = until_s
        book.pools.settle(now_s)
        admit(book, random_workspace(chance, f"r{number}", now_s), now_s, tells_earliest=False)
        if book.entries and chance.random() < 0.2:
            book.cancel(chance.choice(sorted(book.entries)), now_s)
    return book, now_s


def random_workspace(chance: Random, name: str, now_s: int) -> Workspace:
    start_s, duration_s = now_s + chance.choice([0, 1, 3, 6, 10, 20]), chance.randint(1, 9)
    return Workspace(
        name=name,
        instances=chance.randint(1, 4),
        resources=Resources.of(cpus=chance.choice([1, 1, 2])),
        duration_s=duration_s,
        image=chance.choice([None, A, A, B, C]),
        start_s=start_s,
        finish_by_s=start_s + duration_s + chance.randint(0, 25) if chance.random() < 0.3 else None,
    )


def tight_book(chance: Random) -> tuple[Book, Workspace, int]:
    """Pools with room for one or two of four images, some of them partly held by others; and a request."""
    site = Site(
        nodes=tuple(
            Node(
                name=f"n{number}",
                capacity=Resources.of(cpus=chance.randint(1, 2)),
                pool_bytes=chance.choice([12, 20, 25, 40]),
            )
            for number in range(chance.randint(2, 4))
        ),
        shipping=chance.choice(list(Shipping)),
        is_reusing=chance.random() < 0.9,
        is_extending=chance.random() < 0.7,
        keep_bytes=chance.choice([0, 20]),
        reserve_s=chance.choice([None, 0, 0, 2, 5]),
    )
    book, now_s = site.book(), 0
    images = [Image(uri=f"i{number}", size_bytes=chance.randint(5, 24)) for number in range(4)]

    def request(name: str) -> Workspace:
        return wanted(name, now_s + chance.randint(0, 25), chance.randint(1, 15), chance.choice(images),
                      instances=chance.randint(1, 4))  # fmt: skip

    if chance.random() < 0.3:
        for pool in book.pools.pools:
            held = ForeignHold(key="", size_bytes=chance.randint(1, 9), until_s=chance.randint(1, 40))
            pool.encumber(Encumbrance(holds=(held,)))
    for number in range(chance.randint(1, 12)):
        until_s = now_s + chance.choice([0, 0, 1, 3])
        pass_time(book, now_s, until_s)
        now_s = until_s
        book.pools.settle(now_s)
        admit(book, request(f"r{number}"), now_s, tells_earliest=False)
        if book.entries and chance.random() < 0.15:
            book.cancel(chance.choice(sorted(book.entries)), now_s)
    return book, request("w"), now_s
