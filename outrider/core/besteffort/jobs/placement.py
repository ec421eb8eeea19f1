"""Where a best-effort job's image goes, and so where the job may start: a pure decision.

When a job starts is the batch system's business, with its priorities and limits. It is steered to the
nodes on which it is expected to start first: where the image is by the time that they are free. A
node that has the image costs nothing; one that others' transfers will bring it to, no more than
waiting for them; all others share the best-effort link. Among nodes that are as good, those that
have the image come first, then those that need no bytes of their own, then the first by number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappush, heappushpop

from outrider.core.besteffort.jobs.further import others, stay_of
from outrider.core.besteffort.jobs.own_room import copy_of, drop_own_room, hold_rest, rest_bytes
from outrider.core.images.pools import Life
from outrider.core.links.best_effort import BestEffortLink
from outrider.core.links.expected_turns import Slots
from outrider.core.links.fair_shares import NOBODY
from outrider.core.model import Image
from outrider.core.nodes.forecast import BusyForecast
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Book
from outrider.core.reservations.refusal import size

MOST_EXAMINED = 64
"""Nodes without the image that are examined beyond those that are wanted: enough, as long as nodes
that are free at once exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementRequest:
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
    """Who takes turns on the link with others."""
    copying: int = 0
    """A mask of the nodes on which the job takes the image's bytes once more, as a copy of its own."""
    further: tuple[Image, ...] = ()
    """Images that have to be on each of its nodes beside its own."""

    @property
    def copy(self) -> Image:
        """The job's own copy, as it is counted in a pool."""
        return copy_of(self.name, self.image)

    def until_s(self, start_s: int) -> int:
        """Until when a job that starts then needs its image at most."""
        return start_s + self.limit_s + self.grace_s


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlacement:
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
class NoPlacement:
    """Why not now."""

    message: str


@dataclass(frozen=True, slots=True, order=True)
class _Option:
    """A node: when the job could start there, whether bytes are needed, which node it is."""

    start_s: int
    cost: int
    node: int
    there_s: int = field(compare=False)
    life: Life | None = field(compare=False, default=None)


_HERE, _COMING, _MISSING = range(3)


def place_job(
    book: Book,
    link: BestEffortLink,
    slots: Slots,
    forecast: BusyForecast,
    request: PlacementRequest,
    now_s: int,
    *,
    carried: frozenset[int] = frozenset(),
) -> JobPlacement | NoPlacement:
    """Choose nodes for a job. Nothing is changed. `carried` are transfers with deadlines that run:
    those that only wait may still be withdrawn, so nobody counts on them."""
    eligible = request.eligible & book.available
    up = eligible.bit_count()
    if up < request.nodes_wanted:
        known = f"{up or 'none'} of the nodes that it may run on {'are' if up > 1 else 'is'} up"
        return NoPlacement(message=f"{known}, and it wants {request.nodes_wanted}")
    search = _NodeSearch(book, link, slots, forecast, request, now_s, link.ends(slots, now_s), carried)
    while True:
        chosen = search.chosen(eligible)
        if len(chosen) < request.nodes_wanted:
            return _never(book, request) or NoPlacement(
                message=f"{len(chosen)} of the nodes that it may run on have room in their pools for its "
                f"image and will be free for it, and it wants {request.nodes_wanted}"
            )
        placement = _placement(request, chosen)
        full = _full(book, request, placement, now_s)
        if not full:
            return placement
        # What fits until the job would be over there does not fit until it is over on all its nodes.
        eligible &= ~full


def _never(book: Book, request: PlacementRequest) -> NoPlacement | None:
    """If the image is larger than the pools of too many nodes, however empty they are."""
    size_bytes, pools = request.image.size_bytes, book.pools.pools
    more_bytes = sum(each.size_bytes for each in others(request.image, request.further))
    times = {node: 1 + (request.copying >> node & 1) for node in numbers(request.eligible)}
    limits = {node: pools[node].limit_bytes for node in times}
    large = sum(
        limit is None or times[node] * size_bytes + more_bytes <= limit for node, limit in limits.items()
    )
    if large >= request.nodes_wanted:
        return None
    largest = max((limit for limit in limits.values() if limit is not None), default=0)
    twice = ", needed twice where the job gets a copy," if 2 in times.values() else ""
    beside = f" beside {size(more_bytes)} of the job's other images" if more_bytes else ""
    return NoPlacement(
        message=f"it has {size(size_bytes)}{twice}{beside} and never fits: the pools of {large} of the nodes "
        f"that it may run on are as large, the job wants {request.nodes_wanted}, and the largest pool has "
        f"{size(largest)}; cancel the job, or ask an administrator for larger pools"
    )


def _placement(request: PlacementRequest, chosen: list[_Option]) -> JobPlacement:
    wanted = chosen[: request.nodes_wanted]
    return JobPlacement(
        nodes=tuple(each.node for each in chosen),
        lives=tuple((each.node, each.life) for each in chosen if each.life is not None),
        revived=tuple(each.node for each in chosen if each.life is None and each.cost == _HERE),
        missing=tuple(each.node for each in chosen if each.cost == _MISSING),
        ready_s=max(each.there_s for each in wanted),
        start_s=max(each.start_s for each in wanted),
        until_s=max(request.until_s(each.start_s) for each in chosen),
    )


def _full(book: Book, request: PlacementRequest, placement: JobPlacement, now_s: int) -> int:
    """A mask of the nodes whose pools have no room until the placement's end."""
    until_s = placement.until_s
    full = [
        node for node, life in placement.lives if not _can_have(book, request, node, life, until_s, now_s)
    ]
    stay = ((now_s, until_s, request.image.size_bytes),)
    full += [
        node
        for node in (*placement.revived, *placement.missing)
        if not _has_room(book, request, node, stay, until_s, now_s)
    ]
    return sum(1 << node for node in full)


def hold(
    book: Book, link: BestEffortLink, request: PlacementRequest, placement: JobPlacement, now_s: int
) -> dict[int, Life]:
    """Keep or bring the copies that a way uses; nothing may have changed since it was found."""
    pools = book.pools
    held = dict(placement.lives)
    for node in placement.revived:
        life = pools.revive(node, request.image.key, request.image, now_s, placement.until_s)
        assert life is not None
        held[node] = life
    for node, cargo in link.add(request.image, placement.missing):
        life = Life(
            request.image, now_s, placement.ready_s, placement.until_s, transfer=cargo.number, is_firm=True
        )
        pools.add(node, life)
        held[node] = life
    for node, life in held.items():
        pools.extend(node, life, request.name, placement.until_s)
        if request.copying >> node & 1 and not pools.pools[node].lives.get(request.copy.key):
            pools.add(node, Life(request.copy, now_s, now_s, placement.until_s))
        hold_rest(book, request.name, request.image, node, life, now_s, placement.until_s)
    return held


def let_go(book: Book, link: BestEffortLink, name: str, node: int, life: Life, now_s: int) -> bool:
    """A job does not need a copy any more. True if nobody does, and it is not brought any further."""
    pools = book.pools
    drop_own_room(book, name, node)
    if life not in pools.pools[node].lives.get(life.image.key, ()):
        return False
    cargo = link.find(life.transfer)
    if cargo is None or life.users.keys() - {name}:
        pools.leave(node, life, name, now_s)
        return False
    link.leave(cargo, node)
    pools.lose(node, life)
    return True


def can_keep(book: Book, node: int, life: Life, until_s: int, now_s: int) -> bool:
    """Whether a copy can stay until then without taking room that others were promised."""
    longer = (max(life.expires_s, now_s), until_s, life.image.size_bytes)
    return until_s <= life.expires_s or book.pools.pools[node].has_room((longer,), now_s, life.image.key)


def _can_have(book: Book, request: PlacementRequest, node: int, life: Life, until_s: int, now_s: int) -> bool:
    """Whether a copy that is there, or comes without us, can stay until then, with one for the job alone."""
    longer = (
        ((max(life.expires_s, now_s), until_s, life.image.size_bytes),) if until_s > life.expires_s else ()
    )
    if left_bytes := rest_bytes(request.image, life):
        longer = (*longer, (now_s, until_s, left_bytes))
    return _has_room(book, request, node, longer, until_s, now_s)


def _has_room(
    book: Book,
    request: PlacementRequest,
    node: int,
    extra: tuple[tuple[int, int, int], ...],
    until_s: int,
    now_s: int,
) -> bool:
    """Whether a pool has room for `extra` lives of the image, for a copy that is the job's own, and for all
    other images of the job."""
    pool = book.pools.pools[node]
    for image in others(request.image, request.further):
        life = stay_of(pool, image)
        from_s = now_s if life is None else max(life.expires_s, now_s)
        if from_s < until_s:
            extra = (*extra, (from_s, until_s, image.size_bytes))
    if request.copying >> node & 1 and not pool.lives.get(request.copy.key):
        extra = (*extra, (now_s, until_s, request.image.size_bytes))
    return not extra or pool.has_room(extra, now_s, request.image.key)


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


@dataclass(frozen=True, slots=True)
class _NodeSearch:
    """What a choice of nodes for one job is made against. `ends` says when transfers are expected to end."""

    book: Book
    link: BestEffortLink
    slots: Slots
    forecast: BusyForecast
    request: PlacementRequest
    now_s: int
    ends: dict[int, int]
    carried: frozenset[int]

    def chosen(self, eligible: int) -> list[_Option]:
        """The best nodes of a mask: fewer than are wanted if there are not as many."""
        request = self.request
        near, is_cut = self._near(eligible)
        # One that has the image and is free later than many others that have it is not brought another.
        others = eligible & ~(self.book.pools.mask_with(request.image.key) if is_cut else 0)
        known = {option.node for option in near}
        enough = request.copies + MOST_EXAMINED
        far = self._far(others, known, enough)
        chosen = self._choose(near, far)
        if len(chosen) < request.nodes_wanted and len(far) >= enough:
            # Of so many none is free any more when the image is there.
            far = self._far(others, known, len(self.book.timeline.nodes) + 1)
            chosen = self._choose(near, far)
        return chosen

    def _near(self, eligible: int) -> tuple[list[_Option], bool]:
        """Nodes that have the image or get it without us; not all, where a popular one is on thousands:
        then it is true that some were left out."""
        request = self.request
        search = _Earliest(max(request.copies, request.spares) + MOST_EXAMINED)
        found: list[_Option] = []
        holders = eligible & self.book.pools.mask_with(request.image.key)
        for bound_s, node in self.forecast.openings(request.need, self.now_s, holders):
            if search.is_over(bound_s, self.now_s):
                return sorted(found), True
            option = self._with_copy(node)
            if option is not None:
                found.append(option)
                search.add(option.start_s, is_now=option.cost == _HERE and option.start_s <= self.now_s)
        return sorted(found), False

    def _with_copy(self, node: int) -> _Option | None:
        """A node that has the image, or gets it without us; None if it does not help."""
        pool, request, now_s = self.book.pools.pools[node], self.request, self.now_s
        key = request.image.key
        best: _Option | None = None
        for life in pool.lives.get(key, ()):
            if not request.image.may_be(life.image, is_coming=life.transfer is not None):
                continue
            there_s = now_s
            if life.transfer is not None:
                if life.transfer in self.ends:
                    there_s = self.ends[life.transfer]
                elif life.transfer in self.carried:
                    there_s = max(now_s, life.ready_s)
                else:
                    continue
            there_s = self._all_there_s(node, there_s, 0)
            start_s = self._free_from(node, there_s)
            if start_s == FOREVER:
                continue
            until_s = request.until_s(start_s)
            if not _can_have(self.book, request, node, life, until_s, now_s):
                continue
            cost = _HERE if life.transfer is None else _COMING
            option = _Option(start_s, cost, node, there_s, life)
            best = option if best is None else min(best, option)
        if best is None and key in pool.lingering and key not in pool.lives:
            there_s = self._all_there_s(node, now_s, 0)
            start_s = self._free_from(node, there_s)
            if start_s < FOREVER and self._takes(node, start_s):
                return _Option(start_s, _HERE, node, there_s)
        return best

    def _far(self, eligible: int, known: set[int], enough: int) -> list[tuple[int, int]]:
        """Nodes without the image by when they are free, and their numbers; not all of a large site."""
        search = _Earliest(enough)
        found: list[tuple[int, int]] = []
        for bound_s, node in self.forecast.openings(self.request.need, self.now_s, eligible):
            if search.is_over(bound_s, self.now_s):
                break
            if node in known:
                continue
            start_s = self._free_from(node, self.now_s)
            if start_s < FOREVER and self._takes(node, start_s):
                found.append((start_s, node))
                search.add(start_s, is_now=start_s <= self.now_s)
        return sorted(found)

    def _free_from(self, node: int, from_s: int) -> int:
        return self.forecast.free_from(node, self.request.need, from_s, self.request.limit_s)

    def _takes(self, node: int, start_s: int) -> bool:
        """Whether a pool has room for one more image until a job that starts then is over."""
        until_s = self.request.until_s(start_s)
        stay = ((self.now_s, until_s, self.request.image.size_bytes),)
        return _has_room(self.book, self.request, node, stay, until_s, self.now_s)

    def _all_there_s(self, node: int, there_s: int, own_bytes: int) -> int:
        """When a node has all images, that has the job's own by then; of that so much is still to come."""
        pool, lacking_bytes = self.book.pools.pools[node], 0
        for image in others(self.request.image, self.request.further):
            life = stay_of(pool, image)
            if life is not None and life.transfer is not None:
                there_s = max(there_s, self.ends.get(life.transfer, life.ready_s))
            elif life is None and image.key not in pool.lingering:
                lacking_bytes += image.size_bytes
        if not lacking_bytes:
            return there_s
        # One after the other, as one image of that size would come.
        whole = Image(uri=f"all of {self.request.image.uri}", size_bytes=own_bytes + lacking_bytes)
        end_s = self.link.end_if_added(whole, 1, self.slots, self.now_s, user=self.request.user)
        return max(there_s, end_s)

    def _there_s(self, count: int) -> int:
        """When the last of so many transfers would have brought the image."""
        request = self.request
        return self.link.end_if_added(request.image, count, self.slots, self.now_s, user=request.user)

    def _choose(self, near: list[_Option], far: list[tuple[int, int]]) -> list[_Option]:
        """The nodes with which the job starts first, and more of them if more are of use to it.

        With `count` transfers the last ends at a known time: all that need one are taken to wait for
        it. Fewer may end earlier, more may reach nodes that are free earlier; so each is tried.
        """
        wanted = self.request.nodes_wanted
        best = _first(near, wanted)
        for count in range(1, (1 if self.link.is_relay else wanted) + 1):
            if not far:
                break
            there_s = self._there_s(count)
            if len(best) == wanted and max(each.start_s for each in best) <= there_s:
                break
            width = wanted if self.link.is_relay else count
            found = _first([*near, *self._after(far, there_s)[:width]], wanted)
            if len(best) < wanted or _merit(found) < _merit(best):
                best = found
        return best if len(best) < wanted else best + self._more(near, far, best)

    def _after(self, far: Iterable[tuple[int, int]], there_s: int) -> list[_Option]:
        """The nodes without the image, as soon as they are free once it is there."""
        found = []
        for free_s, node in far:
            all_s = self._all_there_s(node, there_s, self.request.image.size_bytes)
            start_s = max(free_s, all_s)
            if free_s < all_s:
                start_s = self._free_from(node, all_s)
            if start_s < FOREVER and (start_s == free_s or self._takes(node, start_s)):
                found.append(_Option(start_s, _MISSING, node, all_s))
        return sorted(found)

    def _more(self, near: list[_Option], far: list[tuple[int, int]], best: list[_Option]) -> list[_Option]:
        """Other nodes that have the image already, and, for many tasks, others that get it, too."""
        copies, chosen = self.request.copies, {each.node for each in best}
        whole = [each for each in near if each.cost == _HERE and each.there_s <= self.now_s]
        here = [each for each in whole if each.node not in chosen]
        more = here[: max(0, max(self.request.spares, copies) - len(best))]
        lacking = copies - len(best) - len(more)
        if lacking <= 0:
            return more
        others = [each for each in near if each.node not in chosen and each not in more][:lacking]
        lacking -= len(others)
        chosen |= {each.node for each in others}
        there_s = self._there_s(max(1, sum(each.cost == _MISSING for each in best) + lacking))
        free = [each for each in far if each[1] not in chosen]
        return more + others + self._after(free, there_s)[: max(0, lacking)]


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
