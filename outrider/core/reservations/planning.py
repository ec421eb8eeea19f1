"""How a reservation at a given start would be kept: nodes, transfers, stays in pools.

Thesis, Algorithm 1, with Algorithms 2 to 4 behind it. Nothing is changed here: the result
is a `ReservationPlan` that `Book.commit` can carry out, or the `Refusal` that stands in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.core.images.pools import Life
from outrider.core.links.schedule import Insertion, without
from outrider.core.model import Image, Transfer, Workspace
from outrider.core.nodes.selection import Fit, fit, fit_in_stages
from outrider.core.nodes.timeline import mask_of, numbers
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.stock import NodeParts, Stock, extensions, parts_on, stages_of, together

MOST_POOLS_AVOIDED = 16
"""How many nodes with full pools a plan avoids before it is refused for one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A choice of nodes to which the image could not be brought: why, and what was planned by then.

    `wanted` are the transfers for which the link had no time. `advanced` ones were taken out of the link
    first, to be brought by the start instead of later.
    """

    refusal: Refusal
    insertion: Insertion | None = None
    wanted: tuple[Transfer, ...] = ()
    advanced: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Manner:
    """How nodes are chosen: with rooms that are known, packed, counting on transfers that are due later."""

    stages: Sequence[Mapping[int, int]] | None = None
    is_packed: bool = False
    is_advancing: bool = False


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
    if book.terms.node_order is not None and stages is None:
        own = stages_of(book, book.terms.node_order, workspace, start_s, now_s, available)
        answer = _plan_among(book, workspace, start_s, now_s, available, None, _Manner(stages=own))
        if isinstance(answer, ReservationPlan):
            return answer
    first = _plan_among(book, workspace, start_s, now_s, available, attempts, _Manner(stages=stages))
    if isinstance(first, ReservationPlan) or stages is not None or first.cause is Cause.SLOTS:
        return first
    manners: list[_Manner] = []
    rooms = _rooms_to_pack(book, workspace, start_s, available)
    if rooms:
        manners.append(_Manner(stages=(rooms,), is_packed=True))
    if _is_due_later(book, workspace, start_s, available):
        manners.append(_Manner(is_advancing=True))
        if rooms:
            manners.append(_Manner(stages=(rooms,), is_packed=True, is_advancing=True))
    for manner in manners:
        answer = _plan_among(book, workspace, start_s, now_s, available, attempts, manner)
        if isinstance(answer, ReservationPlan):
            return answer
    return first


def _is_due_later(book: Book, workspace: Workspace, start_s: int, available: int) -> bool:
    """Whether a transfer of the image waits that is due after the start and could be brought before it."""
    image, terms = workspace.image, book.terms
    if image is None or image.parts or not (terms.is_advancing and terms.is_reusing) or terms.joins_any_image:
        return False
    return any(
        transfer.image.key == image.key and _numbers(book, transfer) & available
        for transfer in book.link.due_after(start_s)
    )


def _numbers(book: Book, transfer: Transfer) -> int:
    """A mask of a transfer's nodes: one that has left the site meanwhile is none of them."""
    number_of = book.timeline.number_of
    return mask_of((number_of[name] for name in transfer.nodes if name in number_of), len(book.timeline.rows))


def _rooms_to_pack(book: Book, workspace: Workspace, start_s: int, available: int) -> dict[int, int]:
    """The room of each node, if instances could share fewer nodes than Algorithm 1 gives them, and so fewer
    transfers; nothing if not. Its order looks only at whether there is room for more than one."""
    timeline, count = book.timeline, workspace.instances
    need = timeline.layout.pack(workspace.resources)
    is_relay = book.terms.shipping is Shipping.RELAY
    largest = max(timeline.layout.most(need, capacity, count) for capacity in timeline.by_capacity)
    if not book.terms.is_packing or is_relay or largest < 2 or workspace.is_spread:
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
    manner: _Manner,
) -> ReservationPlan | Refusal:
    """A plan on some of these nodes, without those whose pools turn out to be full, or that are behind a
    link without time."""
    full: Refusal | None = None
    for _ in range(MOST_POOLS_AVOIDED):
        tried: list[Attempt] = []
        answer = _plan_on(book, workspace, start_s, now_s, available, tried, manner)
        if attempts is not None:
            attempts += tried
        if isinstance(answer, ReservationPlan):
            return answer
        if answer.cause is Cause.LINK:
            reachable = available & ~_cut_off(book, tried[-1].wanted, now_s)
            if reachable != available:
                full, available = full or answer, reachable
                continue
        if answer.cause is not Cause.POOL:
            return full or answer
        full = full or answer
        bit = 1 << book.timeline.number_of[answer.nodes[0]]
        if not available & bit:
            return full
        available &= ~(bit | _roomless(book, answer, available, now_s))
    assert full is not None
    return full


def _cut_off(book: Book, wanted: Sequence[Transfer], now_s: int) -> int:
    """A mask of the nodes that no transfer like these reaches in time."""
    names = book.link.cut_off(wanted, now_s)
    number_of = book.timeline.number_of
    return mask_of((number_of[name] for name in names if name in number_of), len(book.timeline.rows))


def _plan_on(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    available: int,
    attempts: list[Attempt] | None,
    manner: _Manner,
) -> ReservationPlan | Refusal:
    end_s = start_s + workspace.duration_s
    stock = Stock(book, workspace.image, start_s, end_s, now_s, is_advancing=manner.is_advancing)
    if manner.stages is None:
        fits = fit(
            book.timeline,
            instances=workspace.instances,
            need=book.timeline.layout.pack(workspace.resources),
            start_s=start_s,
            end_s=end_s,
            holders=stock.nodes,
            is_holder=stock.holds,
            available=available,
            most_per_node=workspace.most_per_node,
        )
    else:
        fits = fit_in_stages(
            manner.stages,
            instances=workspace.instances,
            holders=stock.nodes,
            is_holder=stock.holds,
            available=available,
            is_packed=manner.is_packed,
            most_per_node=workspace.most_per_node,
        )
    if isinstance(fits, int):
        return Refusal(
            cause=Cause.SLOTS, start_s=start_s, end_s=end_s, instances=workspace.instances, room=fits
        )
    if workspace.image is None:
        return ReservationPlan(workspace=workspace, start_s=start_s, end_s=end_s, fits=tuple(fits))
    return plan_images(book, workspace, workspace.image, fits, stock, start_s, end_s, now_s, attempts)


def plan_images(
    book: Book,
    workspace: Workspace,
    image: Image,
    fits: list[Fit],
    stock: Stock,
    start_s: int,
    end_s: int,
    now_s: int,
    attempts: list[Attempt] | None = None,
) -> ReservationPlan | Refusal:
    """How the image comes to nodes that have been chosen, after the stock was asked about them."""
    nodes = [chosen.node for chosen in fits]
    missing = [node for node in nodes if node not in stock.lives and node not in stock.lingering]
    if book.terms.joins_any_image:
        missing = [node for node in missing if not _any_transfer_to(book, node, start_s, now_s)]
    sources = CopySources(
        joined=tuple((node, stock.lives[node]) for node in nodes if node in stock.lives),
        revived=tuple(node for node in nodes if node in stock.lingering),
        missing=tuple(missing),
        # Of those asked about, the ones that were chosen.
        advanced=tuple(
            sorted(stock.advanced & {stock.lives[node].transfer for node in nodes if node in stock.lives})
        ),
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
    advanced: tuple[int, ...] = ()
    """Of the joined copies the transfers that are due later and would have to be there by the start."""


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
    parts = _parts(book, image, sources, start_s, end_s, now_s)
    own = {node: parts[node].own for node in sources.missing if node in parts}
    transfers = transfers_to(
        book, image, names, start_s, [own[node] for node in sources.missing] if own else ()
    )
    advanced = tuple(replace(each, deadline_s=start_s) for each in book.link.waiting(sources.advanced))
    wanted = (*advanced, *transfers)
    insertion = _insertion(book, wanted, sources.advanced, start_s, now_s)
    refusal = _link_refusal(image, names, wanted, insertion, start_s, end_s)
    if refusal is not None:
        if attempts is not None:
            attempts.append(
                Attempt(refusal=refusal, insertion=insertion, wanted=wanted, advanced=sources.advanced)
            )
        return refusal
    stays, pushed = _stays(book, insertion, now_s)
    lives = tuple(each for each in stays if each[1] not in sources.advanced)
    # The copies of an advanced transfer are on their disks earlier, as those of one that is pushed.
    pushed += tuple(sorted({(number, at_s) for _, number, at_s in stays if number in sources.advanced}))
    # What is kept longer fits beside what is promised, but perhaps not beside what is pushed ahead.
    kept = [(node, -1, max(life.expires_s, now_s)) for node, life in joined if life.expires_s < end_s]
    kept += [(node, -1, now_s) for node in revived]
    longer = extensions(parts, end_s, now_s)
    full = _first_full_pool(book, image, (*lives, *kept), pushed, end_s, now_s, own, longer)
    if full is not None:
        begins = [(node, since_s) for node, _, since_s in (*lives, *kept)]
        begins += [(node, stay[0]) for node, stay in longer]
        from_s = min((since_s for node, since_s in begins if node == full), default=now_s)
        refusal = no_room(book, full, image, start_s, end_s, from_s)
        if attempts is not None:
            attempts.append(Attempt(refusal=refusal, insertion=insertion, advanced=sources.advanced))
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
        advanced=sources.advanced,
        own=tuple(sorted(own.items())),
        bases=tuple((node, life) for node, each in parts.items() for life in each.bases),
        blobs=tuple((node, blob) for node, each in parts.items() for blob in each.blobs),
    )


def _link_refusal(
    image: Image,
    nodes: tuple[str, ...],
    wanted: tuple[Transfer, ...],
    insertion: Insertion | None,
    start_s: int,
    end_s: int,
) -> Refusal | None:
    """Why these transfers cannot bring the image in time, if so. Who is to begin at its latest start delays
    nobody; what is only being made cannot be sent earlier."""
    is_early = insertion is not None and min(insertion.latest) < image.made_s
    if not wanted or not (insertion is None or is_early):
        return None
    return Refusal(
        cause=Cause.LINK,
        start_s=start_s,
        end_s=end_s,
        image=image,
        nodes=nodes,
        needed_s=sum(transfer.duration_s for transfer in wanted),
        made_s=image.made_s if is_early else 0,
    )


def _parts(
    book: Book, image: Image, sources: CopySources, start_s: int, end_s: int, now_s: int
) -> dict[int, NodeParts]:
    """Of an image with parts, by node where they come from; nothing of one that is a file."""
    if not image.parts:
        return {}
    stock = Stock(book, image, start_s, end_s, now_s)
    found = {node: parts_on(book, stock, image, node) for node in sources.missing}
    found |= {
        node: replace(parts_on(book, stock, image, node, life.image.parts), own=life.image)
        for node, life in sources.joined
    }
    return dict(sorted(found.items()))


def _insertion(
    book: Book, wanted: tuple[Transfer, ...], advanced: tuple[int, ...], start_s: int, now_s: int
) -> Insertion | None:
    """Where the link has place for these transfers.

    Those that are `advanced` give up their own place for it.
    """
    link = book.link
    if not wanted:
        return None
    if not advanced:
        return link.plan(wanted, now_s)
    if link.has_younger(start_s, min(advanced)):
        # Among equal deadlines the order is that of numbers, after a restart, too.
        return None
    with without(link, advanced):
        return link.plan(wanted, now_s)


def _any_transfer_to(book: Book, node: int, start_s: int, now_s: int) -> bool:
    return any(
        life.transfer is not None and now_s < life.ready_s <= start_s
        for lives in book.pools.pools[node].lives.values()
        for life in lives
    )


def transfers_to(
    book: Book, image: Image, nodes: tuple[str, ...], deadline_s: int, own: Sequence[Image] = ()
) -> tuple[Transfer, ...]:
    """The transfers that bring the image to `nodes` by the deadline, under the site's terms. Of an image
    with parts `own` is what each node lacks."""
    if not nodes:
        return ()
    if book.terms.shipping is Shipping.RELAY:
        nodes = book.link.in_order(nodes)
        groups = [(nodes, together(image, own) if own else image)]
    else:
        groups = [((node,), each) for node, each in zip(nodes, own or [image] * len(nodes), strict=True)]
    return tuple(
        Transfer(
            number=book.next_transfer + index,
            image=moved,
            nodes=group,
            duration_s=book.links.transfer_duration_s(moved, group),
            deadline_s=deadline_s,
        )
        for index, (group, moved) in enumerate(groups)
    )


def _stays(
    book: Book, insertion: Insertion | None, now_s: int
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
        for transfer, latest_s in zip(insertion.transfers, insertion.latest, strict=True)
        for name in transfer.nodes
        if name in number_of
    )
    pushed = tuple(
        (transfer.number, on_disk_s(latest_s))
        for transfer, latest_s in zip(insertion.moved, insertion.pushed, strict=True)
    )
    return lives, pushed


def _first_full_pool(
    book: Book,
    image: Image,
    lives: tuple[tuple[int, int, int], ...],
    pushed: tuple[tuple[int, int], ...],
    end_s: int,
    now_s: int,
    own: Mapping[int, Image],
    longer: Sequence[tuple[int, tuple[int, int, int]]],
) -> int | None:
    """The first node whose pool would pass its limit at some instant; None if none would."""
    extra: dict[int, list[tuple[int, int, int]]] = {}
    for node, _, start_s in lives:
        extra.setdefault(node, []).append((start_s, end_s, own.get(node, image).size_bytes))
    for node, stay in longer:
        extra.setdefault(node, []).append(stay)
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
