"""Leases of unlike instances: each role is a reservation of its own, and all begin together or none does.

A role's reservation is called like the lease with the role's name behind a dot: mpi-17.head. The largest is
placed first, since it has the fewest places; each sees those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.reservations.trial import Trial
from outrider.metadata.conversion import deployment_of, role_resources
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.decision import Decision
from outrider.service.desk.leases.together import (
    Tried,
    in_turn,
    node_names,
    occurrence_of,
    plans_of,
    settled,
    sum_of,
)
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.state.documents import document_of_role
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish, named, named_by, taken
from outrider.service.requests import Reserve


class RolesAdmission:
    """Decides about all roles of a request, on the book itself."""

    def __init__(self, site: Site, admission: ReservationAdmission) -> None:
        self._site = site
        self._admission = admission

    def decide(
        self, request: Reserve, wish: Wish, program: PolicyRefusal | None, doubts: Doubts
    ) -> Judged | Doubtful:
        """Accept them or refuse them; a plan changes nothing."""
        trial = Trial(self._site.book, self._site.now_s)
        wishes = self._wishes(request, wish)
        tried = in_turn(self._admission, trial, wishes, program)
        decision = self._decision(wish, tried, is_accepted=len(plans_of(tried)) == len(wishes))
        return settled(self._admission, trial, request, wish, tried, decision, doubts)

    def _wishes(self, request: Reserve, wish: Wish) -> list[Wish]:
        """What each role wants, the largest first."""
        site, name = self._site, wish.workspace.name
        deployment = deployment_of(request.workspace)
        found: list[Wish] = []
        for number, role in enumerate(request.workspace.metadata.roles):
            names = named(deployment) | named_by(role)
            resources, words = taken(role_resources(deployment, role), names, site.settings)
            document = document_of_role(wish.document, number, request, wish.caller, name)
            workspace = replace(
                wish.workspace,
                name=f"{name}.{role.name}",
                instances=len(role.hosts),
                resources=resources,
                image=document.image,
            )
            notes = (f"{role.name}: {words}",) if words else ()
            found.append(replace(wish, document=document, workspace=workspace, notes=notes))
        pack = site.book.timeline.layout
        unknown = [each for each in found if pack.unknown(each.workspace.resources)]
        if unknown:
            return unknown
        return sorted(found, key=lambda each: -pack.pack(each.workspace.resources))

    def _decision(self, wish: Wish, tried: Sequence[Tried], *, is_accepted: bool) -> Decision:
        """The answer to all: as to the first that is accepted, or to the one that is not."""
        decisions = [self._admission.decision(each.wish, each.answer) for each in tried]
        shown, decision = tried[-1], decisions[-1]
        if not is_accepted:
            words = f"role {shown.wish.document.role}: {decision.reason}"
            return replace(decision, name="", reason=words)
        nodes = {name for each in tried for name in node_names(self._site, each)}
        ready_s = max(each.ready_s or self._site.now_s for each in decisions)
        return replace(
            decision,
            name=wish.workspace.name,
            nodes=fold(nodes),
            node_count=len(nodes),
            transfers=tuple(moved for each in decisions for moved in each.transfers),
            nodes_with_image="",
            saved_bytes=sum(each.saved_bytes for each in decisions),
            ready_s=ready_s,
            latest_ready_s=max(each.latest_ready_s or ready_s for each in decisions),
            slack_s=None if decision.start_s is None else decision.start_s - ready_s,
            environment="",
            slots=0,
            price=sum_of(tried),
            occurrences=tuple(occurrence_of(self._site, each) for each in tried),
            notes=tuple(words for each in tried for words in each.wish.notes),
        )
