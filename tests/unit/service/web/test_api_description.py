"""The checked-in description is the API's, and the API keeps to it whatever is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

import outrider.service.web as web
from outrider.service.settings import Administrators
from outrider.service.web.app import make_app
from outrider.service.web.connections.protocol import Line, Peer
from outrider.service.web.description import describe
from tests.repository import ROOT
from tests.unit.service.web.apiserver import ScriptedFront, Server, Tally
from tools import site_tables

CHECKED_IN = Path(web.__file__).with_name("openapi.json")
SHOWN = site_tables.on_page_markdown((ROOT / "docs/reference/api.md").read_text())
METHODS = ("get", "post", "patch", "delete", "put")


def operations() -> list[tuple[str, str]]:
    paths = json.loads(CHECKED_IN.read_text())["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def test_checked_in_description_is_the_apis_own() -> None:
    written_by = "python -m outrider.service.web.description > outrider/service/web/openapi.json"

    assert CHECKED_IN.read_text() == describe(), written_by


def test_server_answers_the_description_that_is_checked_in(api: Server) -> None:
    assert api.get("/openapi.json").json == json.loads(CHECKED_IN.read_text())


def test_no_object_takes_what_it_does_not_know() -> None:
    schemas = json.loads(CHECKED_IN.read_text())["components"]["schemas"]
    bodies = {name: each for name, each in schemas.items() if name.endswith("Body")}

    asking = {
        "ReserveBody",
        "ChangeBody",
        "TriggerBody",
        "CallBody",
        "SubmitBody",
        "MigrationBody",
        "StartingBody",
        "BackupBody",
        "SwitchBody",
        "DrainBody",
        "LoginBody",
    }
    assert set(bodies) == asking
    assert all(each["additionalProperties"] is False for each in bodies.values())


def test_no_description_speaks_of_the_frameworks_errors() -> None:
    assert "HTTPValidationError" not in CHECKED_IN.read_text()


@pytest.mark.parametrize(("method", "path"), operations())
def test_page_names_every_route(method: str, path: str) -> None:
    assert f"`{method} {path}`" in SHOWN


def test_page_names_no_route_that_there_is_not() -> None:
    known = {f"{method} {path}" for method, path in operations()}
    named = {
        part
        for part in SHOWN.split("`")[1::2]
        if part.partition(" ")[0].lower() in METHODS and part.partition(" ")[2].startswith("/")
    }

    assert named - known == {"GET /openapi.json"}


def as_known_user(app: Any) -> Any:
    """The application for a user that the kernel vouches for, without a socket."""
    line = Line(peer=Peer(pid=1, uid=0, gid=0), who="uid 0")

    async def known(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await app({**scope, "state": {"line": line}}, receive, send)
            return
        # Each case is a life of the application for its caller; here it lives on.
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    return known


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.fixture(scope="module")
def schema(tally: Tally) -> Any:
    load_all_checks()
    app = make_app(ScriptedFront(), administrators=Administrators(), meter=tally, log=tally)
    return schemathesis.openapi.from_asgi("/openapi.json", as_known_user(app))


# What no description can tell from a request: whether a text is a workspace, whether a name is known.
LEFT_OUT = {"ensure_resource_availability", "use_after_free", "positive_data_acceptance"}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), operations())
def test_api_keeps_to_its_description(
    schema: Any, tally: Tally, method: str, path: str, mode: GenerationMode
) -> None:
    checks = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in LEFT_OUT]
    seen = []

    @hypothesis.settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = "x" if mode is GenerationMode.NEGATIVE else 0
        response = case.call()
        seen.append(response.status_code)
        if response.status_code == 413:
            # A body that is too large is refused before anybody looks at what else is wrong with it.
            return
        case.validate_response(response, checks=checks)

    try:
        check()
    except hypothesis.errors.Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "nothing can be sent that is right"

    assert 500 not in seen
    assert tally.lines == []
