"""`outrider watch` on a terminal and elsewhere, and `outrider submit`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cli.asking import watch
from outrider.cli.main import main
from outrider.service.answers.leases import LeaseDetails, LeaseView
from outrider.service.answers.transfers import TransferList
from tests.unit.cli.canned import Reply, Service, serving
from tests.unit.cli.samples import CANCELLED, DETAILS, ENDED, FAILED, STAGING, TRANSFERS, VIEW

Capture = pytest.CaptureFixture[str]
NAME = "/v1/reservations/render-17"
GONE = Reply(value={"code": "not-found", "message": "gone"}, status=404)
READY = replace(
    DETAILS,
    reservation=replace(VIEW, state="ready"),
    staging=tuple(replace(each, state="ready", arrived_bytes=each.size_bytes) for each in STAGING),
)


@pytest.fixture(autouse=True)
def _nobody_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachemgr.base.clock.SystemClock.sleep", lambda clock, seconds: None)


def test_changes_are_lines_and_the_end_is_the_end(service: Service, capsys: Capture) -> None:
    service.on("GET", NAME, DETAILS, DETAILS, READY, ENDED)

    assert main(["watch", "render-17"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "render-17 is preparing",
        "render-17: n[1-2] arriving, 40 %",
        "render-17: n[3-4] ready",
        "render-17 is ready",
        "render-17: n[1-4] ready",
        "render-17 is ended",
    ]
    assert len(service.asked) == 4


def test_reservation_that_is_meant_by_its_workspace_is_watched_to_its_end(
    service: Service, capsys: Capture
) -> None:
    service.on("GET", "/v1/reservations/render", DETAILS, GONE)
    service.on("GET", NAME, READY, ENDED)

    assert main(["watch", "render"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "render-17 is ended"


def test_watching_until_ready_ends_before_the_reservation_does(service: Service, capsys: Capture) -> None:
    service.on("GET", NAME, DETAILS, READY)

    assert main(["watch", "render-17", "--until", "ready"]) == 0
    assert len(service.asked) == 2


@pytest.mark.parametrize(("last", "code"), [(FAILED, 10), (CANCELLED, 0), (ENDED, 0)])
def test_exit_code_says_whether_it_failed(service: Service, capsys: Capture, last: object, code: int) -> None:
    service.on("GET", NAME, last)

    assert main(["watch", "render-17"]) == code


def test_json_is_an_object_a_line(service: Service, capsys: Capture) -> None:
    service.on("GET", NAME, DETAILS, DETAILS, ENDED)
    main(["watch", "render-17", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [each["reservation"]["state"] for each in found] == ["preparing", "ended"]


def test_restart_of_the_service_is_not_the_end(service: Service, capsys: Capture) -> None:
    service.on("GET", NAME, DETAILS, Reply(hangs_up=True), Reply(hangs_up=True), ENDED)

    assert main(["watch", "render-17"]) == 0
    assert capsys.readouterr().err == ""


def test_transfers_are_watched_until_somebody_stops(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.on("GET", "/v1/transfers", TRANSFERS, TransferList(transfers=(), is_complete=True))
    looks = iter([None, None])

    def sleep(clock: object, seconds: float) -> None:
        if next(looks, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("cachemgr.base.clock.SystemClock.sleep", sleep)

    assert main(["watch"]) == 130
    assert capsys.readouterr().out.splitlines() == [
        "7: ubuntu.qcow2 to n[1-2] running, 40 %",
        "8: ubuntu.qcow2 to n[7-8] waiting, 0 %, late",
    ]


def test_screen_is_drawn_over_itself_and_never_longer_than_the_terminal() -> None:
    written: list[str] = []
    screen = watch.RedrawnScreen(written.append, lambda: 20, lambda: 5)
    screen.show("a\nb", {})
    screen.show("c", {})
    screen.show("\n".join("x" * 50 for _ in range(9)), {})

    assert written[0] == "a\x1b[K\nb\x1b[K\n\x1b[J"
    assert written[1] == "\x1b[2Fc\x1b[K\n\x1b[J"
    assert written[2].startswith("\x1b[1F")
    assert written[2].count("\n") == 4
    assert max(len(line.split("\x1b")[0]) for line in written[2].splitlines()[1:]) <= 19


def test_interrupt_on_a_terminal_leaves_no_traceback() -> None:
    leader, follower = pty.openpty()
    with tempfile.TemporaryDirectory(prefix="or-") as folder, serving(Path(folder) / "s") as service:
        service.on("GET", NAME, DETAILS)
        environment = {**os.environ, "OUTRIDER_SOCKET": str(service.path), "TERM": "xterm", "TZ": "UTC"}
        child = subprocess.Popen(
            [sys.executable, "-m", "outrider.cli.main", "watch", "render-17", "--every", "1"],
            stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
        os.close(follower)
        seen = b""
        try:
            while b"n[3-4]" not in seen:
                seen += os.read(leader, 65_536)
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=240)
        finally:
            child.kill()
            child.wait()
            os.close(leader)

    assert (child.returncode, errors) == (130, b"outrider: interrupted\n")


def test_submission_is_the_program_with_its_own_options(
    service: Service, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("")
    (tmp_path / "run.sh").chmod(0o755)
    service.on("POST", "/v1/submissions", Reply(status=201, value={"job": "42"}))

    assert main(["submit", "--reservation", "render-17", "-n", "4", "./run.sh", "--nodes", "x", "-n"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert service.last("POST").body == {
        "argv": [str(tmp_path / "run.sh"), "--nodes", "x", "-n"], "nodes": 4, "reservation": "render-17",
    }  # fmt: skip


def test_script_that_cannot_be_started_is_refused_before_it_is_submitted(
    service: Service, capsys: Capture, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")

    code = main(["submit", "--reservation", "render-17", str(script)])

    assert code == 1
    assert f"{script} is started as a program and is not executable: chmod +x" in capsys.readouterr().err
    assert service.asked == []


def test_submission_on_a_workspace_carries_its_text(
    service: Service, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "ws.yaml").write_text("version: 1\n")
    service.on("POST", "/v1/submissions", Reply(status=201, value={"job": "43"}))

    assert main(["submit", "--workspace", str(tmp_path / "ws.yaml"), "-t", "30m", "hostname"]) == 0
    assert service.last("POST").body == {
        "argv": ["hostname"], "duration": "30m", "workspace": "version: 1\n",
        "file": str(tmp_path / "ws.yaml")[-255:], "zone": "UTC",
    }  # fmt: skip


def test_submission_names_a_workspace_or_a_reservation_but_not_both(service: Service) -> None:
    assert main(["submit", "--workspace", "a", "--reservation", "b", "x"]) == 1
    assert service.asked == []


@pytest.mark.parametrize(("last", "code"), [("ended", 0), ("failed", 10)])
def test_lease_of_several_reservations_is_watched_until_all_are_over(
    service: Service, capsys: Capture, last: str, code: int
) -> None:
    parts = [replace(VIEW, name=f"mpi-17.{role}", state="ready", nodes="n1") for role in ("head", "worker")]
    lease = LeaseView(
        name="mpi-17", kind="roles", state="ready", user="ada", account="", workspace="mpi",
        start_s=VIEW.start_s, end_s=VIEW.end_s, nodes="n1", node_count=1, left=2, last_end_s=VIEW.end_s,
        price=None,
    )  # fmt: skip
    trouble = {"code": "ambiguous", "message": "mpi-17 could be mpi-17.head", "problems": []}
    service.on("GET", "/v1/reservations/mpi-17", Reply(status=409, value=trouble))
    service.on(
        "GET",
        "/v1/leases/mpi-17",
        LeaseDetails(lease=lease, reservations=(parts[0], replace(parts[1], state="preparing"))),
        LeaseDetails(lease=replace(lease, left=1), reservations=(replace(parts[0], state="active"),)),
        GONE,
    )
    for each, state in zip(parts, ("ended", last), strict=True):
        over = replace(ENDED, reservation=replace(each, state=state))
        service.on("GET", f"/v1/reservations/{each.name}", over)

    assert main(["watch", "mpi-17"]) == code
    assert capsys.readouterr().out.splitlines() == [
        "mpi-17.head is ready on n1",
        "mpi-17.worker is preparing on n1",
        "mpi-17.head is active on n1",
        "mpi-17.head is ended",
        f"mpi-17.worker is {last}",
    ]
