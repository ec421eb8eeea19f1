"""A request with several options at the desk: each is asked about, and one goes on as the request itself."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.options.admission import PossibleOption, Reason, choose
from outrider.core.reservations.admission import Rejected
from outrider.metadata.conversion import deployment_of
from outrider.metadata.decision import PolicyRefusal
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import OptionView
from outrider.service.answers.reply import Trouble
from outrider.service.desk.leases.early_starts import with_earliest
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish, wish_of
from outrider.service.requests import Caller, Reserve


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedWay:
    """An option that is refused, by its place among all."""

    index: int
    request: Reserve
    wish: Wish
    rejected: Rejected
    is_late: bool
    """Whether it could not end in time even if it started at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenWay:
    """The option by which a request is decided: the first that is in time if none is possible."""

    request: Reserve
    wish: Wish
    views: tuple[OptionView, ...]
    refused: tuple[RefusedWay, ...]
    """Of which it is not known yet when each could start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answered:
    request: Reserve
    wish: Wish
    decision: Decision
    rejected: Rejected | None
    duration_s: int
    is_late: bool


def with_starts(
    site: Site, admission: ReservationAdmission, way: ChosenWay
) -> Generator[None, None, tuple[tuple[OptionView, ...], RefusedWay | None]]:
    """The options, each that is refused with its earliest start, in slices; and of those that are in time the
    one that could start first."""
    views, first, starts = list(way.views), None, []
    for each in way.refused:
        rejected = yield from with_earliest(site, admission, each.wish, each.rejected)
        yield
        start_s = rejected.earliest_start_s
        views[each.index] = replace(views[each.index], earliest_start_s=start_s)
        # What is late even at once cannot be asked for with the deadline.
        if not each.is_late:
            starts.append(
                (FOREVER if start_s is None else start_s, each.index, replace(each, rejected=rejected))
            )
    if starts:
        _, _, first = min(starts, key=lambda found: found[:2])
    return tuple(views), first


def chosen_way(
    site: Site,
    admission: ReservationAdmission,
    caller: Caller,
    request: Reserve,
    program: PolicyRefusal | None,
) -> ChosenWay | Trouble:
    """Ask about each option as a request of its own, with nothing changed, and take the best."""
    if request.starts:
        return Trouble(
            code="invalid", message="a request with options does not recur: leave out one of the two"
        )
    found: list[_Answered] = []
    with site.book.timeline.remembering():
        for number, file in enumerate(request.workspace.ways()):
            image = request.option_images[number] if request.option_images else None
            asked = replace(request, workspace=file, image=image or request.image, option_images=())
            answered = _ask(site, admission, caller, asked, program)
            if isinstance(answered, Trouble):
                return answered
            found.append(answered)
    if all(each.is_late for each in found):
        words = (
            f"workspace {request.workspace.metadata.name} cannot end by its finish_by any more by any option"
        )
        return Trouble(code="invalid", message=words)
    possible = [index for index, each in enumerate(found) if _is_possible(each)]
    index, reason = choose([_candidate(index, found[index]) for index in possible])
    views = tuple(_view(number, each, index, reason) for number, each in enumerate(found))
    if index is None:
        index = next(number for number, each in enumerate(found) if not each.is_late)
    refused = tuple(
        RefusedWay(
            index=number, request=each.request, wish=each.wish, rejected=each.rejected, is_late=each.is_late
        )
        for number, each in enumerate(found)
        if each.rejected is not None
    )
    return ChosenWay(request=found[index].request, wish=found[index].wish, views=views, refused=refused)


def _ask(
    site: Site,
    admission: ReservationAdmission,
    caller: Caller,
    request: Reserve,
    program: PolicyRefusal | None,
) -> _Answered | Trouble:
    deployment = deployment_of(request.workspace)
    start_s = site.now_s if deployment.start_s is None else deployment.start_s
    finish_by_s = deployment.finish_by_s
    is_late = finish_by_s is not None and start_s + deployment.duration_s > finish_by_s
    if is_late:
        deployment = deployment.model_copy(update={"start_s": start_s, "finish_by_s": None})
    asked = replace(request, workspace=request.workspace.model_copy(update={"deployment": deployment}))
    wish = wish_of(site, admission.policies, caller, asked)
    if isinstance(wish, Trouble):
        return wish
    judged = admission.plan(wish, program)
    return _Answered(
        request=asked,
        wish=wish,
        decision=judged.decision,
        rejected=judged.rejected,
        duration_s=deployment.duration_s,
        is_late=is_late,
    )


def _is_possible(each: _Answered) -> bool:
    return not each.is_late and each.decision.result == "accepted"


def _candidate(index: int, each: _Answered) -> PossibleOption:
    decision = each.decision
    assert decision.end_s is not None
    return PossibleOption(
        index=index,
        instances=decision.node_count,
        duration_s=each.duration_s,
        end_s=decision.end_s,
        moving_s=sum(transfer.duration_s for transfer in decision.transfers),
        has_deadline=each.wish.workspace.finish_by_s is not None,
    )


def _view(number: int, each: _Answered, chosen: int | None, reason: Reason | None) -> OptionView:
    decision = each.decision
    is_accepted = decision.result == "accepted"
    result: Literal["chosen", "possible", "refused"] = "refused"
    if number == chosen and reason is not None:
        result, words = "chosen", reason.value
    elif _is_possible(each):
        result, words = "possible", "another one is taken"
    elif each.is_late:
        words = "it lasts longer than is left until the deadline"
    else:
        words = decision.reason
    return OptionView(
        number=number + 1,
        result=result,
        node_count=each.wish.workspace.instances,
        duration_s=each.duration_s,
        earliest_start_s=decision.start_s if is_accepted else decision.earliest_start_s,
        words=words,
        image=each.request.workspace.metadata.image.uri,
    )
