"""The first start of a reservation that would be accepted.

Whether a start is accepted changes only at certain instants: where slots begin or end, where the
link has enough time left, where a copy of the image comes or goes, and where a stay of an image
in a pool would begin or end beside other stays. A search goes from one such instant to the next
and plans for each in full, so what it names is accepted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from outrider.core.images.pools import PlannedPool
from outrider.core.links.schedule import without
from outrider.core.model import Workspace
from outrider.core.nodes.earliest_slots import SlotSweep, finished, next_edge
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.planning import Attempt, plan_at
from outrider.core.reservations.refusal import Cause, Refusal

MOST_STARTS_TRIED = 10_000
"""How many candidate starts a search for the earliest one looks at before it gives up."""


def earliest_start(
    book: Book, workspace: Workspace, from_s: int, now_s: int, until_s: int | None = None
) -> int | None:
    """The first start from `from_s` on that would be accepted now; None if there is none by `until_s`.

    Whatever is returned has been planned in full.
    """
    start_s = max(from_s, now_s)
    attempts: list[Attempt] = []
    plan = plan_at(book, workspace, start_s, now_s, attempts=attempts)
    if isinstance(plan, ReservationPlan):
        return start_s
    later = plan_after(book, workspace, start_s, now_s, plan, attempts, until_s)
    return None if later is None else later.start_s


StartSearch = Generator[int, None, ReservationPlan | None]
"""A search that may rest wherever it yields: no start before that instant would be accepted. It goes on only
if nothing has changed; else another one begins there, and gets further with each step."""


def plan_after(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    refusal: Refusal,
    attempts: list[Attempt],
    until_s: int | None = None,
) -> ReservationPlan | None:
    """The plan of the first start, by `until_s`, after one that was refused after these attempts."""
    return finished(search_after(book, workspace, start_s, now_s, refusal, attempts, until_s))


def search_from(
    book: Book, workspace: Workspace, start_s: int, now_s: int, until_s: int | None = None
) -> StartSearch:
    """The plan of the first start from this one on, by `until_s`, looked for a step at a time."""
    attempts: list[Attempt] = []
    answer = plan_at(book, workspace, start_s, now_s, attempts=attempts)
    if isinstance(answer, ReservationPlan):
        return answer
    return (yield from search_after(book, workspace, start_s, now_s, answer, attempts, until_s))


def search_after(
    book: Book,
    workspace: Workspace,
    start_s: int,
    now_s: int,
    refusal: Refusal,
    attempts: list[Attempt],
    until_s: int | None = None,
) -> StartSearch:
    """The same after one that was refused after these attempts."""
    for _ in range(MOST_STARTS_TRIED):
        among = None
        if refusal.cause is Cause.SLOTS:
            following, among = yield from _slots_free(book, workspace, start_s)
        else:
            following = _next_change(book, workspace, start_s, now_s, attempts)
        if following is None or (until_s is not None and following > until_s):
            return None
        yield following
        start_s, attempts = following, []
        answer = plan_at(book, workspace, start_s, now_s, among=among, attempts=attempts)
        if isinstance(answer, ReservationPlan):
            return answer
        refusal = answer
    return None


def _slots_free(
    book: Book, workspace: Workspace, after_s: int
) -> Generator[int, None, tuple[int | None, int]]:
    """The first start after `after_s` with room for all instances, and a mask of where there is any."""
    sweep = SlotSweep(
        book.timeline,
        instances=workspace.instances,
        need=book.timeline.layout.pack(workspace.resources),
        duration_s=workspace.duration_s,
        start_s=after_s,
        available=book.available,
        most_per_node=workspace.most_per_node,
    )
    following = yield from sweep.steps()
    return following, 0 if following is None else sweep.roomy()


def _next_change(
    book: Book, workspace: Workspace, start_s: int, now_s: int, attempts: list[Attempt]
) -> int | None:
    """The next start at which what stood in the way of the images may be gone."""
    image = workspace.image
    assert image is not None
    duration_s = workspace.duration_s
    is_full = any(attempt.refusal.cause is Cause.POOL for attempt in attempts)
    nodes = book.timeline.everyone
    if not is_full and book.terms.shipping is Shipping.RELAY:
        # One transfer is needed unless every instance finds a copy: only where copies are
        # can slots make a difference.
        nodes = book.pools.mask_with(image.key)
    changes = [*_copy_changes(book, workspace, now_s)]
    for attempt in attempts:
        if attempt.refusal.made_s and attempt.insertion is not None:
            # No sooner than it is made; or where another order lets it begin later.
            changes.append(start_s + attempt.refusal.made_s - min(attempt.insertion.latest))
            changes += [at_s for at_s in [book.link.next_deadline(start_s)] if at_s is not None]
        elif attempt.refusal.cause is Cause.LINK:
            with without(book.link, attempt.advanced):
                changes.append(book.link.earliest_deadline_of(attempt.wanted, now_s, start_s))
        else:
            changes += _room_changes(book, attempt, start_s, now_s)
    edge_s = next_edge(book.timeline, nodes, start_s, duration_s)
    if edge_s is not None:
        changes.append(edge_s)
    return min((at_s for at_s in changes if at_s > start_s), default=None)


def _copy_changes(book: Book, workspace: Workspace, now_s: int) -> Iterator[int]:
    """Starts from which on a copy of the image can be used, or cannot any more."""
    image = workspace.image
    assert image is not None
    pools = book.pools.pools
    for node in book.pools.nodes_with(image.key):
        for life in pools[node].lives.get(image.key, ()):
            yield life.ready_s
            yield life.expires_s + 1
            if life.is_firm and life.transfer is not None:
                # Expected at `ready_s`, and certain only later.
                certain_s = book.links.guaranteed_end_of(life.transfer, now_s)
                if certain_s is not None:
                    yield certain_s
    if book.terms.joins_any_image:
        for pool in pools:
            yield from (life.ready_s for lives in pool.lives.values() for life in lives)


def _room_changes(book: Book, attempt: Attempt, start_s: int, now_s: int) -> Iterator[int]:
    """Starts at which pools may have room for what was planned in an attempt.

    A later start moves a transfer back together with those that it pushes ahead, and so the
    stays that they bring: there is more room where one then begins when something else ends. Where
    one ends when something else begins there is only less, so such starts are passed over.
    """
    image, insertion = attempt.refusal.image, attempt.insertion
    assert image is not None
    pools, number_of, reserve_s = book.pools.pools, book.timeline.number_of, book.link.reserve_s
    full = number_of[attempt.refusal.nodes[0]]
    begins: list[tuple[int, int]] = []
    full_from_s: int | None = None
    if insertion is not None:
        for transfer, latest_s in zip(insertion.transfers, insertion.latest, strict=True):
            begins += [(number_of[name], latest_s) for name in transfer.nodes if name in number_of]
        full_from_s = next((latest_s for node, latest_s in begins if node == full), None)
        for transfer, latest_s in zip(insertion.moved, insertion.pushed, strict=True):
            begins += [(node, latest_s) for node, _ in book.lives_of(transfer.number)]
        if reserve_s is not None:
            yield from _link_changes(book, attempt, full, full_from_s, start_s)
    if attempt.refusal.held_bytes or pools[full].is_encumbered:
        # Where others hold what one pool lacks, all like it were left out with it.
        alike = [node for node, pool in enumerate(pools) if pool.is_encumbered]
        begins += [(node, full_from_s) for node in alike if full_from_s is not None]
    if reserve_s is None:
        # What is brought at once is there from now on, whenever it starts.
        return
    nodes = {node for node, _ in begins if _can_be_full(pools[node], image.size_bytes)}
    tight = {node: _instants(pools[node]) for node in nodes}
    for node, latest_s in begins:
        from_s = latest_s - reserve_s
        if node in tight:
            yield from (start_s + at_s - from_s for at_s in (now_s, *tight[node]) if at_s > from_s)


def _link_changes(
    book: Book, attempt: Attempt, full: int, full_from_s: int | None, start_s: int
) -> Iterator[int]:
    """The next start for which transfers would stand in another order and that may give room.

    A stay of its own begins its transfers' time before the start at the latest. So on its own node
    no order can be better before that is behind the next thing that ends there.
    """
    insertion, reserve_s = attempt.insertion, book.link.reserve_s
    assert insertion is not None
    assert reserve_s is not None
    not_before_s = start_s
    if full_from_s is not None:
        ahead_s = sum(
            transfer.duration_s
            for transfer, latest_s in zip(insertion.transfers, insertion.latest, strict=True)
            if latest_s >= full_from_s
        )
        from_s = full_from_s - reserve_s
        later = [at_s for at_s in _instants(book.pools.pools[full]) if at_s > from_s]
        if not later:
            return
        not_before_s = min(later) + reserve_s + ahead_s
    at_s = book.link.next_deadline(start_s)
    if at_s is not None:
        yield max(at_s, not_before_s)


def _can_be_full(pool: PlannedPool, size_bytes: int) -> bool:
    """Whether not all that was ever promised of a pool has room twice, and an image beside it."""
    most = pool.room_bytes
    return most is not None and 2 * pool.promised_bytes + pool.foreign_bytes + size_bytes > most


def _instants(pool: PlannedPool) -> list[int]:
    """When what is promised of a pool, or held by others, changes."""
    found = [hold.until_s for hold in pool.encumbrance.holds]
    for lives in pool.lives.values():
        for life in lives:
            found += (life.start_s, life.expires_s)
    return found
