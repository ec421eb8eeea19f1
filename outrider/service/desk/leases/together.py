"""Several reservations of one request, of which all are decided at once: occurrences, roles, pieces.

They are tried on the book itself, one after the other, so that each sees those before it; then all are
entered, or the book is again as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import Occurrence
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Reserve


@dataclass(frozen=True, slots=True)
class Tried:
    """One of them, and what the core says of it."""

    wish: Wish
    answer: ReservationPlan | Rejected
    price: int | None
    """What it costs beside those before it."""


def in_turn(
    admission: ReservationAdmission,
    trial: Trial,
    wishes: Iterable[Wish],
    program: PolicyRefusal | None,
    *,
    has_one_price: bool = True,
    is_best_fit: bool = False,
) -> list[Tried]:
    """One after the other; the first that is refused is the last, unless it is a best fit. The most that all
    may cost is one sum, or the most for each."""
    found: list[Tried] = []
    plans: tuple[ReservationPlan, ...] = ()
    spent = 0
    for wish in wishes:
        left = wish.most_price
        if left is not None and has_one_price:
            left -= spent
        asked = replace(wish, beside=plans, most_price=left)
        answer = admission.answer(asked, program)
        price: int | None = None
        if isinstance(answer, ReservationPlan):
            price = admission.price(asked, answer)
            spent += price or 0
            plans = (*plans, answer)
            trial.place(answer)
        found.append(Tried(asked, answer, price))
        if isinstance(answer, Rejected) and not is_best_fit:
            break
    return found


def plans_of(tried: Sequence[Tried]) -> list[ReservationPlan]:
    """Of those that would be accepted."""
    return [each.answer for each in tried if isinstance(each.answer, ReservationPlan)]


def settled(
    admission: ReservationAdmission,
    trial: Trial,
    request: Reserve,
    wish: Wish,
    tried: Sequence[Tried],
    decision: Decision,
    doubts: Doubts,
) -> Judged | Doubtful:
    """Enter what is accepted, and undo the rest; a plan, or what nodes are to be asked about, changes
    nothing."""
    doubtful: dict[str, int] = {}
    for plan in () if request.is_plan else plans_of(tried):
        for node, needed in doubts(plan).items():
            doubtful[node] = max(doubtful.get(node, 0), needed)
    is_accepted = decision.result == "accepted"
    if not is_accepted and not request.is_plan and not doubtful:
        admission.lose(wish, decision)
    if doubtful or request.is_plan or not is_accepted:
        trial.undo()
    if doubtful:
        return Doubtful(nodes=doubtful)
    if request.is_plan:
        return Judged(decision=replace(decision, name=""))
    for each in tried if is_accepted else ():
        if isinstance(each.answer, ReservationPlan):
            admission.enter(each.wish, each.answer)
    admission.note("reserve", decision.name or decision.workspace, decision, wish.caller)
    return Judged(decision=decision)


def occurrence_of(site: Site, tried: Tried) -> Occurrence:
    """What is said of one of them."""
    workspace, answer = tried.wish.workspace, tried.answer
    assert workspace.start_s is not None
    is_accepted = isinstance(answer, ReservationPlan)
    return Occurrence(
        name=workspace.name if is_accepted else "",
        number=tried.wish.document.occurrence,
        result="accepted" if is_accepted else "refused",
        start_s=workspace.start_s,
        end_s=workspace.start_s + workspace.duration_s,
        nodes=fold(node_names(site, tried)),
        reason="" if isinstance(answer, ReservationPlan) else reason_of(answer.refusal, tried.wish.zone),
        price=tried.price,
        role=tried.wish.document.role,
    )


def node_names(site: Site, tried: Tried) -> list[str]:
    """Its nodes; none if it is refused."""
    nodes = site.book.timeline.nodes
    fits = tried.answer.fits if isinstance(tried.answer, ReservationPlan) else ()
    return [nodes[chosen.node].name for chosen in fits]


def sum_of(tried: Iterable[Tried]) -> int | None:
    """What all cost together; None where nothing has a price."""
    prices = [each.price for each in tried if each.price is not None]
    return sum(prices) if prices else None
