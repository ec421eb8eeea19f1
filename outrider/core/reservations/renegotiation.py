"""A reservation that is already promised, under other terms: all of the new ones, or the old ones.

What is new is planned while the old is out of the way and carried out only if it is accepted;
a refusal, like a question that was only asked, leaves the book as it was to the last step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from outrider.core.images.pools import Life
from outrider.core.model import Placement, Workspace
from outrider.core.nodes.timeline import mask_of
from outrider.core.reservations.admission import Policy, Rejected, Review, assess
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan
from outrider.core.reservations.planning import no_room, plan_at
from outrider.core.reservations.refusal import Cause, Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Renegotiated:
    """The answer, and the transfers that nobody needs any more and that are out of the link."""

    admission: ReservationPlan | Rejected
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """An answer. `keeps_copies`: its plan was made beside the copies that the reservation has."""

    admission: ReservationPlan | Rejected
    keeps_copies: bool = False


def renegotiate(
    book: Book,
    workspace: Workspace,
    now_s: int,
    *,
    policy: Policy | None = None,
    tells_earliest: bool = True,
    is_plan: bool = False,
    among: frozenset[str] | None = None,
    review: Review | None = None,
) -> Renegotiated:
    """Let the reservation of the workspace's name be kept as this workspace says from now on.

    Accepted is whatever would be if there were no such reservation, and what its own
    copies make possible beyond that; policy included. The new plan stays on the nodes of the
    old one, or uses the copies that are there or on their way, unless that takes more
    transfers than an entirely new plan does: so a transfer is kept when its node is used on
    and its deadline, or its planned end if it runs, is not after the new start. Its deadline
    stays what it was.

    `among`: only these nodes may be used. `is_plan`: only to know the answer. In an entry of
    the book the renewed reservation keeps its place among the others.
    """
    entry = book.entries[workspace.name]
    available = book.available
    if among is not None:
        number_of = book.timeline.number_of
        book.available &= mask_of(
            (number_of[name] for name in among if name in number_of), len(book.timeline.rows)
        )
    try:
        choice = _choose(book, entry, workspace, now_s, policy, review, tells_earliest=tells_earliest)
    finally:
        book.available = available
    if is_plan or isinstance(choice.admission, Rejected):
        return Renegotiated(admission=choice.admission)
    return _carry_out(book, entry, choice.admission, now_s, keeps_copies=choice.keeps_copies)


def _choose(
    book: Book,
    entry: BookEntry,
    workspace: Workspace,
    now_s: int,
    policy: Policy | None,
    review: Review | None,
    *,
    tells_earliest: bool,
) -> _Choice:
    name = workspace.name
    with book.without(name, now_s):
        anew = assess(
            book,
            workspace,
            now_s,
            policy=policy,
            tells_earliest=tells_earliest,
            is_renewal=True,
            review=review,
        )
    with book.without(name, now_s, keeps_copies=True), _ready_when_ended(book, now_s):
        if isinstance(anew, ReservationPlan):
            kept = _stay(book, entry, anew, now_s)
            return _Choice(admission=anew) if kept is None else _Choice(admission=kept, keeps_copies=True)
        beside = assess(
            book, workspace, now_s, policy=policy, tells_earliest=False, is_renewal=True, review=review
        )
    if isinstance(beside, ReservationPlan):
        return _Choice(admission=beside, keeps_copies=True)
    return _Choice(admission=anew)


@contextmanager
def _ready_when_ended(book: Book, now_s: int) -> Iterator[None]:
    """For the time being count on the copies that are arriving from the planned end of their
    transfer on, and not only from its deadline on."""
    arriving = _arriving(book)
    instants = [life.ready_s for life, _ in arriving]
    for life, end_s in arriving:
        if end_s > now_s:
            life.ready_s = min(life.ready_s, end_s)
    try:
        yield
    finally:
        for (life, _), ready_s in zip(arriving, instants, strict=True):
            life.ready_s = ready_s


def _arriving(book: Book) -> list[tuple[Life, int]]:
    """The copies that are arriving, and when they will have, by the plan."""
    return [
        (life, end_s)
        for transfer, end_s in book.link.under_way()
        for _, life in book.lives_of(transfer.number)
    ]


def _stay(book: Book, entry: BookEntry, anew: ReservationPlan, now_s: int) -> ReservationPlan | None:
    """The same start with no more transfers on the nodes that the reservation has, or some of them."""
    own = mask_of((chosen.node for chosen in entry.fits), len(book.timeline.rows))
    for among in (own, book.timeline.everyone):
        plan = plan_at(book, anew.workspace, anew.start_s, now_s, among=among)
        if isinstance(plan, ReservationPlan) and len(plan.transfers) <= len(anew.transfers):
            return plan
    return None


def _carry_out(
    book: Book, entry: BookEntry, plan: ReservationPlan, now_s: int, *, keeps_copies: bool
) -> Renegotiated:
    """Take the old one back and enter the new one, from the same states that it was planned in."""
    name = plan.workspace.name
    book.release_slots(entry, now_s)
    if not keeps_copies:
        dropped = book.let_go(entry.lives, name, now_s)
        book.commit(plan, now_s, is_renewal=True)
        return Renegotiated(admission=plan, dropped=dropped)
    arriving = _arriving(book)
    late = [life for _, life in plan.joined if life.ready_s > plan.start_s]
    if any(life in late for life, _ in arriving):
        for life, end_s in arriving:
            life.ready_s = min(life.ready_s, end_s)
    book.commit(plan, now_s, is_renewal=True)
    used: list[Life] = []
    for node, life in (*plan.joined, *plan.bases):
        # It may be needed for less long than before.
        book.pools.set_user(node, life, name, plan.end_s)
        used.append(life)
    left = [(node, life) for node, life in entry.lives if life not in used]
    dropped = book.let_go(left, name, now_s)
    return Renegotiated(admission=plan, dropped=dropped)


def change_end(book: Book, name: str, end_s: int, now_s: int, *, is_plan: bool = False) -> Refusal | None:
    """Let a reservation that has begun end earlier or later, on its nodes; None if it does.

    Its copies stay as long as it does. A refusal changes nothing, and neither does a question
    (`is_plan`). To end it now is to cancel it.
    The workspace in the reservation still says what was asked for at first.
    """
    entry = book.entries[name]
    if end_s <= max(entry.reservation.start_s, now_s) or entry.end_s <= now_s:
        raise ValueError(f"reservation {name} cannot end at {end_s}: cancel it if it is over")
    if end_s > entry.end_s:
        refusal = _refuse_longer(book, entry, end_s, now_s)
        if refusal is not None:
            return refusal
    if is_plan:
        return None
    if end_s > entry.end_s:
        book.timeline.reserve_all(entry.amounts(), entry.end_s, end_s)
    elif end_s < entry.end_s:
        for span in entry.spans(end_s):
            book.timeline.release_all(entry.amounts(), *span)
        book.timeline.list_end((chosen.node for chosen in entry.fits), end_s)
    for node, life in _there(book, entry):
        book.pools.set_user(node, life, name, end_s)
    entry.end_s = end_s
    entry.reservation = replace(entry.reservation, end_s=end_s)
    return None


def give_back(book: Book, name: str, nodes: frozenset[str], now_s: int) -> tuple[int, ...]:
    """Let a reservation that has begun do without these nodes from now on; the transfers that nobody needs
    any more and that are out of the link."""
    entry, rows = book.entries[name], book.timeline.nodes
    left = tuple(chosen for chosen in entry.fits if rows[chosen.node].name not in nodes)
    if not left or entry.reservation.pieces:
        raise ValueError(
            f"reservation {name} cannot give back {sorted(nodes)}: it would have no node, or is split"
        )
    gone = {chosen.node for chosen in entry.fits} - {chosen.node for chosen in left}
    amounts = [(node, amount) for node, amount in entry.amounts() if node in gone]
    for span in entry.spans(now_s):
        book.timeline.release_all(amounts, *span)
    lives = [each for each in entry.lives if each[0] in gone]
    entry.lives = [each for each in entry.lives if each[0] not in gone]
    entry.fits = left
    reservation = entry.reservation
    workspace = replace(reservation.workspace, instances=sum(chosen.instances for chosen in left))
    placements = tuple(each for each in reservation.placements if each.node not in nodes)
    entry.reservation = replace(reservation, workspace=workspace, placements=placements)
    return book.let_go(lives, name, now_s)


def take_more(
    book: Book, name: str, count: int, now_s: int, review: Review | None = None, *, is_plan: bool = False
) -> ReservationPlan | Refusal:
    """Let a reservation that has begun have so many nodes more, from now on until its end; its image is on
    them already, since there is no time to bring it. `is_plan`: only to know the answer."""
    entry = book.entries[name]
    reservation = entry.reservation
    if not reservation.start_s <= now_s < entry.end_s or reservation.pieces:
        raise ValueError(f"reservation {name} has not begun, is over, or is split: it has no more nodes")
    workspace = reservation.workspace
    more = replace(
        workspace, instances=count, start_s=now_s, duration_s=entry.end_s - now_s, finish_by_s=None
    )
    plan = plan_at(book, more, now_s, now_s)
    if isinstance(plan, Refusal):
        return plan
    words = review(plan) if review is not None else ""
    if words:
        return Refusal(cause=Cause.POLICY, start_s=now_s, end_s=entry.end_s, message=words)
    if is_plan:
        return plan
    amounts = [(chosen.node, entry.need * chosen.instances) for chosen in plan.fits]
    book.timeline.reserve_all(amounts, now_s, entry.end_s)
    book.add_copies(plan, now_s)
    entry.fits = (*entry.fits, *plan.fits)
    nodes = book.timeline.nodes
    placements = tuple(Placement(node=nodes[each.node].name, instances=each.instances) for each in plan.fits)
    entry.reservation = replace(
        entry.reservation,
        workspace=replace(workspace, instances=workspace.instances + count),
        placements=(*entry.reservation.placements, *placements),
    )
    return plan


def begin_waiting(book: Book, name: str, start_s: int, end_s: int, now_s: int) -> None:
    """A reservation that had its nodes while an event was waited for begins at `start_s`, and ends sooner."""
    entry = book.entries[name]
    if not entry.reservation.start_s <= now_s <= start_s < end_s <= entry.end_s:
        raise ValueError(
            f"reservation {name} has its nodes until {entry.end_s}: not from {start_s} to {end_s}"
        )
    if end_s < entry.end_s:
        change_end(book, name, end_s, now_s)
    entry.reservation = replace(entry.reservation, start_s=start_s)


def _refuse_longer(book: Book, entry: BookEntry, end_s: int, now_s: int) -> Refusal | None:
    start_s = entry.end_s
    rows = book.timeline.rows
    room = sum(rows[chosen.node].most(entry.need, start_s, end_s, chosen.instances) for chosen in entry.fits)
    instances = sum(chosen.instances for chosen in entry.fits)
    if room < instances:
        return Refusal(cause=Cause.SLOTS, start_s=start_s, end_s=end_s, instances=instances, room=room)
    # Of an image with parts a node may have several that have to stay together.
    longer: dict[int, list[tuple[int, int, int]]] = {}
    for node, life in _there(book, entry):
        if life.expires_s < end_s:
            stay = (max(life.expires_s, now_s), end_s, life.image.size_bytes)
            longer.setdefault(node, []).append(stay)
    image = entry.reservation.workspace.image
    for node, stays in longer.items():
        if image is not None and not book.pools.pools[node].has_room(stays, now_s, image.key):
            return no_room(book, node, image, start_s, end_s, min(stays)[0])
    return None


def _there(book: Book, entry: BookEntry) -> list[tuple[int, Life]]:
    """The reservation's copies that have not expired and been forgotten."""
    pools = book.pools.pools
    return [each for each in entry.lives if each[1] in pools[each[0]].lives.get(each[1].image.key, ())]
