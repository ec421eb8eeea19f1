"""The page and the overview: what is sent, what a browser is told of it, and who may make one ask."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from outrider.service.requests import ShowOverview
from outrider.service.web.page import page_files
from tests.unit.service.web.apiserver import WORKSPACE, ScriptedFront, Server, check_error
from tests.unit.service.web.siteanswers import OVERVIEW
from tests.unit.service.web.test_api_routes import as_json

REFERENCE = re.compile(r"""(?:(?: src| href)=|from )"([^"#]+)"(?=[; >])""")
ADDRESS = re.compile(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", re.IGNORECASE)


def test_page_refers_to_nothing_but_its_own_files() -> None:
    files = page_files()
    referred = {
        found.removeprefix("./")
        for name, content in files.items()
        if name.endswith((".html", ".js"))
        for found in REFERENCE.findall(content.decode())
    }

    assert "main.js" in referred
    assert referred <= set(files)
    addresses = {name: ADDRESS.findall(content.decode()) for name, content in files.items()}
    assert {name for name, found in addresses.items() if found} == {"mark.svg"}
    assert addresses["mark.svg"] == ["http://www.w"]


def test_every_file_of_the_page_is_sent_and_runs_nothing_else(api: Server) -> None:
    for name, content in page_files().items():
        reply = api.get(f"/page/{name}")

        assert (reply.status, reply.body) == (200, content)
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert api.get("/page/").body == page_files()["index.html"]
    assert b"<script>" not in page_files()["index.html"]
    assert b"style=" not in page_files()["index.html"]


def test_page_is_found_under_whatever_path_a_proxy_has(api: Server) -> None:
    reply = api.get("/")

    assert (reply.status, reply.headers["location"]) == (307, "page/")


def test_overview_is_asked_for_once_and_sent_once(api: Server, front: ScriptedFront) -> None:
    first = api.get("/v1/overview")
    again = api.get("/v1/overview", If_None_Match=first.headers["etag"])
    packed = api.get("/v1/overview", Accept_Encoding="gzip, br")

    assert first.json == as_json(OVERVIEW)
    assert (again.status, again.body) == (304, b"")
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == first.json
    assert len([each for _, each in front.asked if isinstance(each, ShowOverview)]) <= 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Origin": "http://localhost"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "https://elsewhere.example.org"},
        {"Origin": "null"},
        {"Origin": "http://localhost:81"},
        {"Origin": ""},
    ],
)
def test_page_of_another_site_changes_nothing(
    api: Server, front: ScriptedFront, headers: dict[str, str]
) -> None:
    check_error(api.post("/v1/reservations", {"workspace": WORKSPACE}, **headers), 403, "not-allowed")
    check_error(api.send("POST", "/v1/offers/offer-abcdef-1", None, **headers), 403, "not-allowed")
    check_error(api.send("DELETE", "/v1/reservations/render-17", None, **headers), 403, "not-allowed")
    assert front.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "same-origin", "Origin": "https://portal.example.org"},
        {"Origin": "http://localhost"},
        {},
    ],
)
def test_own_page_and_programs_may_change_things(api: Server, headers: dict[str, str]) -> None:
    assert api.send("DELETE", "/v1/reservations/render-17", None, **headers).status == 200


def test_looking_is_not_asked_where_it_comes_from(api: Server) -> None:
    assert (
        api.get("/v1/status", Sec_Fetch_Site="cross-site", Origin="https://elsewhere.example.org").status
        == 200
    )
