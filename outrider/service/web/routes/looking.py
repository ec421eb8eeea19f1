"""Routes that show what is there and what goes on: images, nodes, transfers, the timeline, decisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.images import ImageList
from outrider.service.answers.leases import Report
from outrider.service.answers.nodes import NodeList
from outrider.service.answers.records import DecisionList
from outrider.service.answers.site import Overview, ShareList, Status, Timeline
from outrider.service.answers.transfers import TransferList
from outrider.service.front import WantedShares
from outrider.service.requests import (
    Caller,
    ListDecisions,
    ListImages,
    ListNodes,
    ListTransfers,
    ShowStatus,
    ShowTimeline,
)
from outrider.service.web.asking import Asker
from outrider.service.web.connections.protocol import Line
from outrider.service.web.errors import ErrorProblem, refused
from outrider.service.web.identity import name_of
from outrider.service.web.kept import KeptOverview
from outrider.service.web.requests.bodies import (
    DecisionsQuery,
    HostList,
    Instant,
    MostQuery,
    NodesQuery,
    ReportQuery,
    SharesQuery,
)
from outrider.service.web.requests.understanding import understand_nodes, understand_report
from outrider.service.web.routes.routing import ERRORS, By, answered

DAY_S = 86_400
MOST_TIMELINE_S = 400 * DAY_S

Known = Annotated[
    str, Header(max_length=512, description="the tag of the answer before: the body comes if it has changed")
]
Coding = Annotated[str, Header(include_in_schema=False)]
Since = Annotated[Instant | None, Query(alias="from", description="seconds since 1970; absent: now")]
Until = Annotated[Instant | None, Query(alias="until", description="seconds since 1970; absent: a day later")]
Nodes = Annotated[HostList, Query(description="a list like n[1-4,7]; empty: nodes with reservations")]


def looking_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["looking"])
    _add_lists(routes, asker)
    _add_report(routes, asker)
    _add_timeline(routes, asker)
    _add_overview(routes, asker)
    _add_decisions(routes, asker)
    return routes


def _add_lists(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/images", response_model=ImageList)
    async def images(query: Annotated[MostQuery, Query()], caller: By) -> Response:
        """Which images are where, and what needs them."""
        found = await asker.ask(caller, ListImages(most=query.most), ImageList)
        if any(owner.isdecimal() for image in found.images for owner in image.owners):
            # The user database may be far away.
            found = await asker.read(caller, lambda: _with_names(found))
        return answered(found)

    @routes.get("/nodes", response_model=NodeList)
    async def nodes(query: Annotated[NodesQuery, Query()], caller: By) -> Response:
        """The nodes with their pools."""
        names = understand_nodes("names", query.names)
        request = ListNodes(names=names, after=query.after, most=query.most)
        return answered(await asker.ask(caller, request, NodeList))

    @routes.get("/transfers", response_model=TransferList)
    async def transfers(query: Annotated[MostQuery, Query()], caller: By) -> Response:
        """Transfers that wait or run."""
        return answered(await asker.ask(caller, ListTransfers(most=query.most), TransferList))

    @routes.get("/shares", response_model=ShareList)
    async def shares(query: Annotated[SharesQuery, Query()], caller: By) -> Response:
        """Who takes what of what users share; administrators see all users."""
        nodes = understand_nodes("nodes", query.nodes)
        wanted = WantedShares(user=query.user, thing=query.thing, nodes=nodes, most=query.most)
        return answered(await asker.count(caller, wanted))

    @routes.get("/status", response_model=Status)
    async def status(caller: By) -> Response:
        """The service at a glance."""
        return answered(await asker.ask(caller, ShowStatus(), Status))


def _with_names(found: ImageList) -> ImageList:
    """Owners of whom a node alone knows, and their numbers only."""
    images = (replace(each, owners=tuple(map(name_of, each.owners))) for each in found.images)
    return replace(found, images=tuple(images))


def _add_report(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/report", response_model=Report)
    async def report(query: Annotated[ReportQuery, Query()], caller: By) -> Response:
        """What was charged and what was refused, added up; users are told their own."""
        request = understand_report(query, asker.front.now_s())
        return answered(await asker.ask(caller, request, Report))


def _add_timeline(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/timeline", response_model=Timeline)
    async def timeline(
        caller: By, request: Request, since_s: Since = None, until_s: Until = None, nodes: Nodes = ""
    ) -> Response:
        """What is reserved on nodes between two instants."""
        # Not a model like the other queries: one with a key called `from` is not read by every FastAPI.
        unknown = sorted(set(request.query_params) - {"from", "until", "nodes"})
        if unknown:
            problems = [ErrorProblem(key=unknown[0][:200], message="there is no such parameter")]
            raise refused(422, "give from, until and nodes, and nothing else", problems=problems)
        from_s = asker.front.now_s() if since_s is None else since_s
        until_s = from_s + DAY_S if until_s is None else until_s
        if not from_s < until_s <= from_s + MOST_TIMELINE_S:
            most = MOST_TIMELINE_S // DAY_S
            raise refused(
                422, f"a timeline has 1 second to {most} days: give an until that is so long after from"
            )
        names = understand_nodes("nodes", nodes)
        wanted = ShowTimeline(from_s=from_s, until_s=until_s, names=names)
        return answered(await asker.ask(caller, wanted, Timeline))


def _add_overview(routes: APIRouter, asker: Asker) -> None:
    kept = KeptOverview(asker)

    @routes.get(
        "/overview",
        response_model=Overview,
        responses={304: {"description": "Nothing has changed since the tag in If-None-Match."}},
    )
    async def overview(caller: By, if_none_match: Known = "", accept_encoding: Coding = "") -> Response:
        """Who has which nodes when, of the whole site, as everybody may know it."""
        found = await kept.current(caller)
        headers = {"ETag": found.tag, "Vary": "Accept-Encoding"}
        if found.tag in if_none_match:
            return Response(None, 304, headers)
        if "gzip" not in accept_encoding:
            return Response(found.plain, 200, headers, "application/json")
        return Response(found.packed, 200, {**headers, "Content-Encoding": "gzip"}, "application/json")


def _add_decisions(routes: APIRouter, asker: Asker) -> None:
    @routes.get("/decisions", response_model=DecisionList)
    async def decisions(query: Annotated[DecisionsQuery, Query()], caller: By, request: Request) -> Response:
        """What was decided or has happened since a number; with `wait` as soon as there is something."""
        wanted = ListDecisions(after=query.after, most=query.most)
        has_place = query.wait > 0 and asker.has_place(caller)
        try:
            wait_s = query.wait if has_place else 0
            return answered(await _newer_decisions(asker, caller, wanted, wait_s, request))
        finally:
            if has_place:
                asker.polls.give(caller.uid)


async def _newer_decisions(
    asker: Asker, caller: Caller, wanted: ListDecisions, wait_s: int, request: Request
) -> DecisionList:
    """Ask until there is something newer, the time is over, the client hangs up or the service stops."""
    line: Line = request.state.line
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        found = await asker.ask(caller, wanted, DecisionList)
        rest_s = until_s - loop.time()
        if found.decisions or rest_s <= 0 or line.is_closing:
            return found
        # What others alone may see need not be read again.
        wanted = replace(wanted, after=found.last)
        await asyncio.sleep(min(asker.limits.poll_every_s, rest_s))
