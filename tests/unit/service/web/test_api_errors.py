"""Every error is one JSON object with a code, a sentence and places; never HTML, never a traceback."""

from __future__ import annotations

import json

import pytest

from outrider.service.answers.reply import Trouble
from outrider.service.front import Busy, NotDone
from outrider.service.ports import FoundImage, NotYet
from tests.unit.service.web.apiserver import (
    BEST_EFFORT,
    DIGEST,
    WORKSPACE,
    ScriptedFront,
    Server,
    check_error,
    done,
    image_trouble,
    wait_until,
)
from tests.unit.service.web.siteanswers import NOW_S


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("not-found", 404),
        ("not-allowed", 403),
        ("ambiguous", 409),
        ("conflict", 409),
        ("invalid", 422),
        ("unavailable", 503),
        ("busy", 503),
    ],
)
def test_trouble_of_the_service_has_its_status(
    api: Server, front: ScriptedFront, code: str, status: int
) -> None:
    front.answers["Show"] = Trouble(code=code, message="It is so, do that.")
    reply = api.get("/v1/reservations/render-17")

    assert check_error(reply, status, code)["message"] == "It is so, do that."
    assert ("retry-after" in reply.headers) == (code == "busy")


def test_full_queue_says_when_to_ask_again(api: Server, front: ScriptedFront) -> None:
    front.answers["ShowStatus"] = Busy("1000 requests wait: ask again", retry_after_s=7)
    reply = api.get("/v1/status")

    assert check_error(reply, 503, "busy")
    assert reply.headers["retry-after"] == "7"


def test_full_queue_for_images_is_busy_too(api: Server, front: ScriptedFront) -> None:
    front.found = Busy("too many images are looked up")

    assert check_error(api.post("/v1/plans", {"workspace": WORKSPACE}), 503, "busy")


def test_faults_of_a_workspace_have_their_places(api: Server, front: ScriptedFront) -> None:
    text = WORKSPACE.replace("nodes: 2", "nodes: many").replace("duration", "durration")
    found = check_error(api.post("/v1/reservations", {"workspace": text, "file": "ws.yaml"}), 422, "invalid")

    places = [(each["line"], each["column"], each["key"]) for each in found["problems"]]
    assert places == [(8, 10, "deployment.nodes"), (9, 3, "deployment.durration")]
    assert "ws.yaml:8:10" in found["message"]
    assert "whole number" in found["problems"][0]["message"]
    assert front.asked == []


def test_fault_of_an_option_has_no_line_but_its_key(api: Server) -> None:
    body = {"workspace": WORKSPACE, "options": {"start": "lunch"}}
    found = check_error(api.post("/v1/plans", body), 422, "invalid")

    (problem,) = found["problems"]
    assert (problem["line"], problem["column"], problem["key"]) == (0, 0, "deployment.start")


def test_option_that_there_is_not_is_named(api: Server) -> None:
    body = {"workspace": WORKSPACE, "options": {"nodez": "3"}}
    found = check_error(api.post("/v1/plans", body), 422, "invalid")

    assert "did you mean nodes" in found["problems"][0]["message"]


def test_best_effort_is_no_reservation(api: Server, front: ScriptedFront) -> None:
    found = check_error(api.post("/v1/reservations", {"workspace": BEST_EFFORT}), 422, "invalid")

    assert "give a start" in found["message"]
    assert "submit it" in found["message"]
    assert front.asked == []


def test_workspace_without_deployment_is_no_reservation(api: Server) -> None:
    text = WORKSPACE.partition("deployment:")[0]
    found = check_error(api.post("/v1/plans", {"workspace": text}), 422, "invalid")

    assert found["problems"][0]["key"] == "deployment"


def test_image_that_cannot_be_promised_is_named(api: Server, front: ScriptedFront) -> None:
    front.found = image_trouble("a.qcow2 is not there: check the URI")
    found = check_error(api.post("/v1/reservations", {"workspace": WORKSPACE}), 422, "invalid")

    assert found["message"] == "a.qcow2 is not there: check the URI"
    assert found["problems"][0]["key"] == "metadata.image.uri"


def test_image_that_is_only_being_made_is_planned_and_not_promised(api: Server, front: ScriptedFront) -> None:
    expected = FoundImage(size_bytes=1000, digest="", made_s=NOW_S + 600)
    front.found = done(NotYet("render.sif is half made", expected))
    planned = api.post("/v1/plans", {"workspace": WORKSPACE})
    found = check_error(api.post("/v1/reservations", {"workspace": WORKSPACE}), 503, "converting")

    assert planned.json["notes"] == ["render.sif is half made; its size and times are what is expected"]
    assert found["message"] == "render.sif is half made"
    # Nothing may be entered that is refused afterwards.
    assert front.last.is_plan


def test_size_that_is_not_the_images_is_refused(api: Server, front: ScriptedFront) -> None:
    front.found = FoundImage(size_bytes=999, digest=DIGEST)
    text = WORKSPACE.replace("    digest", "    size: 1000\n    digest")
    found = check_error(api.post("/v1/plans", {"workspace": text}), 422, "invalid")

    assert "999 bytes, not 1000" in found["message"]


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({}, "workspace"),
        ({"workspace": 1}, "workspace"),
        ({"workspace": "", "sudo": True}, "sudo"),
        ({"workspace": "", "options": {"nodes": 4}}, "options.nodes"),
        ({"workspace": "", "options": {"../x": "4"}}, "options.../x.[key]"),
        ({"workspace": "", "zone": "../../etc/passwd"}, "zone"),
        ({"workspace": "", "zone": "/etc/passwd"}, "zone"),
        ({"workspace": "", "account": "a b"}, "account"),
        ({"workspace": "", "file": "a\nb"}, "file"),
        ({"workspace": "x" * 262_145}, "workspace"),
        ([], ""),
        ("text", ""),
    ],
)
def test_body_of_another_form_is_refused_by_key(api: Server, body: object, key: str) -> None:
    found = check_error(api.post("/v1/reservations", body), 422, "invalid")

    assert found["problems"][0]["key"] == key


def test_zone_that_nobody_knows_is_refused(api: Server) -> None:
    body = {"workspace": WORKSPACE, "zone": "Middle/Earth"}
    found = check_error(api.post("/v1/plans", body), 422, "invalid")

    assert "Middle/Earth" in found["message"]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/reservations?most=0",
        "/v1/reservations?most=1001",
        "/v1/reservations?sate=over",
        "/v1/reservations?after=-1",
        "/v1/reservations?user=a%20b",
        "/v1/reservations/-x",
        "/v1/reservations/a%20b",
        "/v1/nodes?names=n[",
        "/v1/nodes?names=n[1-9999999]",
        "/v1/timeline?from=200&until=100",
        "/v1/timeline?from=0&until=99999999999",
        "/v1/timeline?from=now",
        "/v1/timeline?form=100",
        "/v1/decisions?wait=31",
        "/v1/decisions?after=99999999999999999999",
    ],
)
def test_query_of_another_form_is_refused(api: Server, front: ScriptedFront, target: str) -> None:
    assert check_error(api.get(target), 422, "invalid")

    assert front.asked == []


@pytest.mark.parametrize(
    "body", [{}, {"nodes": 0}, {"nodes": True}, {"start": "lunch"}, {"duration": "0"}, {"zone": "UTC"}]
)
def test_change_that_says_nothing_sensible_is_refused(api: Server, body: object) -> None:
    reply = api.send("PATCH", "/v1/reservations/render-17", json.dumps(body).encode())

    assert check_error(reply, 422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"argv": []},
        {"argv": ["a\x00b"]},
        {"argv": ["true"], "nodes": 0},
        {"argv": ["true"], "duration": "soon"},
        {"argv": ["true"], "reservation": "../x"},
        {"argv": "true"},
    ],
)
def test_job_of_another_form_is_refused(api: Server, body: object) -> None:
    assert check_error(api.post("/v1/submissions", body), 422, "invalid")


def test_job_cannot_have_a_time_of_its_own(api: Server, front: ScriptedFront) -> None:
    found = check_error(
        api.post("/v1/submissions", {"argv": ["true"], "workspace": WORKSPACE}), 422, "invalid"
    )

    assert "reserve it" in found["message"]
    assert front.asked == []


@pytest.mark.parametrize("path", ["relative", "/a/../../b//c", "/", "/a\nb", ""])
def test_backup_goes_to_a_full_path_only(api: Server, path: str) -> None:
    assert check_error(api.post("/v1/backups", {"path": path}), 422, "invalid")


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/main.py",
        "/page/..%2fopenapi.json",
        "/v1",
        "/v1/reservations/",
        "/docs",
        "/redoc",
        "/v2/status",
        "/%00",
    ],
)
def test_unknown_path_is_not_found(api: Server, path: str) -> None:
    assert check_error(api.get(path), 404, "not-found")


def test_wrong_method_names_the_right_one(api: Server) -> None:
    reply = api.send("PUT", "/v1/plans", b"{}")

    assert "POST" in check_error(reply, 405, "invalid")["message"]
    assert reply.headers["allow"] == "POST"


def test_policies_that_are_faulty_are_told_and_not_taken(api: Server, front: ScriptedFront) -> None:
    front.reloaded = NotDone(Trouble(code="invalid", message="policies.yaml:3:1: rules: is missing"))

    found = check_error(api.send("POST", "/v1/policies/reload"), 422, "invalid")

    assert found["message"] == "policies.yaml:3:1: rules: is missing"


def test_job_that_the_batch_system_refuses_is_told(api: Server, front: ScriptedFront) -> None:
    front.job = NotDone(Trouble(code="conflict", message="no such reservation"))

    assert check_error(api.post("/v1/submissions", {"argv": ["true"]}), 409, "conflict")


def test_fault_of_the_service_is_in_its_log_and_not_in_the_answer(
    shared: Server, front: ScriptedFront
) -> None:
    front.answers["ShowStatus"] = done(RuntimeError("secret words"))
    reply = shared.get("/v1/status")
    front.answers["ShowStatus"] = done("no Status")
    second = shared.get("/v1/status")

    assert check_error(reply, 500, "unavailable")
    assert b"secret" not in reply.body
    assert check_error(second, 500, "unavailable")
    # The client is answered first.
    wait_until(lambda: len(shared.tally.lines) == 2)
    traces = [str(fields["trace"]) for level, _, fields in shared.tally.lines if level == "error"]
    assert "RuntimeError: secret words" in traces[0]
    shared.tally.lines.clear()
