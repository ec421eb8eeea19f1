"""The API put together: routes, errors in one form, and the gate that every request passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from outrider.service.front import Busy, Front
from outrider.service.meter import Log, Meter
from outrider.service.settings import Administrators
from outrider.service.web.asking import Asker
from outrider.service.web.connections.munge import Munge
from outrider.service.web.errors import ErrorProblem, RefusedRequest, of_busy, refusal
from outrider.service.web.gate import Gate, fault
from outrider.service.web.identity import Users
from outrider.service.web.limits import Limits
from outrider.service.web.routes.administration import administration_routes
from outrider.service.web.routes.jobs import job_routes
from outrider.service.web.routes.logins import login_routes
from outrider.service.web.routes.looking import looking_routes
from outrider.service.web.routes.page import page_routes
from outrider.service.web.routes.probes import probe_routes
from outrider.service.web.routes.reservations import reservation_routes
from outrider.service.web.routes.routing import ServedRoute
from outrider.service.web.routes.submissions import submission_routes
from outrider.service.web.routes.switches import switch_routes

API_VERSION = "1"
MOST_PROBLEMS = 100


def make_app(
    front: Front,
    *,
    administrators: Administrators,
    meter: Meter,
    log: Log,
    munge: Munge | None = None,
    limits: Limits | None = None,
    monotonic_s: Callable[[], float] | None = None,
) -> Gate:
    """The ASGI application to be served by `server.make_server`.

    Without `munge`, nobody is known over TCP. `monotonic_s` is the event loop's own clock
    unless another is given.
    """
    chosen = limits or Limits()
    users = Users(administrators, monotonic_s or (lambda: asyncio.get_running_loop().time()))
    asker = Asker(front, chosen)
    closers: list[Callable[[], None]] = [users.close, asker.close]
    api = make_api(asker, closers)
    gate = Gate(api, users=users, munge=munge, limits=chosen, meter=meter, log=log, behind=asker.shares)
    closers.append(gate.close)
    return gate


def make_api(asker: Asker, closers: list[Callable[[], None]], route: type[APIRoute] = ServedRoute) -> FastAPI:
    """The routes alone, for requests that have passed the gate. `APIRoute` itself describes answers, too."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for close in closers:
            close()

    api = FastAPI(
        title="Outrider",
        summary="Advance reservations with their images on the nodes in time.",
        version=API_VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    for routes in (
        reservation_routes(asker, route),
        looking_routes(asker, route),
        submission_routes(asker, route),
        job_routes(asker, route),
        login_routes(asker, route),
        administration_routes(asker, route),
        switch_routes(asker, route),
        probe_routes(asker, route),
        page_routes(),
    ):
        api.include_router(routes)
    api.add_exception_handler(RefusedRequest, _on_refused)
    api.add_exception_handler(Busy, _on_busy)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(HTTPException, _on_http)
    api.add_exception_handler(Exception, _on_fault)
    return api


async def _on_refused(_: Request, error: Exception) -> Response:
    return cast(RefusedRequest, error).refusal.response()


async def _on_busy(_: Request, error: Exception) -> Response:
    return of_busy(cast(Busy, error)).refusal.response()


async def _on_fault(_: Request, error: Exception) -> Response:
    return fault().response()


async def _on_invalid(_: Request, error: Exception) -> Response:
    """Faults of a request's form: each with the key that it is about, none with what was sent."""
    found = cast(RequestValidationError, error).errors()[:MOST_PROBLEMS]
    problems = [_problem(cast(Mapping[str, object], each)) for each in found]
    first = problems[0]
    words = f"{first.key}: {first.message}" if first.key else first.message
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return refusal(422, f"{words}{more}", problems=problems).response()


def _problem(error: Mapping[str, object]) -> ErrorProblem:
    place = cast(tuple[object, ...], error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    key = ".".join(str(each) for each in place[1:])[:200]
    return ErrorProblem(key=key, message=f"{message[:1].lower()}{message[1:]}")


async def _on_http(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: paths and methods that there are not."""
    found = cast(HTTPException, error)
    if found.status_code == 404:
        chosen = refusal(
            404, "there is no such path: GET /openapi.json lists those there are", code="not-found"
        )
    elif found.status_code == 405:
        allowed = (found.headers or {}).get("Allow", "")
        words = f"{request.method[:20]} is not for this path: use {allowed or 'another method'}"
        chosen = refusal(405, words, headers={"Allow": allowed} if allowed else {})
    else:
        chosen = refusal(found.status_code, str(found.detail)[:200])
    return chosen.response()
