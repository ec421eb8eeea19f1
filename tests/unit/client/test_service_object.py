"""The client's object: what each method sends, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.answers.jobs import JobDetails, JobList, JobView
from outrider.service.answers.reservations import ReservationList
from outrider_client import (
    BrokenError,
    FaultyRequestError,
    Image,
    InputError,
    LateError,
    NotFoundError,
    Outrider,
    UnreachableError,
    WorkspaceText,
)
from tests.unit.cli.canned import Reply, Service
from tests.unit.cli.samples import ACCEPTED, DETAILS, FAILED, LIST, NOW_S, OTHER, REFUSED, STATUS, VIEW
from tests.unit.client.test_asking_client import Clock

READY = replace(DETAILS, reservation=replace(VIEW, state="ready"))
JOB = JobView(
    job="4711", user="ada", state="staging", held=True, image=None, nodes_wanted=2, nodes="n[1-2]",
    node_count=2, submitted_s=NOW_S, ready_s=NOW_S + 60, start_s=None, is_overdue=False, words="",
)  # fmt: skip
HELD = JobDetails(job=JOB, tasks=1, staging=(), released_to="", decisions=())
FREE = replace(HELD, job=replace(JOB, held=False, state="staged"), released_to="n[1-2]")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_image_is_reserved_with_the_options_that_were_given(service: Service) -> None:
    service.on("POST", "/v1/reservations", ACCEPTED)

    image = Image("https://images.example.org/ubuntu.qcow2", size="2000")
    outrider = Outrider(zone="Europe/Berlin")

    decision = outrider.reserve(image, nodes=4, start="14:00", account="physics")

    assert (decision.result, decision.name, decision.nodes) == ("accepted", "render-17", "n[1-4]")
    body = service.last("POST").body
    assert isinstance(body, dict)
    assert body["options"] == {"nodes": "4", "start": "14:00"}
    assert (body["zone"], body["account"]) == ("Europe/Berlin", "physics")
    assert '"size": 2000' in body["workspace"]
    assert '"name": "ubuntu"' in body["workspace"]


def test_refusal_is_an_answer_with_its_reason(service: Service) -> None:
    service.on("POST", "/v1/plans", REFUSED)

    decision = Outrider().plan(WorkspaceText("version: 1\n"))

    assert decision.result == "refused"
    assert decision.earliest_start_s == REFUSED.earliest_start_s
    assert decision.remedies == REFUSED.remedies


def test_file_is_sent_as_it_is(service: Service) -> None:
    service.on("POST", "/v1/reservations", ACCEPTED)
    Path("ws.yaml").write_text("version: 1 # mine\n")

    Outrider().reserve("ws.yaml")

    body = service.last("POST").body
    assert isinstance(body, dict)
    assert (body["workspace"], body["file"]) == ("version: 1 # mine\n", "ws.yaml")


def test_key_that_no_deployment_has_is_refused_before_anything_is_sent(service: Service) -> None:
    with pytest.raises(InputError, match="begin is not a key of a deployment"):
        Outrider().reserve(Image("a.qcow2"), begin="14:00")

    assert service.asked == []


def test_faults_of_a_workspace_come_with_their_places(service: Service) -> None:
    problem = {"line": 3, "column": 5, "key": "metadata.name", "message": "is missing"}
    trouble = {"code": "invalid", "message": "1 fault", "problems": [problem]}
    service.on("POST", "/v1/reservations", Reply(status=422, value=trouble))

    with pytest.raises(FaultyRequestError) as error:
        Outrider().reserve(WorkspaceText("version: 1\n"))

    assert (error.value.problems[0].line, error.value.problems[0].message) == (3, "is missing")


def test_reservation_is_waited_for_until_it_is_ready(service: Service) -> None:
    service.on("GET", "/v1/reservations/render", DETAILS)
    service.on("GET", "/v1/reservations/render-17", DETAILS, READY)
    clock = Clock()

    found = Outrider(clock=clock).wait("render")

    assert found.reservation.state == "ready"
    assert [each.path for each in service.asked] == [
        "/v1/reservations/render", "/v1/reservations/render-17", "/v1/reservations/render-17",
    ]  # fmt: skip
    assert sum(clock.slept) == 4


def test_wait_ends_with_an_error_when_its_time_is_over(service: Service) -> None:
    service.on("GET", "/v1/reservations/render-17", DETAILS)
    clock = Clock()

    with pytest.raises(LateError, match="render-17 is preparing and not ready after 5 s"):
        Outrider(clock=clock).wait("render-17", timeout_s=5)

    assert sum(clock.slept) == 5


def test_wait_for_what_has_failed_ends_at_once(service: Service) -> None:
    service.on("GET", "/v1/reservations/render-17", FAILED)

    with pytest.raises(BrokenError, match="render-17 has failed"):
        Outrider(clock=Clock()).wait("render-17", until="over")


def test_job_is_waited_for_until_it_is_held_no_more(service: Service) -> None:
    service.on("GET", "/v1/jobs/4711", HELD, FREE)

    assert Outrider(clock=Clock()).wait_for_job("4711").released_to == "n[1-2]"


def test_job_whose_image_is_refused_is_not_waited_for(service: Service) -> None:
    refused = replace(HELD, job=replace(JOB, state="refused", words="there is no such image"))
    service.on("GET", "/v1/jobs/4711", refused)

    with pytest.raises(BrokenError, match="there is no such image"):
        Outrider(clock=Clock()).wait_for_job("4711")


def test_lists_are_whole_whatever_the_pages(service: Service) -> None:
    first = ReservationList(reservations=(VIEW,), next_after=17)
    service.on("GET", "/v1/reservations", first, replace(LIST, reservations=(OTHER,)))
    service.on("GET", "/v1/jobs", JobList(jobs=(JOB,), next_after=""))
    outrider = Outrider()

    found = outrider.reservations(user="ada", states=["preparing", "ready"])

    assert [each.name for each in found] == ["render-17", "web-3"]
    assert service.asked[1].query == {"user": "ada", "state": "preparing,ready", "after": "17"}
    assert [each.job for each in outrider.jobs()] == ["4711"]


def test_job_is_submitted_with_its_program_as_seen_from_here(service: Service) -> None:
    service.on("POST", "/v1/submissions", {"job": "4711", "notes": []})
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)

    handed = Outrider().submit(["./run.sh", "-x"], reservation="render-17", nodes=2)

    assert handed.job == "4711"
    body = {"argv": [str(Path("run.sh").absolute()), "-x"], "nodes": 2, "reservation": "render-17"}
    assert service.last("POST").body == body


def test_reservation_is_cancelled(service: Service) -> None:
    service.on("DELETE", "/v1/reservations/render-17", READY)

    assert Outrider().cancel("render-17").reservation.name == "render-17"


def test_what_is_not_there_has_an_error_of_its_own(service: Service) -> None:
    with pytest.raises(NotFoundError):
        Outrider().show("nothing-1")


def test_answer_of_another_form_is_no_answer(service: Service) -> None:
    service.on("GET", "/v1/status", {"site": 5})

    with pytest.raises(UnreachableError, match="is not of the form known here"):
        Outrider().status()


def test_status_has_its_types(service: Service) -> None:
    service.on("GET", "/v1/status", STATUS)

    assert Outrider().status().nodes_up == STATUS.nodes_up


def test_nobody_listening_is_said_in_one_line() -> None:
    with pytest.raises(
        UnreachableError, match="outriderd is not running: nobody listens on /nonexistent/s"
    ) as error:
        Outrider(socket="/nonexistent/s", timeout_s=1, clock=Clock()).status()

    assert "\n" not in str(error.value)
