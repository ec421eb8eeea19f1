"""Leases of unlike instances: each role is a reservation of its own, and all begin together or none does.

A role's reservation is called like the lease with the role's name behind a dot: mpi-17.head. The largest is
placed first, since it has the fewest places; each sees those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.metadata.conversion import deployment_of, role_resources
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers import Decision
from outrider.service.answers.leases import Occurrence
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.state.documents import document_of_role
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish, named, named_by, taken
from outrider.service.requests import Reserve


@dataclass(frozen=True, slots=True)
class _Tried:
    """One role, and what the core says of it."""

    wish: Wish
    answer: ReservationPlan | Rejected
    price: int | None


class RolesAdmission:
    """Decides about all roles of a request, on the book itself."""

    def __init__(self, site: Site, admission: ReservationAdmission) -> None:
        self._site = site
        self._admission = admission

    def decide(
        self, request: Reserve, wish: Wish, program: PolicyRefusal | None, doubts: Doubts
    ) -> Judged | Doubtful:
        """Accept them or refuse them; a plan changes nothing."""
        site, wishes = self._site, self._wishes(request, wish)
        trial = Trial(site.book, site.now_s)
        tried = self._try(trial, wishes, program)
        plans = [each.answer for each in tried if isinstance(each.answer, ReservationPlan)]
        doubtful: dict[str, int] = {}
        for plan in () if request.is_plan else plans:
            for node, needed in doubts(plan).items():
                doubtful[node] = max(doubtful.get(node, 0), needed)
        is_accepted = len(plans) == len(wishes)
        decision = self._decision(wish, tried, is_accepted=is_accepted)
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
                assert isinstance(each.answer, ReservationPlan)
                self._admission.enter(each.wish, each.answer)
        self._admission.note("reserve", decision.name or decision.workspace, decision, wish.caller)
        return Judged(decision=decision)

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

    def _try(self, trial: Trial, wishes: Sequence[Wish], program: PolicyRefusal | None) -> list[_Tried]:
        """One after the other; the first that is refused is the last. The price is that of all together."""
        found: list[_Tried] = []
        plans: tuple[ReservationPlan, ...] = ()
        spent = 0
        for wish in wishes:
            left = None if wish.most_price is None else wish.most_price - spent
            asked = replace(wish, beside=plans, most_price=left)
            answer = self._admission.answer(asked, program, tells_earliest=False)
            price: int | None = None
            if isinstance(answer, ReservationPlan):
                price = self._admission.price(asked, answer)
                spent += price or 0
                plans = (*plans, answer)
                trial.place(answer)
            found.append(_Tried(asked, answer, price))
            if isinstance(answer, Rejected):
                break
        return found

    def _decision(self, wish: Wish, tried: Sequence[_Tried], *, is_accepted: bool) -> Decision:
        """The answer to all: as to the first that is accepted, or to the one that is not."""
        decisions = [self._admission.decision(each.wish, each.answer) for each in tried]
        shown, decision = tried[-1], decisions[-1]
        if not is_accepted:
            words = f"role {shown.wish.document.role}: {decision.reason}"
            return replace(decision, name="", reason=words)
        prices = [each.price for each in tried if each.price is not None]
        nodes = {name for each in tried for name in self._nodes(each)}
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
            price=sum(prices) if prices else None,
            occurrences=tuple(self._part(each) for each in tried),
            notes=tuple(words for each in tried for words in each.wish.notes),
        )

    def _nodes(self, tried: _Tried) -> list[str]:
        nodes = self._site.book.timeline.nodes
        found = tried.answer.fits if isinstance(tried.answer, ReservationPlan) else ()
        return [nodes[chosen.node].name for chosen in found]

    def _part(self, tried: _Tried) -> Occurrence:
        workspace, answer = tried.wish.workspace, tried.answer
        assert workspace.start_s is not None
        return Occurrence(
            name=workspace.name,
            number=tried.wish.document.occurrence,
            result="accepted",
            start_s=workspace.start_s,
            end_s=workspace.start_s + workspace.duration_s,
            nodes=fold(self._nodes(tried)),
            reason="" if isinstance(answer, ReservationPlan) else reason_of(answer.refusal, tried.wish.zone),
            price=tried.price,
            role=tried.wish.document.role,
        )
