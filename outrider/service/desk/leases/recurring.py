"""Reservations that recur: each occurrence is a reservation of its own, and all are decided at once.

An occurrence is called like all of them with its number behind a dot: render-17.3. Either all are accepted
or none is; or, as a best fit, those that can be kept. Policies count those that are accepted before one with
what is booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.hostlists import fold
from outrider.metadata.notation.times import format_instant
from outrider.service.answers import Decision, Trouble
from outrider.service.answers.leases import Occurrence
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Reserve


@dataclass(frozen=True, slots=True)
class _Tried:
    """One occurrence, and what the core says of it."""

    number: int
    workspace: Workspace
    answer: ReservationPlan | Rejected


class RecurringAdmission:
    """Decides about all occurrences of a request, on the book itself: each has to see those before it."""

    def __init__(self, site: Site, admission: ReservationAdmission) -> None:
        self._site = site
        self._admission = admission

    def decide(
        self, request: Reserve, wish: Wish, program: PolicyRefusal | None, doubts: Doubts
    ) -> Judged | Doubtful | Trouble:
        """Accept them or refuse them; a plan changes nothing."""
        site, most = self._site, self._site.settings.most_occurrences
        if len(request.starts) > most:
            words = (
                f"{len(request.starts)} occurrences are more than the {most} that the site accepts at once: "
                "ask for an earlier end, and for the others later"
            )
            return Trouble(code="invalid", message=words)
        trial = Trial(site.book, site.now_s)
        tried = self._try(trial, request, wish, program)
        plans = [each.answer for each in tried if isinstance(each.answer, ReservationPlan)]
        doubtful = {} if request.is_plan else _doubtful(plans, doubts)
        is_accepted = len(plans) == len(request.starts) or (request.is_best_fit and bool(plans))
        decision = self._decision(request, wish, tried, is_accepted=is_accepted)
        if not is_accepted and not request.is_plan and not doubtful:
            self._admission.lose(wish, decision)
        if doubtful or request.is_plan or not is_accepted:
            trial.undo()
        if doubtful:
            return Doubtful(nodes=doubtful)
        if request.is_plan:
            return Judged(decision=replace(decision, name=""))
        if is_accepted:
            for each in tried:
                if isinstance(each.answer, ReservationPlan):
                    self._admission.enter(_wish_of(wish, each), each.answer)
        self._admission.note("reserve", decision.name or decision.workspace, decision, wish.caller)
        return Judged(decision=decision)

    def _try(self, trial: Trial, request: Reserve, wish: Wish, program: PolicyRefusal | None) -> list[_Tried]:
        """One after the other; the first that is refused is the last, unless the others may do without it."""
        found: list[_Tried] = []
        plans: tuple[ReservationPlan, ...] = ()
        for number, start_s in enumerate(request.starts, 1):
            name = f"{wish.workspace.name}.{number}"
            workspace = replace(wish.workspace, name=name, start_s=start_s)
            asked = replace(wish, workspace=workspace, beside=plans)
            answer = self._admission.answer(asked, program, tells_earliest=False)
            found.append(_Tried(number, workspace, answer))
            if isinstance(answer, ReservationPlan):
                plans = (*plans, answer)
                trial.place(answer)
            elif not request.is_best_fit:
                break
        return found

    def _decision(
        self, request: Reserve, wish: Wish, tried: Sequence[_Tried], *, is_accepted: bool
    ) -> Decision:
        """The answer to all: as to the first that is accepted, or to the one that is not."""
        shown = next(
            each for each in (tried if is_accepted else reversed(tried))
            if isinstance(each.answer, ReservationPlan) == is_accepted
        )  # fmt: skip
        decision = self._admission.decision(_wish_of(wish, shown), shown.answer)
        occurrences = tuple(self._occurrence(each, wish.zone) for each in tried)
        if is_accepted:
            prices = [each.price for each in occurrences if each.price is not None]
            price = sum(prices) if prices else None
            return replace(decision, name=wish.workspace.name, price=price, occurrences=occurrences)
        start = format_instant(request.starts[shown.number - 1], zone=wish.zone)
        reason = f"occurrence {shown.number} of {len(request.starts)}, {start}: {decision.reason}"
        remedy = "take those that can be kept, with --best-fit"
        remedies = decision.remedies if request.is_best_fit else (*decision.remedies, remedy)
        refused = tuple(each for each in occurrences if each.result == "refused")
        return replace(decision, name="", reason=reason, remedies=remedies, occurrences=refused)

    def _price(self, tried: _Tried) -> int | None:
        if isinstance(tried.answer, Rejected):
            return None
        # Those that are accepted later are in the book by now: the price is that without this one.
        prices, policies = self._admission.prices, self._admission.policies
        return prices.of_plan(policies, tried.answer, tried.workspace.name)

    def _occurrence(self, tried: _Tried, zone: tzinfo) -> Occurrence:
        workspace, answer = tried.workspace, tried.answer
        assert workspace.start_s is not None
        is_accepted = isinstance(answer, ReservationPlan)
        nodes = self._site.book.timeline.nodes
        return Occurrence(
            name=workspace.name if is_accepted else "",
            number=tried.number,
            result="accepted" if is_accepted else "refused",
            start_s=workspace.start_s,
            end_s=workspace.start_s + workspace.duration_s,
            nodes=fold(nodes[chosen.node].name for chosen in answer.fits)
            if isinstance(answer, ReservationPlan)
            else "",
            reason="" if isinstance(answer, ReservationPlan) else reason_of(answer.refusal, zone),
            price=self._price(tried),
        )


def _doubtful(plans: Sequence[ReservationPlan], doubts: Doubts) -> dict[str, int]:
    """The nodes that are to be asked first whether they have room, with the most that any plan needs."""
    found: dict[str, int] = {}
    for plan in plans:
        for node, needed in doubts(plan).items():
            found[node] = max(found.get(node, 0), needed)
    return found


def _wish_of(wish: Wish, tried: _Tried) -> Wish:
    document = replace(wish.document, series=wish.workspace.name, occurrence=tried.number)
    return replace(wish, workspace=tried.workspace, document=document)
