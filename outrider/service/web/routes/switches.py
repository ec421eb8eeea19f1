"""Routes for switches of the whole site: for administrators."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.nodes import NodeList
from outrider.service.answers.switch import SwitchView
from outrider.service.requests import Caller, DecideSwitch, ListNodes, ShowSwitch
from outrider.service.web.asking import Asker, check_admin
from outrider.service.web.errors import refused
from outrider.service.web.requests.bodies import DrainBody, SwitchBody
from outrider.service.web.requests.understanding import understand_nodes
from outrider.service.web.routes.routing import ERRORS, By, answered

MOST_LOOKS, LOOK_S = 50, 0.2


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
        nodes = understand_nodes("drained", body.drained)
        if nodes and not body.is_plan:
            await _drained(asker, caller, nodes, is_ended=False)
        request = DecideSwitch(
            is_plan=body.is_plan,
            drained=nodes,
            fences=tuple(
                (job, ",".join(understand_nodes("fences", among)))
                for job, among in sorted(body.fences.items())
            ),
            explain=body.explain,
        )
        return answered(await asker.ask(caller, request, SwitchView))

    @routes.post("/nodes/drain", response_model=NodeList)
    async def drain(body: DrainBody, caller: By) -> Response:
        """Let nodes take no jobs, or take them again, where the batch system has no commands for that."""
        check_admin(caller)
        nodes = understand_nodes("nodes", body.nodes)
        if not await _drained(asker, caller, nodes, is_ended=body.is_ended):
            words = (
                f"{body.nodes}: that a node takes jobs or not is said to the batch system itself "
                "(scontrol update NodeName=... State=DRAIN or RESUME; with Grid Engine qmod -d, -e)"
            )
            raise refused(409, words, code="conflict")
        return answered(await asker.ask(caller, ListNodes(names=nodes), NodeList))

    return routes


async def _drained(asker: Asker, caller: Caller, nodes: tuple[str, ...], *, is_ended: bool) -> bool:
    """Whether that can be said from here; when a look has shown it, or should have."""
    if not await asker.wait_for(asker.front.drain(nodes, is_ended=is_ended)):
        return False
    for _ in range(MOST_LOOKS):
        found = await asker.ask(caller, ListNodes(names=nodes), NodeList)
        if all((each.state == "drained") is not is_ended for each in found.nodes):
            break
        await asyncio.sleep(LOOK_S)
    return True
