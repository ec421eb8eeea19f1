"""Reservations that recur: each occurrence is a reservation of its own, and all are decided at once.

An occurrence is called like all of them with its number behind a dot: render-17.3. Either all are accepted
or none is; or, as a best fit, those that can be kept. Policies count those that are accepted before one with
what is booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.times import format_instant
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.leases.together import (
    Tried,
    in_turn,
    occurrence_of,
    plans_of,
    settled,
    sum_of,
)
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Reserve


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
        wishes = [_wish_of(wish, number, start_s) for number, start_s in enumerate(request.starts, 1)]
        found = in_turn(
            self._admission, trial, wishes, program, has_one_price=False, is_best_fit=request.is_best_fit
        )
        tried = [self._priced(each) for each in found]
        count = len(plans_of(tried))
        is_accepted = count == len(wishes) or (request.is_best_fit and count > 0)
        decision = self._decision(request, wish, tried, is_accepted=is_accepted)
        return settled(self._admission, trial, request, wish, tried, decision, doubts)

    def _decision(
        self, request: Reserve, wish: Wish, tried: Sequence[Tried], *, is_accepted: bool
    ) -> Decision:
        """The answer to all: as to the first that is accepted, or to the one that is not."""
        shown = next(
            each for each in (tried if is_accepted else reversed(tried))
            if isinstance(each.answer, ReservationPlan) == is_accepted
        )  # fmt: skip
        decision = self._admission.decision(shown.wish, shown.answer)
        occurrences = tuple(occurrence_of(self._site, each) for each in tried)
        if is_accepted:
            price = sum_of(tried)
            return replace(decision, name=wish.workspace.name, price=price, occurrences=occurrences)
        number = shown.wish.document.occurrence
        start = format_instant(request.starts[number - 1], zone=wish.zone)
        reason = f"occurrence {number} of {len(request.starts)}, {start}: {decision.reason}"
        remedy = "take those that can be kept, with --best-fit"
        remedies = decision.remedies if request.is_best_fit else (*decision.remedies, remedy)
        refused = tuple(each for each in occurrences if each.result == "refused")
        return replace(decision, name="", reason=reason, remedies=remedies, occurrences=refused)

    def _priced(self, tried: Tried) -> Tried:
        """Those that are accepted later are in the book by now: the price is that without this one."""
        if isinstance(tried.answer, Rejected):
            return tried
        prices, policies = self._admission.prices, self._admission.policies
        return replace(tried, price=prices.of_plan(policies, tried.answer, tried.wish.workspace.name))


def _wish_of(wish: Wish, number: int, start_s: int) -> Wish:
    workspace = replace(wish.workspace, name=f"{wish.workspace.name}.{number}", start_s=start_s)
    document = replace(wish.document, series=wish.workspace.name, occurrence=number)
    return replace(wish, workspace=workspace, document=document)
