"""Where a best-effort job's image goes, and so where the job may start: a pure decision.

When a job starts is the batch system's business, with its priorities and limits. It is led to the
nodes on which it is expected to start first: where the image is by the time that they are free. A
node that has the image costs nothing; one that others' transfers will bring it to, no more than
waiting for them; all others share the best-effort lane. Among nodes that are as good, those that
have the image come first, then those that need no bytes of their own, then the first by number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappush, heappushpop

from outrider.core.images.reuse import Life
from outrider.core.links.lane import Lane, Slots
from outrider.core.links.turns import NOBODY
from outrider.core.model import Image
from outrider.core.nodes.busy import Busy
from outrider.core.nodes.timeline import FOREVER, numbers
from outrider.core.reservations.book import Book
from outrider.core.reservations.refusal import size

MOST_EXAMINED = 64
"""Nodes without the image that are examined beyond those that are wanted: enough, as long as nodes
that are free at once exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A job that waits: its image, on how many nodes it runs, and on how many the image may be put.

    `eligible` is a mask of the nodes on which it may run, `need` what it takes of each, packed as
    in the slot table.
    """

    name: str
    image: Image
    nodes_wanted: int
    copies: int
    spares: int
    """On so many nodes that have the image already it may be kept, for the job to start on any."""
    need: int
    limit_s: int
    grace_s: int
    eligible: int
    user: int = NOBODY
    """Who takes turns on the lane with others."""
    copying: int = 0
    """A mask of the nodes on which the job takes the image's bytes once more, as a copy of its own."""

    @property
    def copy(self) -> Image:
        """The job's own copy, as it is counted in a pool."""
        return Image(uri=f"copy:{self.name}", size_bytes=self.image.size_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a job comes to its image: nodes in the order of their merit, and when all that is there.

    `lives` are stays that others brought or bring and that are kept for this job, too; `revived`
    nodes where the image lingers; `missing` those to which it is to be brought. `until_s` is until
    when all of them have to keep it.
    """

    nodes: tuple[int, ...]
    lives: tuple[tuple[int, Life], ...] = ()
    revived: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    ready_s: int
    start_s: int
    until_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NoWay:
    """Why not now."""

    words: str


@dataclass(frozen=True, slots=True, order=True)
class _Option:
    """A node: when the job could start there, whether bytes are needed, which node it is."""

    start_s: int
    cost: int
    node: int
    there_s: int = field(compare=False)
    life: Life | None = field(compare=False, default=None)


_HERE, _COMING, _MISSING = range(3)


def lead(
    book: Book,
    lane: Lane,
    slots: Slots,
    busy: Busy,
    wish: Wish,
    now_s: int,
    *,
    carried: frozenset[int] = frozenset(),
) -> Way | NoWay:
    """Choose nodes for a job. Nothing is changed. `carried` are transfers with deadlines that run:
    those that only wait may still be withdrawn, so nobody counts on them."""
    eligible = wish.eligible & book.available
    if eligible.bit_count() < wish.nodes_wanted:
        return NoWay(
            words=f"it wants {wish.nodes_wanted} nodes, and {eligible.bit_count()} of those that it may "
            "run on are up"
        )
    ends = lane.ends(slots, now_s)
    while True:
        near, is_cut = _near(book, busy, wish, eligible, ends, carried, now_s)
        # One that has the image and is free later than many others that have it is not brought another.
        others = eligible & ~(book.pools.mask_with(wish.image.key) if is_cut else 0)
        known = {option.node for option in near}
        enough = wish.copies + MOST_EXAMINED
        far = _far(book, busy, wish, others, known, now_s, enough)
        chosen = _choose(book, lane, slots, busy, wish, near, far, now_s)
        if len(chosen) < wish.nodes_wanted and len(far) >= enough:
            # Of so many none is free any more when the image is there.
            far = _far(book, busy, wish, others, known, now_s, len(book.timeline.nodes) + 1)
            chosen = _choose(book, lane, slots, busy, wish, near, far, now_s)
        if len(chosen) < wish.nodes_wanted:
            return _never(book, wish) or NoWay(
                words=f"{len(chosen)} of the nodes that it may run on have room in their pools for its "
                f"image and will be free for it, and it wants {wish.nodes_wanted}"
            )
        way = _way(wish, chosen)
        full = _full(book, wish, way, now_s)
        if not full:
            return way
        # What fits until the job would be over there does not fit until it is over on all its nodes.
        eligible &= ~full


def _never(book: Book, wish: Wish) -> NoWay | None:
    """If the image is larger than the pools of too many nodes, however empty they are."""
    size_bytes, pools = wish.image.size_bytes, book.pools.pools
    times = {node: 1 + (wish.copying >> node & 1) for node in numbers(wish.eligible)}
    limits = {node: pools[node].limit_bytes for node in times}
    large = sum(limit is None or times[node] * size_bytes <= limit for node, limit in limits.items())
    if large >= wish.nodes_wanted:
        return None
    largest = max((limit for limit in limits.values() if limit is not None), default=0)
    twice = ", needed twice where the job gets a copy," if 2 in times.values() else ""
    return NoWay(
        words=f"it has {size(size_bytes)}{twice} and never fits: the pools of {large} of the nodes that it "
        f"may run on are as large, the job wants {wish.nodes_wanted}, and the largest pool has "
        f"{size(largest)}; cancel the job, or ask an administrator for larger pools"
    )


def _way(wish: Wish, chosen: list[_Option]) -> Way:
    wanted = chosen[: wish.nodes_wanted]
    return Way(
        nodes=tuple(each.node for each in chosen),
        lives=tuple((each.node, each.life) for each in chosen if each.life is not None),
        revived=tuple(each.node for each in chosen if each.life is None and each.cost == _HERE),
        missing=tuple(each.node for each in chosen if each.cost == _MISSING),
        ready_s=max(each.there_s for each in wanted),
        start_s=max(each.start_s for each in wanted),
        until_s=max(_until_s(wish, each.start_s) for each in chosen),
    )


def _full(book: Book, wish: Wish, way: Way, now_s: int) -> int:
    """A mask of the nodes whose pools have no room until the way's end."""
    size_bytes, until_s = wish.image.size_bytes, way.until_s
    mask = 0
    for node, life in way.lives:
        if not _can_have(book, wish, node, life, until_s, now_s):
            mask |= 1 << node
    for node in (*way.revived, *way.missing):
        if not _has_room(book, wish, node, ((now_s, until_s, size_bytes),), until_s, now_s):
            mask |= 1 << node
    return mask


def hold(book: Book, lane: Lane, wish: Wish, way: Way, now_s: int) -> dict[int, Life]:
    """Keep or bring the copies that a way uses; nothing may have changed since it was found."""
    pools = book.pools
    held = dict(way.lives)
    for node in way.revived:
        life = pools.revive(node, wish.image.key, wish.image, now_s, way.until_s)
        assert life is not None
        held[node] = life
    for node, cargo in lane.add(wish.image, way.missing):
        life = Life(wish.image, now_s, way.ready_s, way.until_s, transfer=cargo.number, is_firm=True)
        pools.add(node, life)
        held[node] = life
    for node, life in held.items():
        pools.extend(node, life, wish.name, way.until_s)
        if wish.copying >> node & 1 and not pools.pools[node].lives.get(wish.copy.key):
            pools.add(node, Life(wish.copy, now_s, now_s, way.until_s))
    return held


def let_go(book: Book, lane: Lane, name: str, node: int, life: Life, now_s: int) -> bool:
    """A job does not need a copy any more. True if nobody does, and it is not brought any further."""
    pools = book.pools
    drop_copy(book, name, node)
    if life not in pools.pools[node].lives.get(life.image.key, ()):
        return False
    cargo = lane.find(life.transfer)
    if cargo is None or life.users.keys() - {name}:
        pools.leave(node, life, name, now_s)
        return False
    lane.leave(cargo, node)
    pools.lose(node, life)
    return True


def drop_copy(book: Book, name: str, node: int) -> None:
    """A job has no need of room for a copy of its own any more, or has it as an instance."""
    for life in tuple(book.pools.pools[node].lives.get(f"copy:{name}", ())):
        book.pools.lose(node, life)


def keep_copy(book: Book, name: str, node: int, until_s: int) -> None:
    """Let the room for a job's own copy be kept until then."""
    for life in tuple(book.pools.pools[node].lives.get(f"copy:{name}", ())):
        book.pools.lose(node, life)
        book.pools.add(node, Life(life.image, life.start_s, life.ready_s, max(life.expires_s, until_s)))


def can_keep(book: Book, node: int, life: Life, until_s: int, now_s: int) -> bool:
    """Whether a copy can stay until then without taking room that others were promised."""
    longer = (max(life.expires_s, now_s), until_s, life.image.size_bytes)
    return until_s <= life.expires_s or book.pools.pools[node].has_room((longer,), now_s, life.image.key)


def _can_have(book: Book, wish: Wish, node: int, life: Life, until_s: int, now_s: int) -> bool:
    """Whether a copy that is there, or comes without us, can stay until then, with one for the job alone."""
    longer = (
        ((max(life.expires_s, now_s), until_s, life.image.size_bytes),) if until_s > life.expires_s else ()
    )
    return _has_room(book, wish, node, longer, until_s, now_s)


def _has_room(
    book: Book, wish: Wish, node: int, extra: tuple[tuple[int, int, int], ...], until_s: int, now_s: int
) -> bool:
    """Whether a pool has room for `extra` lives of the image, and for a copy that is the job's own."""
    pool = book.pools.pools[node]
    if wish.copying >> node & 1 and not pool.lives.get(wish.copy.key):
        extra = (*extra, (now_s, until_s, wish.image.size_bytes))
    return not extra or pool.has_room(extra, now_s, wish.image.key)


def _until_s(wish: Wish, start_s: int) -> int:
    return start_s + wish.limit_s + wish.grace_s


def _near(
    book: Book,
    busy: Busy,
    wish: Wish,
    eligible: int,
    ends: dict[int, int],
    carried: frozenset[int],
    now_s: int,
) -> tuple[list[_Option], bool]:
    """Nodes that have the image or get it without us; not all, where a popular one is on thousands: then
    it is true that some were left out."""
    search = _Earliest(max(wish.copies, wish.spares) + MOST_EXAMINED)
    found: list[_Option] = []
    for bound_s, node in busy.openings(wish.need, now_s, eligible & book.pools.mask_with(wish.image.key)):
        if search.is_over(bound_s, now_s):
            return sorted(found), True
        option = _with_copy(book, busy, wish, node, ends, carried, now_s)
        if option is not None:
            found.append(option)
            search.add(option.start_s, is_now=option.cost == _HERE and option.start_s <= now_s)
    return sorted(found), False


class _Earliest:
    """When a search for `enough` nodes, in the order of their bounds, has found the earliest ones."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._latest: list[int] = []
        """The earliest starts so far, as a heap of their negatives."""
        self._now = 0

    def add(self, start_s: int, *, is_now: bool) -> None:
        self._now += is_now
        if len(self._latest) < self._enough:
            heappush(self._latest, -start_s)
        else:
            heappushpop(self._latest, -start_s)

    def is_over(self, bound_s: int, now_s: int) -> bool:
        """Whether a node that is not free before then, nor any after it, adds anything."""
        if self._now >= self._enough:
            return True
        # Of those that are free now some cost nothing: these are looked for among all.
        return len(self._latest) >= self._enough and bound_s > now_s and bound_s >= -self._latest[0]


def _with_copy(
    book: Book, busy: Busy, wish: Wish, node: int, ends: dict[int, int], carried: frozenset[int], now_s: int
) -> _Option | None:
    """A node that has the image, or gets it without us; None if it does not help."""
    pool, key = book.pools.pools[node], wish.image.key
    best: _Option | None = None
    for life in pool.lives.get(key, ()):
        there_s = now_s
        if life.transfer is not None:
            if life.transfer in ends:
                there_s = ends[life.transfer]
            elif life.transfer in carried:
                there_s = max(now_s, life.ready_s)
            else:
                continue
        start_s = busy.free_from(node, wish.need, there_s, wish.limit_s)
        if start_s == FOREVER:
            continue
        until_s = _until_s(wish, start_s)
        if not _can_have(book, wish, node, life, until_s, now_s):
            continue
        cost = _HERE if life.transfer is None else _COMING
        option = _Option(start_s, cost, node, there_s, life)
        best = option if best is None else min(best, option)
    if best is None and key in pool.lingering and key not in pool.lives:
        start_s = busy.free_from(node, wish.need, now_s, wish.limit_s)
        if start_s < FOREVER and _takes(book, wish, node, start_s, now_s):
            return _Option(start_s, _HERE, node, now_s)
    return best


def _far(
    book: Book, busy: Busy, wish: Wish, eligible: int, known: set[int], now_s: int, enough: int
) -> list[tuple[int, int]]:
    """Nodes without the image by when they are free, and their numbers; not all of a large site."""
    search = _Earliest(enough)
    found: list[tuple[int, int]] = []
    for bound_s, node in busy.openings(wish.need, now_s, eligible):
        if search.is_over(bound_s, now_s):
            break
        if node in known:
            continue
        start_s = busy.free_from(node, wish.need, now_s, wish.limit_s)
        if start_s < FOREVER and _takes(book, wish, node, start_s, now_s):
            found.append((start_s, node))
            search.add(start_s, is_now=start_s <= now_s)
    return sorted(found)


def _takes(book: Book, wish: Wish, node: int, start_s: int, now_s: int) -> bool:
    """Whether a pool has room for one more image until a job that starts then is over."""
    until_s = _until_s(wish, start_s)
    return _has_room(book, wish, node, ((now_s, until_s, wish.image.size_bytes),), until_s, now_s)


def _choose(
    book: Book,
    lane: Lane,
    slots: Slots,
    busy: Busy,
    wish: Wish,
    near: list[_Option],
    far: list[tuple[int, int]],
    now_s: int,
) -> list[_Option]:
    """The nodes with which the job starts first, and more of them if more are of use to it.

    With `count` transfers the last ends at a known time: all that need one are taken to wait for
    it. Fewer may end earlier, more may reach nodes that are free earlier; so each is tried.
    """
    most = 1 if lane.is_relay else wish.nodes_wanted
    best = _first(near, wish.nodes_wanted)
    for count in range(1, most + 1):
        if not far:
            break
        there_s = lane.end_if_added(wish.image, count, slots, now_s, user=wish.user)
        if len(best) == wish.nodes_wanted and max(each.start_s for each in best) <= there_s:
            break
        width = wish.nodes_wanted if lane.is_relay else count
        options = _after(book, busy, wish, far, there_s, now_s)[:width]
        found = _first([*near, *options], wish.nodes_wanted)
        if len(best) < wish.nodes_wanted or _merit(found) < _merit(best):
            best = found
    if len(best) < wish.nodes_wanted:
        return best
    return best + _more(book, lane, slots, busy, wish, near, far, best, now_s)


def _after(
    book: Book, busy: Busy, wish: Wish, far: Iterable[tuple[int, int]], there_s: int, now_s: int
) -> list[_Option]:
    """The nodes without the image, as soon as they are free once it is there."""
    found = []
    for free_s, node in far:
        start_s = max(free_s, there_s)
        if free_s < there_s:
            start_s = busy.free_from(node, wish.need, there_s, wish.limit_s)
        if start_s < FOREVER and (start_s == free_s or _takes(book, wish, node, start_s, now_s)):
            found.append(_Option(start_s, _MISSING, node, there_s))
    return sorted(found)


def _first(options: list[_Option], wanted: int) -> list[_Option]:
    """The nodes with which a job starts first; of those that do not delay it the ones that cost least."""
    options = sorted(options)
    if len(options) <= wanted:
        return options
    latest_s = options[wanted - 1].start_s
    early = [each for each in options if each.start_s <= latest_s]
    return sorted(early, key=lambda each: (each.cost, each.node))[:wanted]


def _merit(options: list[_Option]) -> tuple[int, int, list[int]]:
    """When the job starts on these nodes, how many need bytes of their own, and which they are."""
    return (
        max(each.start_s for each in options),
        sum(each.cost for each in options),
        sorted(each.node for each in options),
    )


def _more(
    book: Book,
    lane: Lane,
    slots: Slots,
    busy: Busy,
    wish: Wish,
    near: list[_Option],
    far: list[tuple[int, int]],
    best: list[_Option],
    now_s: int,
) -> list[_Option]:
    """Other nodes that have the image already, and, for many tasks, others that get it, too."""
    chosen = {each.node for each in best}
    here = [each for each in near if each.cost == _HERE and each.node not in chosen]
    more = here[: max(0, max(wish.spares, wish.copies) - len(best))]
    lacking = wish.copies - len(best) - len(more)
    if lacking <= 0:
        return more
    others = [each for each in near if each.node not in chosen and each not in more][:lacking]
    lacking -= len(others)
    chosen |= {each.node for each in others}
    count = sum(each.cost == _MISSING for each in best) + lacking
    there_s = lane.end_if_added(wish.image, max(1, count), slots, now_s, user=wish.user)
    free = [each for each in far if each[1] not in chosen]
    return more + others + _after(book, busy, wish, free, there_s, now_s)[: max(0, lacking)]
