"""`outrider list`, `show`, `explain` and `cancel`."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import replace
from datetime import UTC

import pytest

from outrider.cli.asking.display.details import details_screen
from outrider.cli.asking.display.staging import groups
from outrider.cli.asking.display.terminal import plain_paint
from outrider.cli.asking.display.words import When
from outrider.cli.main import main
from outrider.service.answers.leases import LeaseDetails, LeaseList, LeaseView
from outrider.service.answers.reservations import ReservationList
from outrider.service.answers.transfers import NodeStaging
from outrider.store.states import State
from tests.unit.cli.canned import Reply, Service
from tests.unit.cli.samples import (
    CANCELLED,
    DETAILS,
    ENDED,
    EXPLANATION,
    FAILED,
    LIST,
    NOW_S,
    OTHER,
    STAGING,
    VIEW,
)

Capture = pytest.CaptureFixture[str]
WHEN = When(now_s=NOW_S, zone=UTC)


def shown(capsys: Capture) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_list_is_a_table_of_columns(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations", LIST)

    assert main(["list"]) == 0
    head, first, second = shown(capsys)
    assert head.split() == [
        "NAME", "STATE", "USER", "NODES", "NODELIST", "START", "END", "READY", "IMAGE", "REMARK"
    ]  # fmt: skip
    assert first.split() == [
        "render-17", "preparing", "ada", "4", "n[1-4]", "2030-03-29T14:30", "2030-03-29T16:30",
        "2030-03-29T14:17", "ubuntu.qcow2", "-",
    ]  # fmt: skip
    assert second.split(maxsplit=9)[7:] == ["-", "(private)", "n8 is away since 14:01"]
    assert head.index("STATE") == first.index("preparing") == second.index("endangered")


def test_list_without_header_holds_reservations_alone(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations", LIST)
    main(["list", "-n"])

    assert [line.split()[0] for line in shown(capsys)] == ["render-17", "web-3"]


def test_list_goes_on_until_there_are_no_more(service: Service, capsys: Capture) -> None:
    first = ReservationList(reservations=(VIEW,), next_after=17)
    service.on("GET", "/v1/reservations", first, replace(LIST, reservations=(OTHER,)))

    assert main(["list", "--json"]) == 0
    assert [each.query for each in service.asked] == [{}, {"after": "17"}]
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["reservations"]] == ["render-17", "web-3"]
    assert found["next_after"] is None


def test_list_ends_though_a_service_repeats_itself(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations", ReservationList(reservations=(VIEW,), next_after=17))

    assert main(["list", "-n"]) == 0
    assert len(service.asked) == 2


@pytest.mark.parametrize(
    ("line", "query"),
    [
        (["--past"], {"past": "true"}),
        (["--user", "bob"], {"user": "bob"}),
        (["--mine"], {"user": pwd.getpwuid(os.geteuid()).pw_name}),
        (["--state", "ready", "--state", "active"], {"state": "ready,active"}),
        (["--state", "failed"], {"state": "failed", "past": "true"}),
    ],
)
def test_list_asks_for_what_its_options_say(
    service: Service, capsys: Capture, line: list[str], query: dict[str, str]
) -> None:
    service.on("GET", "/v1/reservations", ReservationList(reservations=(), next_after=None))

    assert main(["list", *line]) == 0
    assert service.last("GET").query == query
    assert capsys.readouterr() == ("", "outrider: no such reservations\n")


def test_every_state_can_be_listed(service: Service) -> None:
    service.on("GET", "/v1/reservations", LIST)

    assert [main(["list", "--state", each.value]) for each in State] == [0] * len(State)


def test_show_is_one_screen() -> None:
    lines = details_screen(DETAILS, WHEN, plain_paint).split("\n")

    assert lines == [
        "render-17 is preparing",
        "  user      ada, account physics",
        "  nodes     4 nodes, n[1-4]",
        "  time      from 14:30 to 16:30 (2 h), begins in 25 min",
        "  image     ubuntu.qcow2, 2.0 GiB, sha256:9f86d081884c",
        "  address   https://images.example.org/ubuntu.qcow2",
        f"  digest    {VIEW.image.digest}",
        "  ready     about 14:17:10, 12 min 50 s before the start",
        "  accepted  13:55",
        "on its nodes",
        "  n[1-2]  arriving  [########............]   41 %, 52 s left (n2 is last with 39 %), "
        "1.7 GiB of 4.0 GiB, 48.0 MiB/s, from relay n3",
        "  n[3-4]  ready     [####################]  100 %, since 13:05",
        "transfers",
        "  7: 2.0 GiB to n[1-2] in about 2 min 50 s, begins between 14:14:20 and 14:27:09, deadline 14:30",
    ]


def test_what_is_wrong_stands_first_among_nodes() -> None:
    failed = NodeStaging(node="n9", state="failed", arrived_bytes=0, size_bytes=5, words="no room")

    assert [each.nodes for each in groups((*STAGING, failed))] == ["n9", "n[1-2]", "n[3-4]"]


def test_many_nodes_that_are_alike_are_one_line() -> None:
    many = tuple(
        NodeStaging(node=f"n{number:04}", state="ready", arrived_bytes=5, size_bytes=5)
        for number in range(1, 5001)
    )
    text = details_screen(replace(DETAILS, staging=many), WHEN, plain_paint)

    assert "  n[0001-5000]  ready  [####################]  100 %\n" in text


def test_receipt_tells_what_became_of_the_promise() -> None:
    met = details_screen(ENDED, WHEN, plain_paint)
    broken = details_screen(FAILED, WHEN, plain_paint)

    assert "  receipt   met: ready 3 min 12 s before the start\n" in met
    assert "4.0 GiB moved, 4.0 GiB saved\n" in met
    assert "on its nodes" not in met
    assert broken.startswith("render-17 is failed: n2 was never reached\n")
    assert "  receipt   not met: the image was never on all nodes\n" in broken


def test_odds_are_told_while_it_is_endangered() -> None:
    endangered = replace(DETAILS, odds_percent=35, reservation=replace(VIEW, state="endangered"))

    assert "  odds      35 % that it is still met\n" in details_screen(endangered, WHEN, plain_paint)


def test_show_prints_the_json_as_it_is(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations/render-17", DETAILS)

    assert main(["show", "render-17", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["staging"][0]["node"] == "n1"


def test_explanation_is_sentences_and_what_was_decided(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations/render-17/explanation", EXPLANATION)

    assert main(["explain", "render-17"]) == 0
    assert shown(capsys) == [
        "render-17",
        "  It is on n[1-4] because n3 and n4 have the image.",
        "  The link was idle from 14:14 on.",
        "",
        "  2030-03-29T13:55:00  reserve accepted",
        "  2030-03-29T14:04:00  transfer begun: the link is idle",
    ]


def test_cancel_gives_back_each_that_is_named(service: Service, capsys: Capture) -> None:
    for name in ("render-17", "web-3"):
        service.on("DELETE", f"/v1/reservations/{name}", CANCELLED)

    assert main(["cancel", "render-17", "web-3"]) == 0
    assert [each.path for each in service.asked] == ["/v1/reservations/render-17", "/v1/reservations/web-3"]
    assert shown(capsys)[0].startswith("render-17 is cancelled: 4 nodes, n[1-4], from ")


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [("not-found", 404, 7), ("not-allowed", 403, 6), ("ambiguous", 409, 8), ("unavailable", 503, 9)],
)
@pytest.mark.parametrize("verb", ["show", "explain", "cancel", "watch"])
def test_trouble_is_one_line_and_an_exit_code(
    service: Service, capsys: Capture, verb: str, code: str, status: int, exit_code: int
) -> None:
    method = "DELETE" if verb == "cancel" else "GET"
    path = "/v1/reservations/render" + ("/explanation" if verb == "explain" else "")
    value = {"code": code, "message": "render is what it is", "problems": []}
    service.on(method, path, Reply(status=status, value=value))

    assert main([verb, "render"]) == exit_code
    assert capsys.readouterr() == ("", "outrider: render is what it is\n")


def test_answer_of_another_form_is_told(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/reservations/render-17", {"reservation": 17})

    assert main(["show", "render-17"]) == 5
    assert "ReservationDetails.reservation is int" in capsys.readouterr().err


def test_text_of_others_cannot_forge_a_line(service: Service, capsys: Capture) -> None:
    hostile = replace(VIEW, user="x\x1b[31m", account="a\nrender-18 is ready", why="so\r\nwhat")
    service.on("GET", "/v1/reservations/render-17", replace(DETAILS, reservation=hostile))
    service.on("GET", "/v1/reservations", ReservationList(reservations=(hostile,), next_after=None))
    main(["show", "render-17"])
    main(["list"])
    text = capsys.readouterr().out

    assert "\x1b" not in text
    assert "\r" not in text
    assert not any(line.startswith("render-18") for line in text.splitlines())


def test_all_of_one_that_recurs_are_cancelled_and_told_one_by_one(service: Service, capsys: Capture) -> None:
    gone = [replace(VIEW, name=f"render-17.{number}", state="cancelled") for number in (1, 2)]
    service.on(
        "DELETE", "/v1/reservations/render-17", ReservationList(reservations=tuple(gone), next_after=None)
    )

    assert main(["cancel", "render-17"]) == 0
    assert [line.partition(":")[0] for line in shown(capsys)] == [
        "render-17.1 is cancelled",
        "render-17.2 is cancelled",
    ]


def test_leases_of_a_kind_are_listed_with_what_recurs_as_one(service: Service, capsys: Capture) -> None:
    lease = LeaseView(
        name="render-17", kind="recurring", state="ready", user="ada", account="", workspace="render",
        start_s=VIEW.start_s, end_s=VIEW.end_s, nodes="n[1-4]", node_count=4, left=5,
        last_end_s=VIEW.end_s + 4 * 86_400, price=1_500,
    )  # fmt: skip
    service.on("GET", "/v1/leases", LeaseList(leases=(lease,), is_complete=True))

    assert main(["list", "--kind", "recurring", "--user", "ada"]) == 0
    assert service.last("GET").query == {"kind": "recurring", "user": "ada"}
    assert shown(capsys)[1].split() == [
        "render-17", "recurring", "ready", "ada", "4", "n[1-4]", "2030-03-29T14:30", "2030-03-29T16:30", "5",
        "2030-04-02T16:30", "1.500",
    ]  # fmt: skip
    assert main(["list", "--kind", "all", "--past"]) == 1


def test_show_of_what_recurs_lists_its_occurrences(service: Service, capsys: Capture) -> None:
    trouble = {"code": "ambiguous", "message": "render-17 could be render-17.1, render-17.2", "problems": []}
    service.on("GET", "/v1/reservations/render-17", Reply(status=409, value=trouble))
    parts = tuple(replace(VIEW, name=f"render-17.{number}") for number in (1, 2))
    lease = LeaseView(
        name="render-17", kind="recurring", state="ready", user="ada", account="", workspace="render",
        start_s=VIEW.start_s, end_s=VIEW.end_s, nodes="n[1-4]", node_count=4, left=2, last_end_s=VIEW.end_s,
        price=None,
    )  # fmt: skip
    service.on("GET", "/v1/leases/render-17", LeaseDetails(lease=lease, reservations=parts))

    assert main(["show", "render-17"]) == 0
    assert [line.split()[0] for line in shown(capsys)] == ["NAME", "render-17.1", "render-17.2"]
