"""One reservation of several that would do: each option is assessed as a request of its own.

With a deadline that one is taken that needs least of the nodes: its node-seconds, with the time in which its
image comes counted as if the nodes waited for it. So an option whose image is there already may win, and what
is left to others is most. Without a deadline it is the one that ends first. Ties go by the end, then by the
order given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from outrider.core.model import Reservation, Workspace
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.refusal import Cause, Refusal

Ask = Callable[[Workspace], ReservationPlan | Rejected]
"""What one option would be answered now, with nothing changed."""


class Reason(Enum):
    """Why an option was chosen among those that can be promised."""

    ONLY = "it is the only one that can be promised"
    LEAST = "it takes the least of the nodes among those that are in time"
    IMAGE = "its image is there or comes sooner; another one takes fewer node-hours"
    FIRST_END = "it ends first"


@dataclass(frozen=True, kw_only=True, slots=True)
class PossibleOption:
    """An option that can be promised, as far as the choice depends on it."""

    index: int
    instances: int
    duration_s: int
    end_s: int
    moving_s: int
    """For how long its images are moved."""
    has_deadline: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionAnswer:
    """What became of one option, by its place in the request."""

    index: int
    workspace: Workspace
    plan: ReservationPlan | None = None
    refusal: Refusal | None = None
    earliest_start_s: int | None = None
    """Of a refused one: a start that would be accepted now; of an accepted one its own start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionsAnswer:
    """What became of a request with options: the chosen one and why, or none, and all of them."""

    options: tuple[OptionAnswer, ...]
    chosen: OptionAnswer | None = None
    reason: Reason | None = None
    reservation: Reservation | None = None


def assess_options(
    workspaces: Sequence[Workspace], ask: Ask, *, finish_by_s: int | None = None, tells_all: bool = True
) -> OptionsAnswer:
    """Which of these is to be promised; nothing is changed. Without `tells_all` those are not asked about
    that could not be better than one that has been found.

    All have a start from which on they may begin; the deadline is of all of them. One that could not keep it
    even at once is refused, with the start that it could have without.
    """
    found: list[OptionAnswer] = []
    best: int | None = None
    for place, each in sorted(enumerate(workspaces), key=lambda one: _least_cost(one[1])):
        if not tells_all and finish_by_s is not None and best is not None and best < _least_cost(each):
            continue
        answer = _assessed(place, each, ask, finish_by_s)
        found.append(answer)
        if answer.plan is not None:
            cost = _cost(possible_option(answer))
            best = cost if best is None else min(best, cost)
    found.sort(key=lambda each: each.index)
    index, reason = choose([possible_option(each) for each in found if each.plan is not None])
    if reason is Reason.ONLY and len(found) < len(workspaces):
        reason = Reason.LEAST
    chosen = next((each for each in found if each.index == index), None)
    return OptionsAnswer(options=tuple(found), chosen=chosen, reason=reason)


def _assessed(index: int, workspace: Workspace, ask: Ask, finish_by_s: int | None) -> OptionAnswer:
    start_s = workspace.start_s
    assert start_s is not None
    end_s = start_s + workspace.duration_s
    if finish_by_s is not None and end_s > finish_by_s:
        answer = ask(replace(workspace, finish_by_s=None))
        earliest_s = answer.start_s if isinstance(answer, ReservationPlan) else answer.earliest_start_s
        message = f"it lasts {workspace.duration_s} s, and {finish_by_s - start_s} s are left"
        late = Refusal(cause=Cause.SLOTS, start_s=start_s, end_s=end_s, message=message)
        return OptionAnswer(index=index, workspace=workspace, refusal=late, earliest_start_s=earliest_s)
    asked = workspace if finish_by_s is None else replace(workspace, finish_by_s=finish_by_s)
    answer = ask(asked)
    if isinstance(answer, Rejected):
        return OptionAnswer(
            index=index, workspace=asked, refusal=answer.refusal, earliest_start_s=answer.earliest_start_s
        )
    return OptionAnswer(index=index, workspace=asked, plan=answer, earliest_start_s=answer.start_s)


def admit_options(
    book: Book,
    workspaces: Sequence[Workspace],
    now_s: int,
    *,
    finish_by_s: int | None = None,
    is_plan: bool = False,
    tells_all: bool = True,
) -> OptionsAnswer:
    """Accept a request by one of its options and enter it in the book, or refuse it and change nothing."""

    def ask(workspace: Workspace) -> ReservationPlan | Rejected:
        return assess(book, workspace, now_s)

    with book.timeline.remembering():
        answer = assess_options(workspaces, ask, finish_by_s=finish_by_s, tells_all=tells_all)
    if answer.chosen is None or is_plan:
        return answer
    assert answer.chosen.plan is not None
    # Nothing has changed since the plan was made.
    return replace(answer, reservation=book.commit(answer.chosen.plan, now_s))


def choose(candidates: Sequence[PossibleOption]) -> tuple[int | None, Reason | None]:
    """Which of those that can be promised is to be, by its index, and why."""
    if not candidates:
        return None, None
    if len(candidates) == 1:
        return candidates[0].index, Reason.ONLY
    if not all(each.has_deadline for each in candidates):
        return min(candidates, key=lambda each: (each.end_s, each.index)).index, Reason.FIRST_END

    def cost(each: PossibleOption) -> tuple[int, int, int]:
        return _cost(each), each.end_s, each.index

    chosen = min(candidates, key=cost)
    least = min(each.instances * each.duration_s for each in candidates)
    return chosen.index, Reason.LEAST if chosen.instances * chosen.duration_s == least else Reason.IMAGE


def _cost(each: PossibleOption) -> int:
    return each.instances * (each.duration_s + each.moving_s)


def _least_cost(workspace: Workspace) -> int:
    """What it costs if its image is there already."""
    return workspace.instances * workspace.duration_s


def possible_option(answer: OptionAnswer) -> PossibleOption:
    """What the choice depends on, of an option that can be promised."""
    plan = answer.plan
    assert plan is not None
    return PossibleOption(
        index=answer.index,
        instances=answer.workspace.instances,
        duration_s=answer.workspace.duration_s,
        end_s=plan.end_s,
        moving_s=sum(transfer.duration_s for transfer in plan.transfers),
        has_deadline=answer.workspace.finish_by_s is not None,
    )
