"""May this reservation be promised? Accepted with a plan, or refused with a reason and a remedy.

`assess` reads the book and changes nothing, so the answer to "what if" and the real answer
are the same. `admit` is `assess` and, if the answer is yes, `Book.commit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.book import Book, Plan, Shipping
from outrider.core.fitting import Fit, fit
from outrider.core.model import Image, Reservation, Transfer, Workspace
from outrider.core.refusal import Cause, Refusal
from outrider.core.reuse import Life
from outrider.core.staging.deadline import Insertion
from outrider.core.sweep import SlotSweep

Policy = Callable[[Workspace, int], str]
"""A site's own rule: a sentence if it refuses the workspace at this instant, else nothing."""

MOST_STARTS_TRIED = 10_000
"""How many candidate starts a search for the earliest one looks at before it gives up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    plan: Plan
    reservation: Reservation | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """`earliest_start_s` is a start that would be accepted now; None if none would."""

    refusal: Refusal
    earliest_start_s: int | None = None


def admit(
    book: Book, workspace: Workspace, now_s: int, *, policy: Policy | None = None, tells_earliest: bool = True
) -> Accepted | Rejected:
    """Accept the reservation and enter it in the book, or refuse it and change nothing."""
    answer = assess(book, workspace, now_s, policy=policy, tells_earliest=tells_earliest)
    if isinstance(answer, Rejected):
        return answer
    return Accepted(plan=answer.plan, reservation=book.commit(answer.plan, now_s))


def assess(
    book: Book, workspace: Workspace, now_s: int, *, policy: Policy | None = None, tells_earliest: bool = True
) -> Accepted | Rejected:
    """What `admit` would answer, with nothing changed."""
    if workspace.start_s is None:
        raise ValueError(f"workspace {workspace.name} has no start: best effort is not for admission")
    refusal = _never(book, workspace, now_s) or _refused_by(policy, workspace, now_s)
    if refusal is not None:
        return Rejected(refusal=refusal)
    if workspace.finish_by_s is not None:
        return _assess_deadline(book, workspace, now_s)
    plan = _plan_at(book, workspace, workspace.start_s, now_s)
    if isinstance(plan, Plan):
        return Accepted(plan=plan)
    earliest_s = earliest_start(book, workspace, workspace.start_s, now_s) if tells_earliest else None
    return Rejected(refusal=plan, earliest_start_s=earliest_s)


def earliest_start(book: Book, workspace: Workspace, from_s: int, now_s: int) -> int | None:
    """The first start from `from_s` on that would be accepted now; None if there is none.

    Whatever is returned has been planned in full. It is the very first such start unless a
    pool's limit or a transfer's release is what stood in the way: then it is the first among
    the instants at which slots, pools or the link change.
    """
    image = workspace.image
    need = book.timeline.layout.pack(workspace.resources)
    sweep = SlotSweep(
        book.timeline,
        instances=workspace.instances,
        need=need,
        duration_s=workspace.duration_s,
        start_s=max(from_s, now_s),
        available=book.available,
    )
    for _ in range(MOST_STARTS_TRIED):
        start_s = sweep.advance()
        if start_s is None:
            return None
        plan = _plan_at(book, workspace, start_s, now_s)
        if isinstance(plan, Plan):
            return start_s
        changes = [sweep.next_edge()]
        if image is not None:
            changes.append(_next_pool_change(book, image, start_s))
        if plan.cause is Cause.LINK:
            changes.append(_link_frees(book, plan, start_s, now_s))
        following = min((at_s for at_s in changes if at_s is not None and at_s > start_s), default=None)
        if following is None:
            return None
        sweep.move_to(following)
    return None


def _assess_deadline(book: Book, workspace: Workspace, now_s: int) -> Accepted | Rejected:
    """A workspace that may start at any time, as long as it ends by its deadline."""
    assert workspace.start_s is not None
    assert workspace.finish_by_s is not None
    start_s = earliest_start(book, workspace, workspace.start_s, now_s)
    if start_s is not None and start_s + workspace.duration_s <= workspace.finish_by_s:
        plan = _plan_at(book, workspace, start_s, now_s)
        assert isinstance(plan, Plan)
        return Accepted(plan=plan)
    last_s = workspace.finish_by_s - workspace.duration_s
    refusal = _plan_at(book, workspace, last_s, now_s)
    assert isinstance(refusal, Refusal)
    return Rejected(refusal=refusal, earliest_start_s=start_s)


def _never(book: Book, workspace: Workspace, now_s: int) -> Refusal | None:
    """The refusal of what no state of the book would allow."""
    assert workspace.start_s is not None
    end_s = workspace.start_s + workspace.duration_s
    layout = book.timeline.layout
    words = ""
    unknown = layout.unknown(workspace.resources)
    if unknown:
        words = f"no node has the resource {unknown[0]}; known are {', '.join(layout.names)}"
    elif workspace.name in book.entries:
        words = f"a reservation named {workspace.name} exists already: choose another name"
    elif workspace.start_s < now_s:
        words = f"its start lies {now_s - workspace.start_s} s in the past: ask for a start from now on"
    else:
        need = layout.pack(workspace.resources)
        room = sum(
            layout.most(need, capacity, workspace.instances) * (nodes & book.available).bit_count()
            for capacity, nodes in book.timeline.by_capacity.items()
        )
        if room < workspace.instances:
            words = (
                f"{workspace.instances} instances of {workspace.resources} are more than the site's "
                f"{book.available.bit_count()} nodes can hold, even empty: there is room for {room}"
            )
    if not words:
        return None
    return Refusal(cause=Cause.SLOTS, start_s=workspace.start_s, end_s=end_s, words=words)


def _refused_by(policy: Policy | None, workspace: Workspace, now_s: int) -> Refusal | None:
    words = policy(workspace, now_s) if policy is not None else ""
    if not words:
        return None
    assert workspace.start_s is not None
    end_s = workspace.start_s + workspace.duration_s
    return Refusal(cause=Cause.POLICY, start_s=workspace.start_s, end_s=end_s, words=words)


def _plan_at(book: Book, workspace: Workspace, start_s: int, now_s: int) -> Plan | Refusal:
    """Thesis, Algorithm 1: slots first, then the images; all or nothing."""
    end_s = start_s + workspace.duration_s
    stock = _Stock(book, workspace.image, start_s, end_s, now_s)
    fits = fit(
        book.timeline,
        instances=workspace.instances,
        need=book.timeline.layout.pack(workspace.resources),
        start_s=start_s,
        end_s=end_s,
        holders=stock.nodes,
        available=book.available,
    )
    if isinstance(fits, int):
        return Refusal(
            cause=Cause.SLOTS, start_s=start_s, end_s=end_s, instances=workspace.instances, room=fits
        )
    if workspace.image is None:
        return Plan(workspace=workspace, start_s=start_s, end_s=end_s, fits=tuple(fits))
    return _plan_images(book, workspace, workspace.image, fits, stock, start_s, end_s, now_s)


class _Stock:
    """Where the image is or will be at a start, by what is already in pools or on its way."""

    def __init__(self, book: Book, image: Image | None, start_s: int, end_s: int, now_s: int) -> None:
        self.lives: dict[int, Life] = {}
        self.lingering: list[int] = []
        terms = book.terms
        if image is None or not terms.is_reusing:
            self.nodes: list[int] = []
            return
        for node in book.pools.nodes_with(image.key):
            pool = book.pools.pools[node]
            life = self._usable(book, pool.lives.get(image.key, ()), start_s, now_s)
            if life is not None:
                late = [(max(life.expires_s, now_s), end_s, image.size_bytes)]
                if life.expires_s >= end_s or pool.has_room(late, now_s):
                    self.lives[node] = life
            elif (
                terms.is_extending
                and image.key in pool.lingering
                and pool.has_room([(now_s, end_s, image.size_bytes)], now_s)
            ):
                self.lingering.append(node)
        self.nodes = sorted([*self.lives, *self.lingering])

    @staticmethod
    def _usable(book: Book, lives: list[Life] | tuple[()], start_s: int, now_s: int) -> Life | None:
        for life in lives:
            # Algorithm 4's guarantee, or a transfer still to come whose deadline is early enough
            # (section 6.3.1), or an image that is there and may be kept.
            if life.ready_s <= start_s and (
                start_s <= life.expires_s
                or life.ready_s > now_s
                or (book.terms.is_extending and life.expires_s >= now_s)
            ):
                return life
        return None


def _plan_images(
    book: Book,
    workspace: Workspace,
    image: Image,
    fits: list[Fit],
    stock: _Stock,
    start_s: int,
    end_s: int,
    now_s: int,
) -> Plan | Refusal:
    joined = tuple((chosen.node, stock.lives[chosen.node]) for chosen in fits if chosen.node in stock.lives)
    revived = tuple(chosen.node for chosen in fits if chosen.node in stock.lingering)
    missing = [
        chosen.node
        for chosen in fits
        if chosen.node not in stock.lives and chosen.node not in stock.lingering
    ]
    if book.terms.joins_any_image:
        missing = [node for node in missing if not _any_transfer_to(book, node, start_s, now_s)]
    names = tuple(book.timeline.nodes[node].name for node in missing)
    transfers = _transfers(book, image, names, start_s)
    insertion = None
    if transfers:
        insertion = book.link.plan(transfers, now_s)
        if insertion is None:
            return Refusal(
                cause=Cause.LINK,
                start_s=start_s,
                end_s=end_s,
                image=image,
                nodes=names,
                needed_s=sum(transfer.duration_s for transfer in transfers),
            )
    lives, pushed = _stays(book, missing, transfers, insertion, now_s)
    full = _first_full_pool(book, image, lives, pushed, end_s, now_s)
    if full is not None:
        node_name = book.timeline.nodes[full].name
        return Refusal(cause=Cause.POOL, start_s=start_s, end_s=end_s, image=image, nodes=(node_name,))
    return Plan(
        workspace=workspace,
        start_s=start_s,
        end_s=end_s,
        fits=tuple(fits),
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


def _transfers(book: Book, image: Image, nodes: tuple[str, ...], deadline_s: int) -> tuple[Transfer, ...]:
    """The transfers that bring the image to `nodes` by the deadline, under the site's terms."""
    if not nodes:
        return ()
    duration_s = book.terms.duration_s(image)
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
    book: Book, missing: list[int], transfers: tuple[Transfer, ...], insertion: Insertion | None, now_s: int
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
    return next((node for node in sorted(extra) if not pools[node].has_room(extra[node], now_s)), None)


def _next_pool_change(book: Book, image: Image, after_s: int) -> int | None:
    """The next instant at which a pool begins or ceases to promise anything."""
    instants: list[int] = []
    for node in book.pools.nodes_with(image.key):
        for life in book.pools.pools[node].lives.get(image.key, ()):
            instants += [life.ready_s, life.expires_s + 1]
    if any(node.pool_bytes is not None for node in book.timeline.nodes):
        for pool in book.pools.pools:
            for lives in pool.lives.values():
                instants += [instant_s for life in lives for instant_s in (life.start_s, life.expires_s)]
    return min((instant_s for instant_s in instants if instant_s > after_s), default=None)


def _link_frees(book: Book, refusal: Refusal, start_s: int, now_s: int) -> int | None:
    """The first deadline after `start_s` by which the link has enough time left."""
    frees_s = book.link.earliest_deadline(refusal.needed_s, now_s, start_s)
    return frees_s if frees_s > start_s else None
