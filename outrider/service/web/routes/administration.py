"""Routes for administrators: what the service runs with, its policies, its store, its view of the world."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.nodes import Reconciled
from outrider.service.front import BackedUp, Configuration, Reloaded
from outrider.service.requests import Reconcile
from outrider.service.web.asking import Asker, check_admin
from outrider.service.web.requests.bodies import BackupBody
from outrider.service.web.routes.routing import ERRORS, By, answered


def administration_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["administration"])

    @routes.get("/config", response_model=Configuration)
    async def config(caller: By) -> Response:
        """What the service runs with, without secrets."""
        return answered(await asker.administer(caller, asker.front.config))

    @routes.post("/policies/reload", response_model=Reloaded)
    async def reload_policies(caller: By) -> Response:
        """Read the policies again; faulty ones change nothing."""
        return answered(await asker.administer(caller, asker.front.reload_policies))

    @routes.post("/reconcile", response_model=Reconciled)
    async def reconcile(caller: By) -> Response:
        """Compare store, batch system and nodes now."""
        check_admin(caller)
        return answered(await asker.ask(caller, Reconcile(), Reconciled))

    @routes.post("/backups", response_model=BackedUp)
    async def back_up(body: BackupBody, caller: By) -> Response:
        """Write a copy of the store, while the service runs."""
        return answered(await asker.administer(caller, lambda: asker.front.back_up(body.path)))

    return routes
