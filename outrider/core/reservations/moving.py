"""Making way: deadline leases that have not begun go elsewhere, so that one more request can be promised.

A lease with a deadline may start at any time that lets it end in time, so the start that it was given when
it was accepted binds nobody until it has begun. When a request is refused for slots, the link or pools,
leases that share its time are taken out of the book, the request is planned, and they are placed again,
each within its own time: first one of them alone, the one with most slack; then all that share its time;
then all that share time with these as well. Who cannot be placed is placed first the next time; of few
leases all orders are tried. What is accepted holds for all: either everybody has a place, or nothing has
changed. A request that is accepted without all that moves nobody.

The search is not exact: it places each lease at its earliest start. Tests compare it with all ways there are
on tiny sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from outrider.core.model import Reservation, Workspace
from outrider.core.nodes.selection import Fit
from outrider.core.reservations.admission import Review, last_start
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan
from outrider.core.reservations.earliest import earliest_start
from outrider.core.reservations.planning import plan_at
from outrider.core.reservations.splitting import plan_split
from outrider.core.reservations.trial import Trial

MOST_ALONE = 16
"""How many leases are tried as the only one that moves."""

MOST_TOGETHER = 24
"""How many leases move together at most: those with most slack."""

MOST_ORDERS = 16
"""In how many orders so many leases are placed again."""

MOST_PLACED = 500
"""How many places are looked for in all before a request is refused."""

MOST_PERMUTED = 5
"""Of so many, the request included, all orders are tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedLease:
    """A lease that was given another place, and what it took of its nodes before."""

    reservation: Reservation
    before: Reservation
    fits: tuple[Fit, ...]
    need: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeWay:
    """A request that was entered in the book, and who moved for it."""

    plan: ReservationPlan
    moved: tuple[MovedLease, ...]


def make_way(
    book: Book,
    workspace: Workspace,
    now_s: int,
    *,
    is_plan: bool = False,
    review: Review | None = None,
    notice_s: int = 0,
) -> MadeWay | None:
    """Enter a request that was refused, with deadline leases moved for it; None if that is not found.

    Those that begin within `notice_s` stay where they are. `is_plan`: only to know the answer; then the book
    is as it was. The `review` sees the request's plan.
    """
    left = MOST_PLACED
    for order, out in _orders(book, workspace, now_s, notice_s):
        left -= len(order.workspaces)
        if left < 0:
            break
        trial = Trial(book, now_s)
        squeaking = _try(book, trial, order, out, now_s)
        is_refused = isinstance(squeaking, MadeWay) and bool(review and review(squeaking.plan))
        if isinstance(squeaking, MadeWay) and not is_refused:
            if is_plan:
                trial.undo()
            return squeaking
        trial.undo()
        if isinstance(squeaking, MadeWay):
            continue
        order.blame = squeaking
    return None


@dataclass(slots=True)
class _Order:
    """Who is placed in which order; who could not be placed is noted by whoever tried it."""

    workspaces: tuple[Workspace, ...]
    asked: str
    blame: str = ""


def _orders(
    book: Book, workspace: Workspace, now_s: int, notice_s: int
) -> Iterator[tuple[_Order, tuple[str, ...]]]:
    """What to try, the least disturbing first; the caller notes who squeaked before it goes on."""
    movable = {
        name: entry
        for name, entry in book.entries.items()
        if entry.reservation.workspace.finish_by_s is not None
        and entry.reservation.start_s > now_s + notice_s
    }
    near = _sharing(movable, [workspace], now_s)
    if not near:
        return
    if not _has_room_without(book, workspace, near[:MOST_TOGETHER], now_s):
        return
    for name in near[:MOST_ALONE]:
        pair = (workspace, movable[name].reservation.workspace)
        yield _Order(workspaces=pair, asked=workspace.name), (name,)
    tried: set[tuple[str, ...]] = set()
    for out in _groups(movable, workspace, near, now_s):
        leases = tuple(movable[name].reservation.workspace for name in out)
        yield from _sequences((workspace, *leases), out, workspace.name, now_s, tried)


def _has_room_without(book: Book, workspace: Workspace, names: Sequence[str], now_s: int) -> bool:
    """Whether the request would have a place if none of these were there."""
    trial = Trial(book, now_s)
    for name in names:
        trial.take_out(name)
    plan = plan_lease(book, workspace, now_s)
    trial.undo()
    return plan is not None


def _groups(
    movable: dict[str, BookEntry],
    workspace: Workspace,
    near: list[str],
    now_s: int,
) -> Iterator[tuple[str, ...]]:
    together = near[:MOST_TOGETHER]
    if len(together) > 1:
        yield tuple(together)
    all_near = [workspace, *(movable[name].reservation.workspace for name in together)]
    wider = _sharing(movable, all_near, now_s)[:MOST_TOGETHER]
    if len(wider) > len(together):
        yield tuple(wider)


def _sequences(
    leases: tuple[Workspace, ...],
    out: tuple[str, ...],
    asked: str,
    now_s: int,
    tried: set[tuple[str, ...]],
) -> Iterator[tuple[_Order, tuple[str, ...]]]:
    """Orders of these: by slack, by deadline, by time, whoever squeaked first; of few all."""
    for first in (
        sorted(leases, key=lambda each: (_slack_s(each, now_s), _begin_s(each, now_s), each.name)),
        sorted(leases, key=lambda each: (_finish_s(each), each.name)),
        sorted(leases, key=lambda each: (_begin_s(each, now_s), _finish_s(each), each.name)),
    ):
        sequence = tuple(first)
        for _ in range(MOST_ORDERS):
            names = tuple(each.name for each in sequence)
            if names in tried:
                break
            tried.add(names)
            order = _Order(workspaces=sequence, asked=asked)
            yield order, out
            squeaked = [each for each in sequence if each.name == order.blame]
            sequence = (*squeaked, *(each for each in sequence if each.name != order.blame))
    if len(leases) <= MOST_PERMUTED:
        for permuted in permutations(leases):
            names = tuple(each.name for each in permuted)
            if names not in tried:
                tried.add(names)
                yield _Order(workspaces=permuted, asked=asked), out


def _try(book: Book, trial: Trial, order: _Order, out: Sequence[str], now_s: int) -> MadeWay | str:
    """Take leases out and place all in this order; the name of the first that has no place."""
    before = {name: book.entries[name] for name in out}
    marks = {
        name: (entry.reservation, entry.fits, entry.need, entry.spans(now_s))
        for name, entry in before.items()
    }
    for name in out:
        trial.take_out(name)
    plans: dict[str, ReservationPlan] = {}
    placed: dict[str, Reservation] = {}
    for workspace in order.workspaces:
        plan = plan_lease(book, workspace, now_s)
        if plan is None:
            return workspace.name
        plans[workspace.name] = plan
        placed[workspace.name] = trial.place(plan)
    moved = tuple(
        MovedLease(reservation=placed[name], before=marks[name][0], fits=marks[name][1],
                   need=marks[name][2], spans=marks[name][3])
        for name in out
    )  # fmt: skip
    return MadeWay(plan=plans[order.asked], moved=moved)


def plan_lease(book: Book, workspace: Workspace, now_s: int) -> ReservationPlan | None:
    """The first place that a lease can have from now on, in pieces if there is no other."""
    assert workspace.start_s is not None
    start_s, last_s = max(workspace.start_s, now_s), workspace.start_s
    if workspace.finish_by_s is not None or workspace.is_immediate:
        last_s = last_start(book, workspace)
    found_s = earliest_start(book, workspace, start_s, now_s, last_s) if start_s <= last_s else None
    if found_s is None:
        return plan_split(book, workspace, now_s)
    plan = plan_at(book, workspace, found_s, now_s)
    assert isinstance(plan, ReservationPlan)
    return plan


def _sharing(movable: dict[str, BookEntry], others: Sequence[Workspace], now_s: int) -> list[str]:
    """Who could be placed, or has its place, in the time of any of the others: most slack first."""
    first_s = min(_begin_s(each, now_s) for each in others)
    last_s = max(_finish_s(each) for each in others)
    names = [
        name
        for name, entry in movable.items()
        if entry.reservation.start_s < last_s and first_s < entry.end_s
    ]
    slack_s = {name: _slack_s(movable[name].reservation.workspace, now_s) for name in names}
    return sorted(names, key=lambda name: (-slack_s[name], name))


def _begin_s(workspace: Workspace, now_s: int) -> int:
    assert workspace.start_s is not None
    return max(workspace.start_s, now_s)


def _finish_s(workspace: Workspace) -> int:
    assert workspace.start_s is not None
    return workspace.finish_by_s or workspace.start_s + workspace.duration_s


def _slack_s(workspace: Workspace, now_s: int) -> int:
    return _finish_s(workspace) - workspace.duration_s - _begin_s(workspace, now_s)
