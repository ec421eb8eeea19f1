"""Routes for reservations: ask for one, plan one, look at them, change and cancel them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.decision import Decision
from outrider.service.answers.events import EventTaken
from outrider.service.answers.leases import LeaseDetails, LeaseList
from outrider.service.answers.records import Explanation
from outrider.service.answers.reservations import ReservationDetails, ReservationList
from outrider.service.requests import (
    Accept,
    Cancel,
    Explain,
    ListLeases,
    ListReservations,
    Reserve,
    Show,
    ShowLease,
    SignedCall,
    Trigger,
)
from outrider.service.web.asking import Asker
from outrider.service.web.errors import of_unmade
from outrider.service.web.requests.bodies import (
    CallBody,
    ChangeBody,
    ChangeQuery,
    LeasesQuery,
    ReservationsQuery,
    ReserveBody,
    TriggerBody,
)
from outrider.service.web.requests.understanding import hash_of, understand_change
from outrider.service.web.routes.routing import ERRORS, By, Key, OfferName, ReservationName, answered


def reservation_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["reservations"])
    _add_asking(routes, asker)
    _add_looking(routes, asker)
    _add_leases(routes, asker)
    _add_changing(routes, asker)
    return routes


def _add_asking(routes: APIRouter, asker: Asker) -> None:
    @routes.post(
        "/reservations",
        response_model=Decision,
        responses={201: {"model": Decision, "description": "Accepted."}},
        response_description="Refused, with the reason and what would work.",
    )
    async def reserve(body: ReserveBody, caller: By, key: Key = "") -> Response:
        """Ask for a reservation."""
        hashed = hash_of("POST", "/v1/reservations", body)
        decision = await asker.recalled(caller, key, hashed)
        if decision is None:
            request = await asker.wanted(caller, body)
            unmade = _unmade(request)
            # It is accepted when its image is there, and may be refused before that.
            request = replace(request, key=key, request_hash=hashed, is_plan=bool(unmade))
            decision = _noted(await asker.ask(caller, request, Decision), request)
            if unmade and decision.result == "accepted":
                raise of_unmade("; ".join(unmade))
        if decision.result == "refused":
            return answered(decision)
        return answered(decision, 201, {"Location": f"/v1/reservations/{decision.name}"})

    @routes.post(
        "/offers/{name}",
        response_model=Decision,
        responses={201: {"model": Decision, "description": "Accepted."}},
        response_description="Refused: it cannot be kept any more.",
    )
    async def accept(name: OfferName, caller: By, key: Key = "") -> Response:
        """Accept an offer that was made in the place of a refusal."""
        hashed = hash_of("POST", f"/v1/offers/{name}", None)
        decision = await asker.recalled(caller, key, hashed)
        if decision is None:
            request = Accept(name=name, key=key, request_hash=hashed)
            decision = await asker.ask(caller, request, Decision)
        if decision.result == "refused":
            return answered(decision)
        return answered(decision, 201, {"Location": f"/v1/reservations/{decision.name}"})

    @routes.post("/plans", response_model=Decision)
    async def plan(body: ReserveBody, caller: By) -> Response:
        """What a reservation would be answered now; nothing is changed."""
        request = replace(await asker.wanted(caller, body), is_plan=True)
        return answered(_noted(await asker.ask(caller, request, Decision), request))


def _unmade(request: Reserve) -> tuple[str, ...]:
    """How far each of its images is that is only being made."""
    images = (request.image, *request.role_images, *request.option_images)
    return tuple(dict.fromkeys(each.unmade for each in images if each is not None and each.unmade))


def _noted(decision: Decision, request: Reserve) -> Decision:
    """With what its workspace asks for in vain, and what of the answer is only expected."""
    expected = tuple(f"{words}; its size and times are what is expected" for words in _unmade(request))
    return replace(decision, notes=(*request.workspace.unused_keys, *expected, *decision.notes))


def _add_looking(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/reservations", response_model=ReservationList)
    async def list_reservations(query: Annotated[ReservationsQuery, Query()], caller: By) -> Response:
        """Reservations, the youngest first."""
        request = ListReservations(
            is_past=query.past,
            user=query.user or None,
            states=tuple(each for each in query.state.split(",") if each),
            after=query.after,
            most=query.most,
        )
        return answered(await asker.ask(caller, request, ReservationList))

    @routes.get("/reservations/{name}", response_model=ReservationDetails)
    async def show(name: ReservationName, caller: By) -> Response:
        """All about one reservation."""
        return answered(await asker.ask(caller, Show(name=name), ReservationDetails))

    @routes.get("/reservations/{name}/explanation", response_model=Explanation)
    async def explain(name: ReservationName, caller: By) -> Response:
        """Why it is as it is."""
        return answered(await asker.ask(caller, Explain(name=name), Explanation))


def _add_leases(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/leases", response_model=LeaseList)
    async def leases(query: Annotated[LeasesQuery, Query()], caller: By) -> Response:
        """Leases of every kind that are not over, and the caller's offers, in the order of their starts."""
        request = ListLeases(kind=query.kind or None, user=query.user or None, most=query.most)
        return answered(await asker.ask(caller, request, LeaseList))

    @routes.get("/leases/{name}", response_model=LeaseDetails)
    async def lease(name: ReservationName, caller: By) -> Response:
        """One of them, with its reservations."""
        return answered(await asker.ask(caller, ShowLease(name=name), LeaseDetails))


def _add_changing(routes: APIRouter, asker: Asker) -> None:
    @routes.patch("/reservations/{name}", response_model=Decision)
    async def change(
        name: ReservationName,
        body: ChangeBody,
        query: Annotated[ChangeQuery, Query()],
        caller: By,
        key: Key = "",
    ) -> Response:
        """Other times or another number of nodes, or all stays as it is."""
        hashed = hash_of("PATCH", f"/v1/reservations/{name}?plan={query.plan}", body)
        recalled = await asker.recalled(caller, key, hashed)
        if recalled is not None:
            return answered(recalled)
        request = understand_change(
            name,
            body,
            asker.front.now_s(),
            is_plan=query.plan,
            key=key,
            hashed=hashed,
        )
        return answered(await asker.ask(caller, request, Decision))

    @routes.post("/reservations/{name}/trigger", response_model=ReservationDetails)
    async def trigger(name: ReservationName, body: TriggerBody, caller: By) -> Response:
        """The event that an open reservation waits for has come, or the one that ends it."""
        request = Trigger(name=name, is_end=body.what == "end")
        return answered(await asker.ask(caller, request, ReservationDetails))

    @routes.post("/reservations/{name}/call", response_model=EventTaken)
    async def call(name: ReservationName, body: CallBody, caller: By) -> Response:
        """A signed call, which anybody may make, begins or ends an open reservation."""
        request = SignedCall(name=name, what=body.what, at_s=body.at_s, signature=body.signature)
        return answered(await asker.ask(caller, request, EventTaken))

    @routes.delete("/reservations/{name}", response_model=ReservationDetails | ReservationList)
    async def cancel(name: ReservationName, caller: By, key: Key = "") -> Response:
        """Give a reservation up, or all of one that recurs."""
        hashed = hash_of("DELETE", f"/v1/reservations/{name}", None)
        request = Cancel(name=name, key=key, request_hash=hashed)
        return answered(await asker.ask(caller, request, (ReservationDetails, ReservationList)))
