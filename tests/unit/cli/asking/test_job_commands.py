"""`outrider jobs`, and `show` and `explain` of a job."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.service.answers.images import ImageView
from outrider.service.answers.jobs import JobDetails, JobList, JobView, MachineView
from outrider.service.answers.records import DecisionLine
from outrider.service.answers.transfers import NodeStaging
from tests.unit.cli.canned import Service
from tests.unit.cli.samples import NOW_S, STATUS

Capture = pytest.CaptureFixture[str]
DIGEST = "sha256:" + "9f" * 32
JOB = JobView(
    job="4711",
    user="mia",
    state="staging",
    held=True,
    image=ImageView(uri="https://host/ubuntu.qcow2", digest=DIGEST, size_bytes=2 << 30, is_private=False),
    nodes_wanted=2,
    nodes="n[1-2]",
    node_count=2,
    submitted_s=NOW_S - 60,
    ready_s=NOW_S + 120,
    start_s=NOW_S + 120,
    is_overdue=False,
    words="image ubuntu.qcow2 is on its way, ready about 14:03",
)
DETAILS = JobDetails(
    job=JOB,
    tasks=1,
    staging=(
        NodeStaging(node="n1", state="ready", arrived_bytes=2 << 30, size_bytes=2 << 30),
        NodeStaging(node="n2", state="arriving", arrived_bytes=1 << 30, size_bytes=2 << 30),
    ),
    released_to="",
    decisions=(
        DecisionLine(
            number=7, at_s=NOW_S - 50, kind="lead", name="job 4711", outcome="planned", reason="to n[1-2]"
        ),
    ),
)


def test_jobs_are_a_table(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/jobs", JobList(jobs=(JOB,), next_after=""))

    assert main(["jobs", "-n", "--state", "staging", "--user", "mia"]) == 0
    line = capsys.readouterr().out.strip()
    assert service.last("GET").query == {"user": "mia", "state": "staging"}
    assert line.split()[:5] == ["4711", "staging", "mia", "2", "n[1-2]"]
    assert line.endswith(JOB.words)


def test_number_is_a_job(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/jobs/4711", DETAILS)

    assert main(["show", "4711"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"job 4711 is staging: {JOB.words}\n")
    assert "held until then" in text
    assert "n1" in text
    assert "n2" in text


def test_explanation_of_a_job_has_its_decisions(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/jobs/4711", DETAILS)

    assert main(["explain", "4711"]) == 0
    assert "planned: to n[1-2]" in capsys.readouterr().out


def test_status_counts_jobs_and_those_that_wait_too_long(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/status", replace(STATUS, jobs={"staging": 2, "running": 0}, jobs_overdue=1))
    main(["status"])

    assert "  jobs          2 staging\n                1 wait longer" in capsys.readouterr().out


def test_machines_of_a_job_are_shown_and_entered_by_their_names(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = (
        MachineView(number=1, name="head", node="n1", address="10.211.0.1", state="runs"),
        MachineView(number=2, name="worker1", node="", address="10.211.0.2", state="begins"),
    )
    running = replace(DETAILS, job=replace(JOB, state="running"), machines=machines)
    service.on("GET", "/v1/jobs/4711", running)
    entered: list[list[str]] = []
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/srun")
    monkeypatch.setattr("os.execvp", lambda _, argv: entered.append(list(argv)))

    assert main(["show", "4711"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["head", "n1", "10.211.0.1", "runs"] in lines
    assert ["worker1", "-", "10.211.0.2", "begins"] in lines
    assert main(["ssh", "4711", "worker1", "uptime"]) == 0
    assert "--relative=1" in entered[0]
    assert main(["ssh", "4711", "head", "uptime"]) == 0
    assert "--nodelist=n1" in entered[1]
    assert not any(each.startswith("--relative") for each in entered[1])
    assert main(["console", "4711", "worker2"]) != 0


def test_machines_on_the_services_own_machine_are_entered_there(
    service: Service, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user finds their own folder alone."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    running = replace(DETAILS, job=replace(JOB, state="running", user=user), machines_folder=str(tmp_path))
    service.on("GET", "/v1/jobs/4711", running)
    monkeypatch.setenv("OUTRIDER_MACHINES", "")
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *_: None)

    assert main(["console", "4711"]) == 125

    assert f"no machine in {tmp_path}/outrider-{os.geteuid()}/job-4711" in capsys.readouterr().err
