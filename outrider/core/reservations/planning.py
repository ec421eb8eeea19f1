"""How a reservation at a given start would be kept: nodes, transfers, stays in pools.

Thesis, Algorithm 1, with Algorithms 2 to 4 behind it. Nothing is changed here: the result
is a `ReservationPlan` that `Book.commit` can carry out, or the `Refusal` that stands in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.core.images.pools import Life
from outrider.core.links.deadline import Insertion
from outrider.core.model import Image, Transfer, Workspace
from outrider.core.nodes.selection import Fit, fit, fit_in_stages
from outrider.core.nodes.timeline import mask_of, numbers
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.refusal import Cause, Refusal

MOST_POOLS_AVOIDED = 16
"""How many nodes with full pools a plan avoids before it is refused for one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A choice of nodes to which the image could not be brought: why, and what was planned by then."""

    refusal: Refusal
    insertion: Insertion | None = None


def plan_at(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    *,
    among: int | None = None,
    attempts: list[Attempt] | None = None,
    stages: Sequence[Mapping[int, int]] | None = None,
) -> ReservationPlan | Refusal:
    """Thesis, Algorithm 1: slots first, then the images; all or nothing.

    `among` leaves out nodes that are known to have no room. What fails for want of the link or of
    room in pools is added to `attempts`. With `stages` the rooms of the nodes are known, and so is
    which are to be taken first.

    The thesis refuses when a node that it chose has no room for the image. Here such a node
    is left out, with all others like it, and the rest asked again.
    """
    available = book.available if among is None else book.available & among
    answer = _plan_among(book, workspace, start_s, now_s, available, attempts, stages)
    if isinstance(answer, ReservationPlan) or stages is not None or answer.cause is Cause.SLOTS:
        return answer
    rooms = _rooms_to_pack(book, workspace, start_s, available)
    if not rooms:
        return answer
    packed = _plan_among(book, workspace, start_s, now_s, available, attempts, (rooms,), is_packed=True)
    return packed if isinstance(packed, ReservationPlan) else answer


def _rooms_to_pack(book: Book, workspace: Workspace, start_s: int, available: int) -> dict[int, int]:
    """The room of each node, if instances could share fewer nodes than Algorithm 1 gives them, and so fewer
    transfers; nothing if not. Its order looks only at whether there is room for more than one."""
    timeline, count = book.timeline, workspace.instances
    need = timeline.layout.pack(workspace.resources)
    is_relay = book.terms.shipping is Shipping.RELAY
    largest = max(timeline.layout.most(need, capacity, count) for capacity in timeline.by_capacity)
    if not book.terms.is_packing or is_relay or largest < 2:
        return {}
    end_s = start_s + workspace.duration_s
    rooms = {node: timeline.rows[node].most(need, start_s, end_s, count) for node in numbers(available)}
    return {node: room for node, room in rooms.items() if room}


def _plan_among(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    available: int,
    attempts: list[Attempt] | None,
    stages: Sequence[Mapping[int, int]] | None,
    *,
    is_packed: bool = False,
) -> ReservationPlan | Refusal:
    """A plan on some of these nodes, without those whose pools turn out to be full."""
    full: Refusal | None = None
    for _ in range(MOST_POOLS_AVOIDED):
        answer = _plan_on(book, workspace, start_s, now_s, available, attempts, stages, is_packed=is_packed)
        if isinstance(answer, ReservationPlan):
            return answer
        if answer.cause is not Cause.POOL:
            return full or answer
        full = full or answer
        bit = 1 << book.timeline.number_of[answer.nodes[0]]
        if not available & bit:
            return full
        available &= ~(bit | _roomless(book, answer, available, now_s))
    assert full is not None
    return full


def _plan_on(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    available: int,
    attempts: list[Attempt] | None,
    stages: Sequence[Mapping[int, int]] | None,
    *,
    is_packed: bool,
) -> ReservationPlan | Refusal:
    end_s = start_s + workspace.duration_s
    stock = Stock(book, workspace.image, start_s, end_s, now_s)
    if stages is None:
        fits = fit(
            book.timeline,
            instances=workspace.instances,
            need=book.timeline.layout.pack(workspace.resources),
            start_s=start_s,
            end_s=end_s,
            holders=stock.nodes,
            is_holder=stock.holds,
            available=available,
        )
    else:
        fits = fit_in_stages(
            stages,
            instances=workspace.instances,
            holders=stock.nodes,
            is_holder=stock.holds,
            available=available,
            is_packed=is_packed,
        )
    if isinstance(fits, int):
        return Refusal(
            cause=Cause.SLOTS, start_s=start_s, end_s=end_s, instances=workspace.instances, room=fits
        )
    if workspace.image is None:
        return ReservationPlan(workspace=workspace, start_s=start_s, end_s=end_s, fits=tuple(fits))
    return _plan_images(book, workspace, workspace.image, fits, stock, start_s, end_s, now_s, attempts)


class Stock:
    """Where the image is or will be at a start, by what is already in pools or on its way.

    Asked node by node, because a popular image is in thousands of pools.
    """

    def __init__(self, book: Book, image: Image | None, start_s: int, end_s: int, now_s: int) -> None:
        self._book = book
        self._image = image
        self._start_s = start_s
        self._end_s = end_s
        self._now_s = now_s
        self.lives: dict[int, Life] = {}
        self.lingering: set[int] = set()
        is_reused = image is not None and book.terms.is_reusing
        self.nodes = book.pools.mask_with(image.key) if image is not None and is_reused else 0
        self._late = book.link.late(now_s)

    def holds(self, node: int) -> bool:
        """Whether the image can be used on the node without a transfer of its own."""
        image = self._image
        assert image is not None
        pool = self._book.pools.pools[node]
        life = self._usable(pool.lives.get(image.key, ()))
        if life is not None:
            late = (max(life.expires_s, self._now_s), self._end_s, image.size_bytes)
            if life.expires_s < self._end_s and not pool.has_room((late,), self._now_s, image.key):
                return False
            self.lives[node] = life
            return True
        if not self._book.terms.is_extending or image.key not in pool.lingering:
            return False
        if not pool.has_room(((self._now_s, self._end_s, image.size_bytes),), self._now_s, image.key):
            return False
        self.lingering.add(node)
        return True

    def _usable(self, lives: Sequence[Life]) -> Life | None:
        aside = self._book.link.aside
        for life in lives:
            if life.transfer is not None and (life.transfer in aside or life.transfer in self._late):
                # Nobody guarantees any more when it will have arrived.
                continue
            if life.is_firm and life.transfer is not None:
                # A best-effort transfer may still be delayed by deadlines on a link they share.
                end_s = self._book.links.guaranteed_end_of(life.transfer, self._now_s)
                if end_s is None or end_s > self._start_s:
                    continue
            # Algorithm 4's guarantee, or a transfer still to come whose deadline is early enough
            # (section 6.3.1), or an image that is there and may be kept.
            if life.ready_s <= self._start_s and (
                self._start_s <= life.expires_s
                or life.ready_s > self._now_s
                or (self._book.terms.is_extending and life.expires_s >= self._now_s)
            ):
                return life
        return None


def _plan_images(
    book: Book,
    workspace: Workspace,
    image: Image,
    fits: list[Fit],
    stock: Stock,
    start_s: int,
    end_s: int,
    now_s: int,
    attempts: list[Attempt] | None,
) -> ReservationPlan | Refusal:
    nodes = [chosen.node for chosen in fits]
    missing = [node for node in nodes if node not in stock.lives and node not in stock.lingering]
    if book.terms.joins_any_image:
        missing = [node for node in missing if not _any_transfer_to(book, node, start_s, now_s)]
    sources = CopySources(
        joined=tuple((node, stock.lives[node]) for node in nodes if node in stock.lives),
        revived=tuple(node for node in nodes if node in stock.lingering),
        missing=tuple(missing),
    )
    return plan_copies(
        book, workspace, image, sources, start_s, end_s, now_s, fits=tuple(fits), attempts=attempts
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CopySources:
    """Where nodes have an image from: a copy that others have there, one that lingers, or a transfer."""

    joined: tuple[tuple[int, Life], ...]
    revived: tuple[int, ...]
    missing: tuple[int, ...]


def plan_copies(
    book: Book,
    workspace: Workspace,
    image: Image,
    sources: CopySources,
    start_s: int,
    end_s: int,
    now_s: int,
    *,
    fits: tuple[Fit, ...] = (),
    attempts: list[Attempt] | None = None,
) -> ReservationPlan | Refusal:
    """How the image is on these nodes by `start_s` and until `end_s`: transfers, and stays in pools."""
    joined, revived = sources.joined, sources.revived
    names = tuple(book.timeline.nodes[node].name for node in sources.missing)
    transfers = transfers_to(book, image, names, start_s)
    insertion = book.link.plan(transfers, now_s) if transfers else None
    if transfers and insertion is None:
        refusal = Refusal(
            cause=Cause.LINK,
            start_s=start_s,
            end_s=end_s,
            image=image,
            nodes=names,
            needed_s=sum(transfer.duration_s for transfer in transfers),
        )
        if attempts is not None:
            attempts.append(Attempt(refusal=refusal))
        return refusal
    lives, pushed = _stays(book, transfers, insertion, now_s)
    # What is kept longer fits beside what is promised, but perhaps not beside what is pushed ahead.
    kept = [(node, -1, max(life.expires_s, now_s)) for node, life in joined if life.expires_s < end_s]
    kept += [(node, -1, now_s) for node in revived]
    full = _first_full_pool(book, image, (*lives, *kept), pushed, end_s, now_s)
    if full is not None:
        from_s = min((since_s for node, _, since_s in (*lives, *kept) if node == full), default=now_s)
        refusal = no_room(book, full, image, start_s, end_s, from_s)
        if attempts is not None:
            attempts.append(Attempt(refusal=refusal, insertion=insertion))
        return refusal
    return ReservationPlan(
        workspace=workspace,
        start_s=start_s,
        end_s=end_s,
        fits=fits,
        transfers=transfers,
        insertion=insertion,
        lives=lives,
        joined=joined,
        revived=revived,
        pushed=pushed,
    )


def _any_transfer_to(book: Book, node: int, start_s: int, now_s: int) -> bool:
    return any(
        life.transfer is not None and now_s < life.ready_s <= start_s
        for lives in book.pools.pools[node].lives.values()
        for life in lives
    )


def transfers_to(book: Book, image: Image, nodes: tuple[str, ...], deadline_s: int) -> tuple[Transfer, ...]:
    """The transfers that bring the image to `nodes` by the deadline, under the site's terms."""
    if not nodes:
        return ()
    duration_s = book.deadline_duration_s(image)
    groups = [nodes] if book.terms.shipping is Shipping.RELAY else [(node,) for node in nodes]
    return tuple(
        Transfer(
            number=book.next_transfer + index,
            image=image,
            nodes=group,
            duration_s=duration_s,
            deadline_s=deadline_s,
        )
        for index, group in enumerate(groups)
    )


def _stays(
    book: Book, transfers: tuple[Transfer, ...], insertion: Insertion | None, now_s: int
) -> tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, int], ...]]:
    """From when on the new images, and those whose transfers are pushed ahead, are on disk.

    A transfer is started at most the link's reserve before its latest start, so that is the
    first instant at which its bytes can be on the disk.
    """
    if insertion is None:
        return (), ()
    reserve_s = book.link.reserve_s

    def on_disk_s(latest_s: int) -> int:
        return now_s if reserve_s is None else max(now_s, latest_s - reserve_s)

    number_of = book.timeline.number_of
    lives = tuple(
        (number_of[name], transfer.number, on_disk_s(latest_s))
        for transfer, latest_s in zip(transfers, insertion.latest, strict=True)
        for name in transfer.nodes
    )
    pushed = tuple(
        (transfer.number, on_disk_s(latest_s))
        for transfer, latest_s in zip(book.link.moved(insertion), insertion.pushed, strict=True)
    )
    return lives, pushed


def _first_full_pool(
    book: Book,
    image: Image,
    lives: tuple[tuple[int, int, int], ...],
    pushed: tuple[tuple[int, int], ...],
    end_s: int,
    now_s: int,
) -> int | None:
    """The first node whose pool would pass its limit at some instant; None if none would."""
    extra: dict[int, list[tuple[int, int, int]]] = {}
    for node, _, start_s in lives:
        extra.setdefault(node, []).append((start_s, end_s, image.size_bytes))
    for number, start_s in pushed:
        for node, life in book.lives_of(number):
            if start_s < life.start_s:
                extra.setdefault(node, []).append((start_s, life.start_s, life.image.size_bytes))
    pools = book.pools.pools
    full = (node for node in sorted(extra) if not pools[node].has_room(extra[node], now_s, image.key))
    return next(full, None)


def no_room(book: Book, node: int, image: Image, start_s: int, end_s: int, from_s: int) -> Refusal:
    """A node's pool has no room for an image that would have to be there from `from_s` on."""
    pool = book.pools.pools[node]
    held = [each for each in pool.encumbrance.holds if each.key != image.key and each.until_s > from_s]
    return Refusal(
        cause=Cause.POOL,
        start_s=start_s,
        end_s=end_s,
        image=image,
        nodes=(book.timeline.nodes[node].name,),
        from_s=from_s,
        held_bytes=sum(each.size_bytes for each in held),
        held_until_s=max((each.until_s for each in held), default=0),
        limit_bytes=pool.limit_bytes or 0,
        room_bytes=pool.room_bytes or 0,
    )


def _roomless(book: Book, refusal: Refusal, available: int, now_s: int) -> int:
    """Of these nodes a mask of those without the image whose pools have no room for it because of what
    others hold: where one had none, many may have none, and they are not to be tried one by one."""
    image = refusal.image
    assert image is not None
    extra = ((refusal.from_s, refusal.end_s, image.size_bytes),)
    pools = book.pools.pools
    candidates = numbers(available & ~book.pools.mask_with(image.key))
    full = (
        node
        for node in candidates
        if pools[node].is_encumbered and not pools[node].has_room(extra, now_s, image.key)
    )
    return mask_of(full, len(pools))
