"""Routes for switches of the whole site: for administrators."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.switch import SwitchView
from outrider.service.requests import DecideSwitch, ShowSwitch
from outrider.service.web.asking import Asker, check_admin
from outrider.service.web.requests.bodies import SwitchBody
from outrider.service.web.requests.understanding import understand_nodes
from outrider.service.web.routes.routing import ERRORS, By, answered


def switch_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["administration"])

    @routes.get("/switch", response_model=SwitchView)
    async def show(caller: By) -> Response:
        """The switch that goes on, or the last one."""
        check_admin(caller)
        return answered(await asker.ask(caller, ShowSwitch(), SwitchView))

    @routes.post("/switch", response_model=SwitchView)
    async def decide(body: SwitchBody, caller: By) -> Response:
        """Plan a switch of jobs' machines to other nodes, and carry it out unless it is only planned."""
        check_admin(caller)
        request = DecideSwitch(
            is_plan=body.is_plan,
            drained=understand_nodes("drained", body.drained),
            fences=tuple(
                (job, ",".join(understand_nodes("fences", nodes)))
                for job, nodes in sorted(body.fences.items())
            ),
            explain=body.explain,
        )
        return answered(await asker.ask(caller, request, SwitchView))

    return routes
