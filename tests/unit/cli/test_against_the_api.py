"""The command line against the API itself, with a scripted service behind it: what arrives there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.main import main
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.front import Busy, NotDone, Submit, WantedShares
from outrider.service.requests import (
    Cancel,
    Explain,
    ListImages,
    ListNodes,
    ListReservations,
    ListTransfers,
    Modify,
    Reconcile,
    Reserve,
    Show,
    ShowStatus,
    ShowTimeline,
)
from tests.unit.service.web.apiserver import BEST_EFFORT, WORKSPACE, ScriptedFront, Server
from tests.unit.service.web.siteanswers import NOW_S

Capture = pytest.CaptureFixture[str]
BUSY = Trouble(code="unavailable", message="the batch system is away")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="or-"))
    started = Server(folder)
    yield started
    started.stop()
    shutil.rmtree(folder)


@pytest.fixture
def front(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedFront:
    server.front.reset()
    for name, value in {"OUTRIDER_SOCKET": server.path, "TZ": "Europe/Berlin", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws.yaml").write_text(WORKSPACE)
    (tmp_path / "job.yaml").write_text(BEST_EFFORT)
    return server.front


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("reserve ws.yaml", Reserve),
        ("reserve --image file:///a.img --nodes 2 -t 1h --start now+1hour", Reserve),
        ("plan ws.yaml", Reserve),
        ("modify render --nodes 3", Modify),
        ("cancel render-17", Cancel),
        ("list --past --user mia --state ended", ListReservations),
        ("show render-17", Show),
        ("explain render-17", Explain),
        ("nodes n[1-4]", ListNodes),
        ("images", ListImages),
        ("transfers", ListTransfers),
        ("top --user mia --node n[1-2]", WantedShares),
        ("status", ShowStatus),
        ("reconcile", Reconcile),
        ("submit --reservation render-17 -n 2 -t 30m --account p ./run.sh --fast", Submit),
        ("submit --workspace job.yaml hostname", Submit),
    ],
)
def test_every_command_is_understood(front: ScriptedFront, line: str, kind: type) -> None:
    assert main(line.split()) == 0
    assert kind in [type(request) for _, request in front.asked]


@pytest.mark.parametrize("line", ["config show", "policies reload", "backup copy.db"])
def test_administration_is_understood(front: ScriptedFront, line: str, capsys: Capture) -> None:
    assert main(line.split()) == 0
    assert capsys.readouterr().out


def test_options_arrive_as_the_deployment_in_the_user_s_zone(front: ScriptedFront) -> None:
    main(["reserve", "ws.yaml", "--start", "2027-02-01T14:00", "-N", "3", "-t", "90", "--account", "p"])
    request = next(each for _, each in front.asked if isinstance(each, Reserve))
    deployment = request.workspace.deployment

    assert deployment is not None
    assert (deployment.nodes, deployment.duration_s) == (3, 5400)
    assert deployment.start_s == 1_801_486_800
    assert request.account == "p"
    assert request.key


def test_change_arrives_as_it_was_typed(front: ScriptedFront) -> None:
    main(["modify", "render-17", "--start", "now+2hours", "--duration", "1h", "--nodes", "4", "--plan"])
    request = next(each for _, each in front.asked if isinstance(each, Modify))

    assert (request.start_s, request.duration_s, request.nodes) == (NOW_S + 7200, 3600, 4)
    assert (request.name, request.is_plan) == ("render-17", True)


def test_timeline_arrives_in_seconds(front: ScriptedFront) -> None:
    main(["timeline", "--from", "2027-02-01T14:00", "--until", "2027-02-01T15:00", "--nodes", "n[1-2]"])
    request = next(each for _, each in front.asked if isinstance(each, ShowTimeline))

    assert (request.from_s, request.until_s) == (1_801_486_800, 1_801_490_400)
    assert request.names == ("n1", "n2")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (Trouble(code="not-found", message="no"), 7),
        (Trouble(code="not-allowed", message="no"), 6),
        (Trouble(code="ambiguous", message="no"), 8),
        (Trouble(code="conflict", message="no"), 8),
        (Trouble(code="unavailable", message="no"), 9),
        (Trouble(code="invalid", message="no"), 1),
        (Busy("too much"), 9),
    ],
)
def test_every_trouble_has_its_exit_code(
    front: ScriptedFront, given: Any, code: int, capsys: Capture
) -> None:
    front.answers["Show"] = given

    assert main(["show", "render-17", "--timeout", "1"]) == code
    assert capsys.readouterr().err.startswith("outrider: ")


def test_refusal_is_4_and_faults_are_lines(front: ScriptedFront, capsys: Capture) -> None:
    refused: Decision = front.answers["Reserve"]
    front.answers["Reserve"] = Decision(
        result="refused", name="", workspace="render", start_s=None, end_s=None, nodes="", node_count=2,
        image=refused.image, reason="the link is booked",
    )  # fmt: skip
    Path("bad.yaml").write_text(WORKSPACE.replace("nodes: 2", "nodes: two"))

    assert main(["reserve", "ws.yaml"]) == 4
    assert main(["reserve", "bad.yaml", "--cpus", "many"]) == 1
    first, *faults = capsys.readouterr().out.splitlines()
    assert first == "render is refused: the link is booked"
    assert '--cpus: "many" is not a whole number' in faults
    assert 'bad.yaml:8:10: deployment.nodes: "two" is not a whole number' in faults


def test_submission_that_is_not_done_is_told(front: ScriptedFront, capsys: Capture) -> None:
    front.job = NotDone(BUSY)

    assert main(["submit", "hostname"]) == 9
    assert capsys.readouterr().err == "outrider: the batch system is away\n"


def test_same_command_twice_is_two_requests(front: ScriptedFront) -> None:
    main(["reserve", "ws.yaml"])
    main(["reserve", "ws.yaml"])
    keys = [each.key for _, each in front.asked if isinstance(each, Reserve)]

    assert len(keys) == len(set(keys)) == 2
