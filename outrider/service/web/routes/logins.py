"""Routes for a user's own logins at registries: kept, listed without their passwords, given up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.logins import LoginList, LoginView
from outrider.service.ports import RegistryLogin
from outrider.service.web.asking import Asker
from outrider.service.web.errors import refused
from outrider.service.web.requests.bodies import LoginBody
from outrider.service.web.routes.routing import ERRORS, By, answered

Authorization = Annotated[str, Header(include_in_schema=False)]
Host = Annotated[str, Query(max_length=260, description="the registry, HOST or HOST:PORT")]


def login_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["logins"])

    @routes.post("/logins", response_model=LoginView, status_code=201)
    async def log_in(body: LoginBody, caller: By, authorization: Authorization = "") -> Response:
        """Keep the caller's name and password at a registry, if the registry takes them."""
        if authorization:
            # MUNGE vouches for who asks, and hides nothing.
            words = "log in on the service's own machine: over the network nothing hides a password"
            raise refused(403, words, code="not-allowed")
        login = await asker.with_logins(
            caller, lambda book: book.add(caller.uid, body.host, body.user, body.password)
        )
        return answered(_view(login), 201)

    @routes.get("/logins", response_model=LoginList)
    async def logins(caller: By) -> Response:
        """The caller's logins, without passwords."""
        found = await asker.with_logins(caller, lambda book: book.of(caller.uid))
        return answered(LoginList(logins=tuple(map(_view, found))))

    @routes.delete("/logins", response_model=LoginList)
    async def log_out(host: Host, caller: By) -> Response:
        """Forget a login; the others are answered."""
        was_there = await asker.with_logins(caller, lambda book: book.drop(caller.uid, host))
        if not was_there:
            raise refused(404, f"you have no login at {host}: see `outrider logins`", code="not-found")
        found = await asker.with_logins(caller, lambda book: book.of(caller.uid))
        return answered(LoginList(logins=tuple(map(_view, found))))

    return routes


def _view(login: RegistryLogin) -> LoginView:
    return LoginView(host=login.host, user=login.user, since_s=login.since_s)
