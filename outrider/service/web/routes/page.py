"""The page and its files, with what keeps a browser from taking anything else for a part of it."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from starlette.responses import RedirectResponse, Response

from outrider.service.web.page import KINDS, page_files

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def page_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    known = page_files()

    @routes.get("/")
    async def root() -> Response:
        """The page's place; relative, since a proxy may serve all of it under a path of its own."""
        return RedirectResponse("page/")

    @routes.get("/page/")
    async def index() -> Response:
        return _file("index.html")

    @routes.get("/page/{name}")
    async def file(name: str) -> Response:
        return _file(name)

    def _file(name: str) -> Response:
        if name not in known:
            raise HTTPException(404)
        kind = KINDS[name.rpartition(".")[2]]
        return Response(known[name], 200, {**HEADERS, "Content-Type": kind})

    return routes
