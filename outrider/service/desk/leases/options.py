"""A request with several options at the desk: each is asked about, and one goes on as the request itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.options.admission import PossibleOption, Reason, choose
from outrider.metadata.conversion import deployment_of
from outrider.metadata.decision import PolicyRefusal
from outrider.service.answers import Decision, Trouble
from outrider.service.answers.leases import OptionView
from outrider.service.desk.leases.early_starts import at_once, with_earliest
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish, wish_of
from outrider.service.requests import Caller, Reserve


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenWay:
    """The option by which a request is decided: the first to be possible if none is."""

    request: Reserve
    wish: Wish
    views: tuple[OptionView, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answered:
    request: Reserve
    wish: Wish
    decision: Decision
    duration_s: int
    is_late: bool


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
        # What is late even at once cannot be asked for with the deadline.
        in_time = [each for each in views if not found[each.number - 1].is_late]
        index = min(in_time, key=lambda each: (each.earliest_start_s or FOREVER, each.number)).number - 1
    return ChosenWay(request=found[index].request, wish=found[index].wish, views=views)


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
    decision = judged.decision
    if judged.rejected is not None:
        rejected = at_once(with_earliest(site, admission, wish, judged.rejected))
        decision = replace(decision, earliest_start_s=rejected.earliest_start_s)
    return _Answered(
        request=asked, wish=wish, decision=decision, duration_s=deployment.duration_s, is_late=is_late
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
