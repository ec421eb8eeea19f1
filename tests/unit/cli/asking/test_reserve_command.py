"""`outrider reserve`, `plan` and `modify`: what is sent, what is shown, and how it exits."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import pytest
import yaml

from outrider.cli.asking import reserve as asking
from outrider.cli.asking.display.decision import accepted_screen, refused_screen
from outrider.cli.asking.display.terminal import plain_paint
from outrider.cli.asking.display.words import When
from outrider.cli.asking.wanted import typable_start
from outrider.cli.main import main, parser
from outrider.cli.output import plain
from outrider.metadata import yamlfile
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.service.answers.leases import Occurrence
from outrider_client import wishes
from outrider_client.wishes import name_from
from tests.unit.cli.canned import Asked, Reply, Service
from tests.unit.cli.samples import ACCEPTED, DETAILS, NOW_S, REFUSED, STATUS, VIEW

Capture = pytest.CaptureFixture[str]
WHEN = When(now_s=NOW_S, zone=UTC)
TEXT = "version: 1\n# as it is: ü\n"


def body(asked: Asked) -> dict[str, object]:
    return cast(dict[str, object], asked.body)


@pytest.fixture
def file(tmp_path: Path, service: Service) -> str:
    service.on("POST", "/v1/reservations", Reply(status=201, value=ACCEPTED))
    service.on("GET", "/v1/status", STATUS)
    path = tmp_path / "ws.yaml"
    path.write_text(TEXT)
    return str(path)


def test_text_of_the_file_is_sent_as_it_is_with_options_as_texts(service: Service, file: str) -> None:
    assert main(["reserve", file, "--start", "14:00", "-N", "4", "--gpus", "none", "--account", "p"]) == 0
    assert body(service.last("POST")) == {
        "workspace": TEXT,
        "file": file[-255:],
        "options": {"start": "14:00", "nodes": "4", "gpus": None},
        "zone": "UTC",
        "account": "p",
    }


def test_command_ends_when_the_batch_system_has_what_was_promised(service: Service, file: str) -> None:
    there, missing = (
        replace(DETAILS, reservation=replace(VIEW, is_confirmed=is_confirmed))
        for is_confirmed in (True, False)
    )
    service.on("GET", "/v1/reservations/render-17", missing, missing, there)

    assert main(["reserve", file]) == 0
    assert [each.path for each in service.asked].count("/v1/reservations/render-17") == 3


def test_promise_stands_whether_the_batch_system_has_it_in_time_or_not(
    service: Service, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(asking, "CONFIRMED_S", 0.3)
    missing = replace(DETAILS, reservation=replace(VIEW, is_confirmed=False))
    service.on("GET", "/v1/reservations/render-17", missing)

    assert main(["reserve", file]) == 0
    assert "render-17 is reserved" in capsys.readouterr().out


def test_every_key_of_a_deployment_has_an_option(service: Service, file: str) -> None:
    line = (
        "--nodes 1 --start 2 --duration 3 --finish-by 4 --instances-per-node 5 --cpus 6 --memory 7 --gpus 8"
        " --least-piece 9"
    )
    main(["reserve", file, *line.split()])

    assert body(service.last("POST"))["options"] == {
        "nodes": "1", "start": "2", "duration": "3", "finish_by": "4", "instances_per_node": "5",
        "cpus": "6", "memory": "7", "gpus": "8", "least_piece": "9",
    }  # fmt: skip


def test_zone_of_the_user_is_sent(service: Service, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    main(["reserve", file])
    main(["reserve", file, "--utc"])

    assert [body(each)["zone"] for each in service.asked if each.method == "POST"] == ["Europe/Berlin", "UTC"]


def test_workspace_may_come_from_stdin(service: Service, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"version: 1\n")))
    main(["reserve", "-"])

    assert body(service.last("POST"))["workspace"] == "version: 1\n"


def test_workspace_of_options_is_one_that_the_service_understands(service: Service, file: str) -> None:
    digest = "sha256:" + "0" * 64
    image = f"--image https://h/a%20b/Ubuntu_24.04.qcow2 --digest {digest} --size 2GiB --private"
    main(f"reserve {image} -t 1h -N 2".split())
    sent = body(service.last("POST"))
    found = parse_workspace(
        str(sent["workspace"]).encode(), Circumstances(now_s=NOW_S, zone=UTC), file="x",
        options=cast(dict[str, str | None], sent["options"]),
    )  # fmt: skip

    assert found.metadata.name == "Ubuntu_24"
    assert found.metadata.image.uri == "https://h/a%20b/Ubuntu_24.04.qcow2"
    assert (found.metadata.image.digest, found.metadata.image.size_bytes) == (digest, 2 * 2**30)
    assert found.metadata.image.private
    assert found.deployment is not None
    assert (found.deployment.nodes, found.deployment.duration_s) == (2, 3600)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("ubuntu", "ubuntu"),
        ("file:///srv/My Image (1).raw", "My-Image-1"),
        ("https://h/x.qcow2?v=1/2", "x"),
        ("https://h/", "h"),
        ("https://h/.hidden", "hidden"),
        ("---", "workspace"),
        ("x" * 200, "x" * 63),
    ],
)
def test_name_after_an_image_is_one_that_a_workspace_may_have(uri: str, name: str) -> None:
    assert name_from(uri) == name


def test_accepted_is_one_screen() -> None:
    shown = accepted_screen(ACCEPTED, WHEN, plain_paint, "is reserved", "outrider show render-17")

    assert shown.split("\n") == [
        "render-17 is reserved: 4 nodes, n[1-4], from 14:30 to 16:30 (2 h)",
        "  image    ubuntu.qcow2, 2.0 GiB, sha256:9f86d081884c",
        "  ready    about 14:17:10, 12 min 50 s before the start; at the latest 14:29:59",
        "  to move  2.0 GiB to n[1-2]",
        "  saved    4.0 GiB: n[3-4] have the image, or will",
        "  next     outrider show render-17",
    ]


def test_times_are_those_of_the_zone_with_the_date_of_another_day() -> None:
    tokyo = When(now_s=NOW_S, zone=ZoneInfo("Asia/Tokyo"))
    later = replace(ACCEPTED, end_s=(ACCEPTED.start_s or 0) + 86_400)

    assert "from 23:30 to 2030-03-30 01:30 (2 h)" in accepted_screen(ACCEPTED, tokyo, plain_paint, "is", "x")
    assert "from 14:30 to 2030-03-30 14:30 (1 d)" in accepted_screen(later, WHEN, plain_paint, "is", "x")


def test_image_that_is_everywhere_moves_nothing() -> None:
    there = replace(
        ACCEPTED, transfers=(), nodes_with_image="n[1-4]", ready_s=NOW_S, latest_ready_s=NOW_S, slack_s=1500
    )
    shown = accepted_screen(there, WHEN, plain_paint, "is reserved", "x")

    assert "ready    now: the image is on all of these nodes" in shown
    assert "to move  nothing" in shown


def test_refused_says_why_and_what_would_work() -> None:
    shown = refused_screen(REFUSED, WHEN, plain_paint, "is refused", "outrider again")

    assert shown.split("\n") == [
        f"render is refused: {REFUSED.reason}",
        "  image     ubuntu.qcow2, 2.0 GiB, sha256:9f86d081884c",
        "  earliest  15:10 (in 1 h 5 min), 40 min later than asked for",
        "            outrider again",
        "  or        ask for 2 nodes, where the image is already",
        "            choose a smaller image",
        "  offers    offer-k3mzqa-1  later: 4 nodes, n[1-4], from 15:10 to 17:10 (2 h)",
        "            offer-k3mzqa-2  fewer nodes: 2 nodes, n[3-4], from 14:30 to 16:30 (2 h)",
        "            held until 14:06 (in 1 min): outrider accept offer-k3mzqa-1",
    ]


def test_accepted_exits_with_0_and_names_what_to_type_next(file: str, capsys: Capture) -> None:
    assert main(["reserve", file]) == 0
    shown = capsys.readouterr().out

    assert "outrider show render-17\n" in shown
    assert "outrider submit --reservation render-17 --nodes 4 SCRIPT\n" in shown


def test_notes_are_remarks_beside_the_promise(service: Service, file: str, capsys: Capture) -> None:
    noted = replace(ACCEPTED, notes=("metadata.roles is not used",))
    service.on("POST", "/v1/reservations", Reply(status=201, value=noted))

    assert main(["reserve", file]) == 0
    assert capsys.readouterr().err == "outrider: note: metadata.roles is not used\n"


def test_promise_is_shown_even_if_the_status_cannot_be_had(
    service: Service, file: str, capsys: Capture
) -> None:
    service.on("GET", "/v1/status", Reply(status=500, raw=b""))

    assert main(["reserve", file]) == 0
    assert capsys.readouterr().out.startswith("render-17 is reserved")


@pytest.mark.parametrize("given", [["--start", "14:00"], ["--start=14:00"], []])
def test_refused_exits_with_4_and_the_command_for_the_earliest_start_can_be_typed(
    service: Service, file: str, capsys: Capture, given: list[str]
) -> None:
    service.on("POST", "/v1/reservations", REFUSED)

    assert main(["reserve", file, "--account", "a b", *given]) == 4
    again = next(line for line in capsys.readouterr().out.splitlines() if "  outrider reserve" in line)
    typed = parser().parse_args(shlex.split(again)[1:])
    assert (typed.file, typed.start, typed.account) == (file, "2030-03-29T15:10:00+00:00", "a b")


@pytest.mark.parametrize("given", [["--finish-by", "16:00"], ["--finish-by=16:00"]])
def test_command_for_the_earliest_start_drops_an_end_that_contradicts_it(
    service: Service, file: str, capsys: Capture, given: list[str]
) -> None:
    service.on("POST", "/v1/reservations", REFUSED)
    main(["reserve", file, *given])
    again = next(line for line in capsys.readouterr().out.splitlines() if "  outrider reserve" in line)

    assert parser().parse_args(shlex.split(again)[1:]).finish_by == "none"


@pytest.mark.parametrize(
    ("earliest_s", "start"),
    [(12_000, "now+1s"), (12_031, "now+31s"), (12_600, "now+600s"), (12_601, "1970-01-01T03:30:01+00:00")],
)
def test_start_that_is_soon_is_the_earliest_and_leaves_time_to_type(earliest_s: int, start: str) -> None:
    assert typable_start(earliest_s, When(now_s=12_000, zone=UTC)) == start


def test_path_of_an_image_is_this_machine_s_file(
    service: Service, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reserve", "--image", "./my image.raw"])
    main(["reserve", "--image", "ubuntu/24.04"])
    sent = [
        json.loads(str(body(each)["workspace"]))["metadata"]["image"]["uri"]
        for each in service.asked
        if each.method == "POST"
    ]

    assert sent == [f"{tmp_path.as_uri()}/my%20image.raw", "ubuntu/24.04"]


def test_faults_without_a_file_name_options(service: Service, file: str, capsys: Capture) -> None:
    problems = [
        {"line": 1, "column": 20, "key": "metadata.image.uri", "message": "is not an address"},
        {"line": 1, "column": 90, "key": "deployment.instances_per_node", "message": "is missing"},
        {"line": 1, "column": 90, "key": "deployment", "message": "give a start"},
    ]
    value = {"code": "invalid", "message": "faults", "problems": problems}
    service.on("POST", "/v1/reservations", Reply(status=422, value=value))

    assert main(["reserve", "--image", "x"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "--image: is not an address", "--instances-per-node: is missing", "give a start"
    ]  # fmt: skip


def test_plan_changes_nothing_and_names_the_command_that_would(
    service: Service, file: str, capsys: Capture
) -> None:
    service.on("POST", "/v1/plans", replace(ACCEPTED, name=""))

    assert main(["plan", file, "--start", "14:00"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("render would be accepted: 4 nodes")
    assert f"next     outrider reserve {shlex.quote(file)} --start 14:00\n" in shown
    assert [each.path for each in service.asked] == ["/v1/plans"]


def test_json_is_the_answer_as_it_is(service: Service, file: str, capsys: Capture) -> None:
    service.on("POST", "/v1/reservations", {**cast(dict[str, object], plain(REFUSED)), "of_the_future": [1]})

    assert main(["reserve", file, "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found == {**json.loads(json.dumps(plain(REFUSED))), "of_the_future": [1]}


def test_faults_are_listed_as_a_compiler_lists_them(service: Service, file: str, capsys: Capture) -> None:
    problems = [
        {"line": 3, "column": 9, "key": "metadata.name", "message": "is missing"},
        {"line": 0, "column": 0, "key": "deployment.finish_by", "message": '"soon" is not a point in time'},
    ]
    value = {"code": "invalid", "message": "the workspace has 2 faults", "problems": problems}
    service.on("POST", "/v1/reservations", Reply(status=422, value=value))

    assert main(["reserve", file]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{file}:3:9: metadata.name: is missing",
        '--finish-by: "soon" is not a point in time',
    ]
    assert captured.err == "outrider: faults found: 2; nothing was reserved\n"


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ([], "--image"),
        (["no-such.yaml"], "no-such.yaml"),
        (["latin.yaml"], "latin.yaml:2:1: is not UTF-8"),
        (["large.yaml"], "large.yaml"),
        (["ws.yaml", "--image", "x"], "--image"),
        (["ws.yaml", "--digest", "sha256:0"], "--digest"),
        (["ws.yaml", "--timeout", "0"], "'0'"),
    ],
)
def test_what_is_not_right_is_told_before_anything_is_sent(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, line: list[str],
    culprit: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws.yaml").write_text(TEXT)
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (yamlfile.MOST_BYTES + 1))

    assert main(["reserve", *line]) == 1
    assert culprit in capsys.readouterr().err
    assert service.asked == []


def test_zone_that_is_none_is_told(
    service: Service, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TZ", "Middle/Earth")

    assert main(["reserve", file]) == 1
    assert "Middle/Earth" in capsys.readouterr().err


def test_modify_sends_what_changes_and_nothing_else(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/status", STATUS)
    service.on("PATCH", "/v1/reservations/render-17", ACCEPTED)

    assert main(["modify", "render-17", "--duration", "4h", "--nodes", "8"]) == 0
    asked = service.last("PATCH")
    assert (asked.body, asked.query) == ({"duration": "4h", "nodes": 8, "zone": "UTC"}, {"plan": "false"})
    assert capsys.readouterr().out.startswith("render-17 is changed: 4 nodes")


def test_modify_as_a_plan_says_so_and_names_the_command_that_would(service: Service, capsys: Capture) -> None:
    service.on("PATCH", "/v1/reservations/render-17", ACCEPTED)

    assert main(["modify", "render-17", "--start", "15:00", "--plan"]) == 0
    shown = capsys.readouterr().out
    assert service.last("PATCH").query == {"plan": "true"}
    assert shown.startswith("render-17 would be changed: ")
    assert "next     outrider modify render-17 --start 15:00\n" in shown


def test_change_that_is_refused_leaves_all_as_it_was(service: Service, capsys: Capture) -> None:
    service.on("PATCH", "/v1/reservations/render-17", replace(REFUSED, name="render-17"))

    assert main(["modify", "render-17", "--nodes", "64"]) == 4
    assert capsys.readouterr().out.startswith("render-17 stays as it was: ubuntu.qcow2 (2.0 GiB) cannot")


@pytest.mark.parametrize("line", [[], ["--nodes", "0"], ["--nodes", "four"]])
def test_change_of_nothing_or_to_nothing_is_an_input_error(service: Service, line: list[str]) -> None:
    assert main(["modify", "render-17", *line]) == 1
    assert service.asked == []


def test_file_may_be_as_large_as_the_service_reads(service: Service, file: str) -> None:
    Path(file).write_bytes(b"#" * yamlfile.MOST_BYTES)

    assert main(["reserve", file]) == 0
    assert wishes.MOST_BYTES == yamlfile.MOST_BYTES


def test_json_is_yaml() -> None:
    assert yaml.safe_load(json.dumps({"a": "ü\t\u2028", "b": [1]})) == {"a": "ü\t\u2028", "b": [1]}


def test_offer_is_accepted_by_its_name(service: Service, capsys: Capture) -> None:
    service.on("POST", "/v1/offers/offer-k3mzqa-1", Reply(status=201, value=ACCEPTED))
    service.on("GET", "/v1/status", STATUS)

    code = main(["accept", "offer-k3mzqa-1"])

    assert code == 0
    assert service.last("POST").path == "/v1/offers/offer-k3mzqa-1"
    assert capsys.readouterr().out.startswith("render-17 is reserved")


def test_offer_that_cannot_be_kept_is_a_refusal_without_a_command_to_repeat(
    service: Service, capsys: Capture
) -> None:
    service.on("POST", "/v1/offers/offer-k3mzqa-1", REFUSED)

    code = main(["accept", "offer-k3mzqa-1"])

    assert code == 4
    assert "outrider accept offer-k3mzqa-1 --start" not in capsys.readouterr().out


def test_offers_that_are_not_held_are_told_without_a_command() -> None:
    told = [replace(each, name="") for each in REFUSED.offers]
    decision = replace(REFUSED, offers=tuple(told), offers_until_s=None, are_offers_protected=False)

    screen = refused_screen(decision, WHEN, plain_paint, "is refused", "")

    assert "offers    later: 4 nodes" in screen
    assert "outrider accept" not in screen
    assert "may take their place" in refused_screen(
        replace(REFUSED, are_offers_protected=False), WHEN, plain_paint, "is refused", ""
    )


def test_pieces_of_a_lease_are_counted_and_named(service: Service, file: str, capsys: Capture) -> None:
    pieces = tuple(
        Occurrence(
            name=f"render-17.p{number}", number=number, result="accepted", start_s=NOW_S + number * 7200,
            end_s=NOW_S + number * 7200 + 3600, nodes="n[1-4]", reason="",
        )
        for number in (1, 2)
    )  # fmt: skip
    service.on("POST", "/v1/reservations", Reply(status=201, value=replace(ACCEPTED, occurrences=pieces)))

    code = main(["reserve", file, "--finish-by", "20:00", "--least-piece", "10m"])

    sent, shown = body(service.last("POST")), capsys.readouterr().out
    assert code == 0
    assert sent["options"] == {"finish_by": "20:00", "least_piece": "10m"}
    assert "2 pieces, render-17.p1 to render-17.p2, the last from" in shown
    assert "outrider submit --reservation render-17.p1" in shown


def test_what_recurs_is_sent_as_it_was_typed_and_shown_with_what_was_not_accepted(
    service: Service, file: str, capsys: Capture
) -> None:
    several = tuple(
        Occurrence(
            name="" if number == 2 else f"render-17.{number}", number=number,
            result="refused" if number == 2 else "accepted", start_s=NOW_S + number * 86_400,
            end_s=NOW_S + number * 86_400 + 3600, nodes="n[1-4]",
            reason="0 of 4 nodes are free" if number == 2 else "",
        )
        for number in (1, 2, 3)
    )  # fmt: skip
    service.on("POST", "/v1/reservations", Reply(status=201, value=replace(ACCEPTED, occurrences=several)))

    code = main(["reserve", file, "--every", "daily", "--until", "2030-04-01", "--best-fit"])

    sent, shown = body(service.last("POST")), capsys.readouterr().out
    assert code == 0
    assert (sent["every"], sent["until"], sent["best_fit"]) == ("daily", "2030-04-01", True)
    assert "2 of 3 occurrences, render-17.1 to render-17.3, the last from 2030-04-01 14:05" in shown
    assert "not from 2030-03-31 14:05 to 15:05 (1 h): 0 of 4 nodes are free" in shown
    assert "outrider show render-17.1" in shown
