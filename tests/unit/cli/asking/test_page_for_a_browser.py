"""`outrider page`: a browser is let in by a key in the address, and asks what the page asks, nothing else."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.cli.asking.page import PageServer, page_server
from outrider_client.doors import door_of
from outrider_client.portal import Portal
from tests.unit.service.web.apiserver import WORKSPACE, Server

KEY = "5f0c9b41d7e2a8360c1d94be7f25a613"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("api"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def page(api: Server) -> Iterator[PageServer]:
    with page_server(Portal(door_of(api.path, None, {})), 0, KEY) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(
    page: PageServer, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_page_and_what_it_asks_for_come_in_the_users_name(page: PageServer, api: Server) -> None:
    status, headers, body = asked(page, "GET", f"/{KEY}/page/")
    assert (status, b"main.js" in body) == (200, True)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert asked(page, "GET", f"/{KEY}/v1/status")[0] == 200
    status, headers, _ = asked(page, "GET", f"/{KEY}/v1/overview", Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert asked(page, "GET", f"/{KEY}/v1/overview", If_None_Match=headers["ETag"])[0] == 304
    plan = json.dumps({"workspace": WORKSPACE})
    assert asked(page, "POST", f"/{KEY}/v1/plans", plan, Content_Type="application/json")[0] == 200


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/page/", "127.0.0.1:80"),
        ("/", "127.0.0.1:80"),
        ("/v1/status", "localhost:80"),
        (f"/{KEY[:-1]}4/page/", "127.0.0.1:80"),
        (f"/{KEY}/page/", "rebound.example.org:80"),
        (f"/{KEY}/page/", ""),
    ],
)
def test_address_without_the_key_is_nothing(page: PageServer, path: str, host: str) -> None:
    status, _, body = asked(page, "GET", path, Host=host)

    assert (status, body) == (404, b"")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/config"),
        ("GET", "/v1/logins"),
        ("POST", "/v1/backups"),
        ("POST", "/v1/submissions"),
        ("PUT", "/v1/reservations"),
        ("GET", "/page/../v1/config"),
        ("GET", "/openapi.json"),
    ],
)
def test_rest_of_the_api_is_not_reached_from_a_browser(
    page: PageServer, api: Server, method: str, path: str
) -> None:
    before = len(api.front.asked)

    assert asked(page, method, f"/{KEY}{path}")[0] == 404
    assert len(api.front.asked) == before


def test_service_still_refuses_what_a_page_of_another_site_asks_for(page: PageServer) -> None:
    status, _, body = asked(page, "DELETE", f"/{KEY}/v1/reservations/render-17", Sec_Fetch_Site="cross-site")

    assert (status, b"another site" in body) == (403, True)


def test_body_that_is_too_large_is_not_read(page: PageServer) -> None:
    assert asked(page, "POST", f"/{KEY}/v1/plans", Content_Length=str(2**21))[0] == 413


def test_service_that_is_away_is_said_as_the_service_would(tmp_path: Path) -> None:
    portal = Portal(door_of(str(tmp_path / "none.sock"), None, {}))
    told: list[str] = []
    environment = {"PATH_INFO": "/v1/status", "REQUEST_METHOD": "GET"}

    (body,) = portal(environment, lambda status, _: told.append(status))

    assert told == ["503 Service Unavailable"]
    assert b"outriderd is not running" in body
