"""Reservations that may yield give way to others, if the site's order lets them.

Asked for only when nothing else helps: the request was refused, and moving deadline leases did not help. Who
yields is taken in the site's order until the request has a place, and whoever then turns out not to be in the
way keeps what it has. A reservation that has begun keeps its nodes until the request's time begins; one that
has not is taken back, unless it has a deadline and another place is found for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.core.model import Reservation, Resources, Workspace
from outrider.core.reservations.admission import Review
from outrider.core.reservations.book import Book, BookEntry, ReservationPlan
from outrider.core.reservations.moving import MovedLease, plan_lease
from outrider.core.reservations.renegotiation import change_end
from outrider.core.reservations.trial import Trial

if TYPE_CHECKING:
    from outrider.core.leases.preemption import Candidate, PreemptionOrder

Outranks = Callable[[Workspace, Workspace], bool]
"""Whether the first may take the place of the second, which may yield."""


@dataclass(frozen=True, kw_only=True, slots=True)
class YieldedLease:
    """A reservation that has yielded: it has its nodes until `until_s`, which is its start if never."""

    before: Reservation
    until_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Preempted:
    """A request that was entered in the book, and what became of those in its way.

    `freed` is what each of them took before, and does not take any more as it did.
    """

    plan: ReservationPlan
    moved: tuple[MovedLease, ...]
    yielded: tuple[YieldedLease, ...]
    freed: tuple[MovedLease, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PreemptionRules:
    """Who may take whose place, and who yields first."""

    order: PreemptionOrder
    outranks: Outranks
    memory_bytes: Callable[[Resources], int] = lambda resources: 0


def preempt(
    book: Book,
    workspace: Workspace,
    now_s: int,
    rules: PreemptionRules,
    *,
    is_plan: bool = False,
    review: Review | None = None,
) -> Preempted | None:
    """Enter a request that was refused, in the place of reservations that may yield; None if none helps."""
    names = _candidates(book, workspace, now_s, rules)
    count = next((n for n in range(1, len(names) + 1) if _helps(book, workspace, names[:n], now_s)), 0)
    if not count:
        return None
    needed = names[:count]
    for name in names[: count - 1]:
        fewer = [each for each in needed if each != name]
        if _helps(book, workspace, fewer, now_s):
            needed = fewer
    trial = Trial(book, now_s)
    before = {name: _mark(book.entries[name], now_s) for name in needed}
    _clear(book, trial, needed, workspace, now_s)
    plan = plan_lease(book, workspace, now_s)
    assert plan is not None
    if review is not None and review(plan):
        trial.undo()
        return None
    trial.place(plan)
    moved: list[MovedLease] = []
    yielded: list[YieldedLease] = []
    for name in needed:
        mark = before[name]
        entry = book.entries.get(name)
        if entry is not None:
            yielded.append(YieldedLease(before=mark.before, until_s=entry.end_s))
            continue
        other = _place_again(book, mark.before, now_s)
        if other is None:
            yielded.append(YieldedLease(before=mark.before, until_s=max(mark.before.start_s, now_s)))
            continue
        moved.append(
            MovedLease(
                reservation=trial.place(other),
                before=mark.before,
                fits=mark.fits,
                need=mark.need,
                spans=mark.spans,
            )
        )
    if is_plan:
        trial.undo()
    return Preempted(
        plan=plan,
        moved=tuple(moved),
        yielded=tuple(yielded),
        freed=tuple(before.values()),
    )


def _mark(entry: BookEntry, now_s: int) -> MovedLease:
    return MovedLease(
        reservation=entry.reservation,
        before=entry.reservation,
        fits=entry.fits,
        need=entry.need,
        spans=entry.spans(now_s),
    )


def _place_again(book: Book, reservation: Reservation, now_s: int) -> ReservationPlan | None:
    if reservation.workspace.finish_by_s is None:
        return None
    return plan_lease(book, reservation.workspace, now_s)


def _helps(book: Book, workspace: Workspace, names: Sequence[str], now_s: int) -> bool:
    trial = Trial(book, now_s)
    _clear(book, trial, names, workspace, now_s)
    plan = plan_lease(book, workspace, now_s)
    trial.undo()
    return plan is not None


def _clear(book: Book, trial: Trial, names: Sequence[str], workspace: Workspace, now_s: int) -> None:
    """Take back what these have from the request's time on."""
    assert workspace.start_s is not None
    from_s = max(workspace.start_s, now_s)
    for name in names:
        entry = book.entries[name]
        if entry.reservation.start_s <= now_s < from_s:
            trial.touch(name)
            change_end(book, name, from_s, now_s)
        else:
            trial.take_out(name)


def _candidates(book: Book, workspace: Workspace, now_s: int, rules: PreemptionRules) -> list[str]:
    """Who may yield to the request and shares its time, whoever yields first in front."""
    from outrider.core.leases.preemption import Candidate

    assert workspace.start_s is not None
    last_s = workspace.finish_by_s or workspace.start_s + workspace.duration_s
    found: list[Candidate] = []
    for number, (name, entry) in enumerate(book.entries.items()):
        lease = entry.reservation.workspace
        if not lease.may_yield or not rules.outranks(workspace, lease):
            continue
        if entry.reservation.start_s < last_s and max(workspace.start_s, now_s) < entry.end_s:
            found.append(
                Candidate(
                    name=name,
                    order=(number,),
                    duration_s=lease.duration_s,
                    instances=lease.instances,
                    owner=lease.owner,
                    done_s=sum(max(0, min(end_s, now_s) - start_s) for start_s, end_s in entry.spans()),
                    memory_bytes=lease.instances * rules.memory_bytes(lease.resources),
                    keeps_work=book.terms.split_overhead_s is not None,
                )
            )
    return [each.name for each in rules.order.sort(found)]
