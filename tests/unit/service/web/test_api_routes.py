"""Every route: what reaches the service, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from outrider.metadata.joblines import parse_job_lines
from outrider.service import requests as asked
from outrider.service.answers.records import DecisionList
from outrider.service.answers.reply import Trouble
from outrider.service.front import Health, WantedShares
from outrider.service.ports import ImageTrouble
from tests.unit.service.web.apiserver import (
    ANSWERS,
    BEST_EFFORT,
    DECISION,
    DETAILS,
    DIGEST,
    LINE,
    SWITCH,
    WORKSPACE,
    ScriptedFront,
    Server,
    wait_until,
)
from tests.unit.service.web.siteanswers import NOW_S, SHARES


def as_json(value: object) -> object:
    return json.loads(json.dumps(asdict(value)))  # type: ignore[call-overload]


def test_accepted_reservation_is_created_with_its_place(api: Server, front: ScriptedFront) -> None:
    reply = api.post("/v1/reservations", {"workspace": WORKSPACE, "account": "film"}, Idempotency_Key="k1")

    assert (reply.status, reply.headers["location"]) == (201, "/v1/reservations/render-17")
    assert reply.json == as_json(DECISION)
    assert reply.headers["content-type"] == "application/json"
    request = front.last
    assert isinstance(request, asked.Reserve)
    assert (request.key, len(request.request_hash), request.account) == ("k1", 64, "film")
    assert request.image.digest == DIGEST
    assert request.workspace.deployment is not None
    assert request.workspace.deployment.start_s == NOW_S + 3600
    (claim,) = front.resolved
    assert (claim.uri, claim.digest, claim.is_private) == ("file:///images/a.qcow2", DIGEST, False)


def test_image_of_each_option_is_looked_up_once(api: Server, front: ScriptedFront) -> None:
    way = "nodes=2,time=60m,image=https://h/fast;nodes=4,time=30m;nodes=8,time=20m,image=https://h/fast"

    reply = api.post("/v1/plans", {"workspace": WORKSPACE, "options": {"options": way}})

    assert reply.status == 200
    assert [claim.uri for claim in front.resolved] == ["file:///images/a.qcow2", "https://h/fast"]
    assert [each is not None for each in front.last.option_images] == [True, False, True]


def test_image_that_no_option_has_is_not_looked_up(api: Server, front: ScriptedFront) -> None:
    way = "nodes=2,time=60m,image=https://h/slow;nodes=4,time=30m,image=https://h/fast"

    reply = api.post("/v1/plans", {"workspace": WORKSPACE, "options": {"options": way}})

    assert reply.status == 200
    assert [each.uri for each in front.resolved] == ["https://h/slow", "https://h/fast"]


def test_image_of_an_option_that_is_not_there_is_named_with_its_place(
    api: Server, front: ScriptedFront
) -> None:
    front.missing = "https://h/fast"
    way = "nodes=2,time=60m;nodes=4,time=30m,image=https://h/fast"

    reply = api.post("/v1/reservations", {"workspace": WORKSPACE, "options": {"options": way}})

    assert reply.status == 422
    assert reply.json["problems"][0]["key"] == "deployment.options[1].image.uri"
    assert front.asked == []


def test_value_of_a_job_is_none_of_a_reservation(api: Server, front: ScriptedFront) -> None:
    reply = api.post("/v1/reservations", {"workspace": WORKSPACE, "options": {"value": "12.5"}})

    assert (reply.status, reply.json["problems"][0]["key"]) == (422, "deployment.value")
    assert front.asked == []


def test_user_is_told_of_what_is_not_used(api: Server) -> None:
    text = WORKSPACE.replace("metadata:", "metadata:\n  roles: [{name: head, hosts: 'h[1-2]'}]", 1)

    reserved = api.post("/v1/reservations", {"workspace": text})
    planned = api.post("/v1/plans", {"workspace": text})
    text = text.replace("  start: now+1hour\n", "")
    submitted = api.post("/v1/submissions", {"argv": ["/bin/true"], "workspace": text})

    for reply in (reserved, planned, submitted):
        (note,) = reply.json["notes"]
        assert note.startswith("metadata.roles is not used")


def test_refused_reservation_is_an_answer_and_no_error(api: Server, front: ScriptedFront) -> None:
    front.answers["Reserve"] = type(DECISION)(
        **{**{name: getattr(DECISION, name) for name in DECISION.__slots__}, "result": "refused", "name": ""}
    )

    reply = api.post("/v1/reservations", {"workspace": WORKSPACE})

    assert (reply.status, reply.json["result"]) == (200, "refused")
    assert "location" not in reply.headers


def test_options_and_zone_are_understood_as_the_users(api: Server, front: ScriptedFront) -> None:
    options = {"nodes": "4", "start": "2027-01-20T14:00", "duration": "90"}
    reply = api.post("/v1/plans", {"workspace": WORKSPACE, "options": options, "zone": "Europe/Berlin"})

    assert reply.status == 200
    request = front.last
    assert isinstance(request, asked.Reserve)
    assert request.is_plan
    deployment = request.workspace.deployment
    assert deployment is not None
    # 2027-01-20T13:00Z is 20838 days and 13 hours after 1970.
    assert (deployment.nodes, deployment.duration_s) == (4, 5400)
    assert deployment.start_s == 20838 * 86_400 + 13 * 3600


def test_null_takes_an_option_out_of_the_deployment(api: Server, front: ScriptedFront) -> None:
    options = {"start": None, "finish_by": "now+8hours"}
    reply = api.post("/v1/plans", {"workspace": WORKSPACE, "options": options})

    assert reply.status == 200
    deployment = front.last.workspace.deployment
    assert (deployment.start_s, deployment.finish_by_s) == (None, NOW_S + 8 * 3600)


def test_same_request_has_the_same_hash_and_another_has_another(api: Server, front: ScriptedFront) -> None:
    for body in (
        {"workspace": WORKSPACE},
        {"account": "", "workspace": WORKSPACE},
        {"workspace": WORKSPACE, "options": {"nodes": "3"}},
    ):
        assert api.post("/v1/reservations", body, Idempotency_Key="k").status == 201

    first, second, third = (request.request_hash for _, request in front.asked)
    assert first == second != third


def test_answer_is_given_again_although_the_image_is_gone(api: Server, front: ScriptedFront) -> None:
    front.recalled = replace(DECISION, name="render-9")
    front.found = ImageTrouble("it is gone")
    again = api.post("/v1/reservations", {"workspace": WORKSPACE}, Idempotency_Key="k")
    without = api.post("/v1/reservations", {"workspace": WORKSPACE})

    assert (again.status, again.json["name"]) == (201, "render-9")
    assert [key for _, key, _ in front.recalls] == ["k"]
    assert front.asked == []
    assert without.status == 422


@pytest.mark.parametrize(
    ("target", "request_", "answer"),
    [
        ("/v1/reservations", asked.ListReservations(), "ListReservations"),
        (
            "/v1/reservations?past=true&user=mia&state=over,cancelled&after=9&most=5",
            asked.ListReservations(is_past=True, user="mia", states=("over", "cancelled"), after=9, most=5),
            "ListReservations",
        ),
        ("/v1/reservations/render-17", asked.Show(name="render-17"), "Show"),
        ("/v1/reservations/render-17/explanation", asked.Explain(name="render-17"), "Explain"),
        ("/v1/images", asked.ListImages(), "ListImages"),
        ("/v1/nodes", asked.ListNodes(), "ListNodes"),
        (
            "/v1/nodes?names=n[1-2],m7&after=n1&most=3",
            asked.ListNodes(names=("n1", "n2", "m7"), after="n1", most=3),
            "ListNodes",
        ),
        ("/v1/transfers?most=2", asked.ListTransfers(most=2), "ListTransfers"),
        ("/v1/timeline", asked.ShowTimeline(from_s=NOW_S, until_s=NOW_S + 86_400), "ShowTimeline"),
        (
            "/v1/timeline?from=100&until=200&nodes=n%5B1-2%5D",
            asked.ShowTimeline(from_s=100, until_s=200, names=("n1", "n2")),
            "ShowTimeline",
        ),
        ("/v1/status", asked.ShowStatus(), "ShowStatus"),
        ("/v1/decisions?after=4&most=7", asked.ListDecisions(after=4, most=7), "ListDecisions"),
    ],
)
def test_looking_asks_for_what_the_query_says(
    api: Server, front: ScriptedFront, target: str, request_: object, answer: str
) -> None:
    reply = api.get(target)

    assert (reply.status, reply.json) == (200, as_json(ANSWERS[answer]))
    assert front.last == request_


def test_shares_are_asked_for_with_who_asks(api: Server, front: ScriptedFront) -> None:
    reply = api.get("/v1/shares?user=mia&thing=transfers&nodes=n%5B1-2%5D&most=5")

    assert (reply.status, reply.json) == (
        200,
        as_json(replace(SHARES, is_of_all=front.asked[-1][0].is_admin)),
    )
    assert front.last == WantedShares(user="mia", thing="transfers", nodes=("n1", "n2"), most=5)


def test_change_is_handed_on_in_numbers(api: Server, front: ScriptedFront) -> None:
    body = json.dumps({"start": "now+2hours", "duration": "30m", "nodes": 3}).encode()
    reply = api.send("PATCH", "/v1/reservations/render-17", body, Idempotency_Key="k2")

    assert (reply.status, reply.json) == (200, as_json(DECISION))
    change = front.last
    assert (change.name, change.start_s, change.duration_s) == ("render-17", NOW_S + 7200, 1800)
    assert (change.nodes, change.is_plan, change.key) == (3, False, "k2")


def test_planned_change_is_marked_and_hashed_as_such(api: Server, front: ScriptedFront) -> None:
    for target in ("/v1/reservations/render-17", "/v1/reservations/render-17?plan=true"):
        assert api.send("PATCH", target, b'{"nodes": 3}').status == 200

    (_, real), (_, planned) = front.asked
    assert (real.is_plan, planned.is_plan) == (False, True)
    assert (real.start_s, real.duration_s) == (None, None)
    assert real.request_hash != planned.request_hash


def test_cancelling_answers_what_is_left(api: Server, front: ScriptedFront) -> None:
    reply = api.send("DELETE", "/v1/reservations/render-17", Idempotency_Key="k3")

    assert (reply.status, reply.json) == (200, as_json(DETAILS))
    assert isinstance(front.last, asked.Cancel)
    assert (front.last.name, front.last.key) == ("render-17", "k3")


def test_job_is_submitted_to_the_reservation_that_is_meant(api: Server, front: ScriptedFront) -> None:
    body = {"argv": ["./run"], "reservation": "render"}

    assert api.post("/v1/submissions", body).status == 201
    assert front.last.reservation == "render-17"

    front.answers["Show"] = Trouble(code="not-found", message="It is none of ours.")
    assert api.post("/v1/submissions", {**body, "reservation": "maintenance"}).status == 201
    assert front.last.reservation == "maintenance"

    front.answers["Show"] = Trouble(code="ambiguous", message="render could be render-1, render-2")
    reply = api.post("/v1/submissions", body)
    assert (reply.status, reply.json["code"]) == (409, "ambiguous")


def test_job_is_submitted_with_its_workspace(api: Server, front: ScriptedFront) -> None:
    reply = api.post(
        "/v1/submissions", {"argv": ["./run", "a b"], "reservation": "render-17", "workspace": BEST_EFFORT}
    )

    assert (reply.status, reply.json) == (201, {"job": "42", "notes": []})
    submission = front.last
    assert (submission.argv, submission.reservation) == (("./run", "a b"), "render-17")
    assert (submission.nodes, submission.duration_s) == (2, 3600)
    assert submission.metadata is not None
    lines = parse_job_lines(submission.metadata)
    assert (lines.image, lines.name) == ("file:///images/a.qcow2", "render")
    assert lines.digest.startswith("sha256:")
    assert submission.image.size_bytes == 1000


def test_job_without_workspace_needs_no_image(api: Server, front: ScriptedFront) -> None:
    reply = api.post("/v1/submissions", {"argv": ["true"], "nodes": 3, "duration": "10"})

    assert reply.status == 201
    assert (front.last.nodes, front.last.duration_s, front.last.image) == (3, 600, None)
    assert front.resolved == []


def test_administrators_see_and_steer_the_service(api: Server, front: ScriptedFront) -> None:
    config = api.get("/v1/config")
    reloaded = api.send("POST", "/v1/policies/reload")
    reconciled = api.send("POST", "/v1/reconcile")
    backup = api.post("/v1/backups", {"path": "/var/backups/outrider.db"})

    assert config.json == {"settings": {"site": "site"}, "policies": {"rules": []}}
    assert reloaded.json == {"rules": 3}
    assert reconciled.json == {"findings": []}
    assert isinstance(front.last, asked.Reconcile)
    assert backup.json == {"path": "/var/backups/outrider.db", "reservations": 1}


def test_probes_tell_life_from_readiness(api: Server, front: ScriptedFront) -> None:
    ready = api.get("/healthz").status, api.get("/readyz").status
    front.alive = Health(is_alive=True, is_ready=False, troubles=("the batch system is away",))
    doubtful = api.get("/healthz").status, api.get("/readyz").status
    words = api.get("/readyz").json
    front.alive = Health(is_alive=False, is_ready=False)
    dead = api.get("/healthz").status, api.get("/readyz").status

    assert (ready, doubtful, dead) == ((200, 200), (200, 503), (503, 503))
    assert words == {"is_alive": True, "is_ready": False, "troubles": ["the batch system is away"]}


def test_metrics_are_text_for_prometheus(api: Server) -> None:
    reply = api.get("/metrics")

    assert (reply.status, reply.body) == (200, b"outrider_up 1\n")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_requests_are_counted_by_route_and_not_by_name(serve: Callable[..., Server]) -> None:
    server = serve()
    server.get("/v1/reservations/render-17")
    server.get("/no/such/path")

    def counted() -> list[tuple[str, ...]]:
        return [each for each in server.tally.counts if each[0] == "outrider_requests_total"]

    # The client is answered before the request is counted, and may be quicker.
    wait_until(lambda: len(counted()) == 2)
    assert sorted(counted()) == [
        ("outrider_requests_total", "/v1/reservations/{name}", "200"),
        ("outrider_requests_total", "other", "404"),
    ]


def test_answers_are_kept_by_no_cache(api: Server) -> None:
    headers = api.get("/v1/status").headers

    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "server" not in headers


def test_long_poll_ends_as_soon_as_something_is_newer(api: Server, front: ScriptedFront) -> None:
    replies = iter([DecisionList(decisions=(), last=5), DecisionList(decisions=(LINE,), last=5)])

    class Coming(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            return next(replies)

    front.answers = Coming()
    reply = api.get("/v1/decisions?after=4&wait=30")

    assert [each["number"] for each in reply.json["decisions"]] == [5]
    assert len(front.asked) == 2


def test_long_poll_that_waited_in_vain_answers_nothing_new(api: Server, front: ScriptedFront) -> None:
    front.answers["ListDecisions"] = DecisionList(decisions=(), last=5)
    reply = api.get("/v1/decisions?after=5&wait=1")

    assert (reply.status, reply.json) == (200, {"decisions": [], "last": 5})
    assert 2 <= len(front.asked) <= 4


def test_offer_is_accepted_by_its_name_and_without_a_body(api: Server, front: ScriptedFront) -> None:
    front.answers["Accept"] = DECISION

    reply = api.post("/v1/offers/offer-k3mzqa-1", {}, Idempotency_Key="k1")
    misspelt = api.post("/v1/offers/render-17", {})

    assert (reply.status, reply.headers["location"]) == (201, "/v1/reservations/render-17")
    request = front.last
    assert isinstance(request, asked.Accept)
    assert (request.name, request.key, len(request.request_hash)) == ("offer-k3mzqa-1", "k1", 64)
    assert misspelt.status == 422


def test_what_recurs_is_asked_for_with_all_its_starts(api: Server, front: ScriptedFront) -> None:
    body = {"workspace": WORKSPACE, "every": "daily", "until": "now+50hours", "zone": "UTC", "best_fit": True}

    reply = api.post("/v1/reservations", body)

    assert reply.status == 201
    request = front.last
    assert isinstance(request, asked.Reserve)
    first_s = NOW_S + 3600
    assert request.starts == (first_s, first_s + 86_400, first_s + 2 * 86_400)
    assert request.is_best_fit


@pytest.mark.parametrize(
    "more",
    [
        {"every": "daily"},
        {"until": "2030-01-01"},
        {"best_fit": True},
        {"every": "often", "until": "now+2days"},
    ],
)
def test_what_recurs_by_halves_is_a_fault(api: Server, more: dict[str, object]) -> None:
    reply = api.post("/v1/reservations", {"workspace": WORKSPACE, **more})

    assert (reply.status, reply.json["problems"][0]["key"] in ("every", "until")) == (422, True)


def test_switches_are_for_administrators(api: Server, front: ScriptedFront) -> None:
    fences = {"4711": "n2", "4712": "n[1-2]"}
    body = {"is_plan": False, "drained": "n[1-2]", "fences": fences, "explain": "4711"}

    assert api.post("/v1/switch", body).json == as_json(SWITCH)
    request = front.last
    assert request == asked.DecideSwitch(
        is_plan=False,
        drained=("n1", "n2"),
        fences=(("4711", "n2"), ("4712", "n1,n2")),
        explain="4711",
    )
    assert api.get("/v1/switch").json == as_json(SWITCH)
    assert front.last == asked.ShowSwitch()
    assert api.post("/v1/switch", {"drained": "n[1"}).status == 422
    assert api.post("/v1/switch", {"fences": {"4711": "a b"}}).status == 422


def test_nodes_are_drained_by_the_service_where_nobody_else_can(api: Server, front: ScriptedFront) -> None:
    elsewhere = api.post("/v1/nodes/drain", {"nodes": "n[1-2]"})
    front.drains = True
    here = api.post("/v1/nodes/drain", {"nodes": "n[1-2]", "is_ended": True})
    front.drained.clear()
    api.post("/v1/switch", {"is_plan": True, "drained": "n1"})
    api.post("/v1/switch", {"is_plan": False, "drained": "n1"})

    assert (elsewhere.status, "scontrol update" in elsewhere.json["message"]) == (409, True)
    assert here.json == {"nodes": [], "next_after": ""}
    assert front.drained == [(("n1",), False)]
