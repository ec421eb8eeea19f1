"""Every route that the page uses, asked as another user: nothing private is in any answer."""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import urlsplit

import pytest

from outrider_client.portal import PATHS
from tests.daemons.page.conftest import SECRET, PagedSite
from tests.repository import ROOT

ROUTES = json.loads((ROOT / "outrider/service/web/openapi.json").read_text())["paths"]
USED = sorted(
    (method, path) for path, methods in ROUTES.items() for method in methods if path.startswith(PATHS)
)
ANSWERS = (200, 201, 304, 400, 403, 404, 405, 409, 422)


def asked(address: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=120)
    try:
        text = None if body is None else json.dumps(body)
        prefix = place.path.removesuffix("/").removesuffix("/page")
        connection.request(
            method, f"{prefix}{path}", text, {"Content-Type": "application/json"} if text else {}
        )
        answer = connection.getresponse()
        headers = json.dumps(answer.getheaders())
        return answer.status, headers + answer.read().decode()
    finally:
        connection.close()


def wish(site: PagedSite) -> dict[str, str]:
    """A plan with the owner's image, which nobody else may read."""
    image = site.image.with_name(f"{SECRET}.raw")
    metadata = f'metadata: {{name: mine, image: {{uri: "file://{image}"}}}}'
    return {"workspace": f"version: 1\n{metadata}\ndeployment: {{nodes: 1, duration: 5m}}\n", "zone": "UTC"}


@pytest.mark.parametrize(("method", "path"), USED, ids=[f"{method} {path}" for method, path in USED])
def test_answer_to_another_user_has_nothing_private(site: PagedSite, method: str, path: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have two users")
    details = site.program.ask("GET", f"/v1/reservations/{site.secret_name}")[1]["reservation"]
    digest = details["image"]["digest"]
    target = path.replace("{name}", site.secret_name).replace("{job}", "1")
    body = wish(site) if method in ("post", "patch") else None

    status, told = asked(site.for_other, method.upper(), target, body)

    assert status in ANSWERS, told
    # What was asked for may be named in a refusal; what is in it may not.
    private = [digest, *([SECRET] if body is None else [])]
    assert [word for word in private if word in told] == []
    if (method, path) == ("get", "/v1/reservations/{name}"):
        assert digest in asked(site.for_owner, "GET", target)[1]


def test_routes_are_those_of_the_portal_and_some_of_each() -> None:
    assert {root for root in PATHS if not any(path.startswith(root) for _, path in USED)} == {"/page/"}
    assert {("get", "/v1/overview"), ("post", "/v1/plans"), ("delete", "/v1/reservations/{name}")} <= set(
        USED
    )
