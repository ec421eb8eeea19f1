"""Routes for programs: whether the service lives, whether it promises, its numbers, what it is asked."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse, Response

from outrider.service.front import Health
from outrider.service.web.asking import Asker
from outrider.service.web.routes.routing import answered

DESCRIPTION = Path(__file__).parents[1] / "openapi.json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, tags=["probes"])

    @routes.get(
        "/healthz", response_model=Health, responses={503: {"model": Health, "description": "It hangs."}}
    )
    async def healthz() -> Response:
        """Whether the service lives: if not, it is to be started again."""
        health = asker.front.health()
        return answered(health, 200 if health.is_alive else 503)

    @routes.get(
        "/readyz",
        response_model=Health,
        responses={503: {"model": Health, "description": "It promises nothing."}},
    )
    async def readyz() -> Response:
        """Whether reservations are accepted now."""
        health = asker.front.health()
        return answered(health, 200 if health.is_alive and health.is_ready else 503)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(asker.front.metrics_text(), media_type=_METRICS)

    @routes.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return Response(DESCRIPTION.read_bytes(), media_type="application/json")

    return routes
