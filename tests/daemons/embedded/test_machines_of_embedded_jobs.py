"""Jobs in real guests on virtual nodes: they yield, move, and count on, whoever is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.rms.embedded import JobMachines
from tests.daemons.embedded.machine_service import SCRIPT, UID, MachineService, needs_qemu, readable_folder

pytestmark = needs_qemu


@pytest.fixture
def folder() -> Iterator[Path]:
    with readable_folder() as path:
        yield path


@pytest.fixture
def service(folder: Path) -> Iterator[MachineService]:
    made = MachineService(folder)
    made.start()
    yield made
    made.end_jobs()


def test_job_counts_on_in_its_machine_for_whatever_it_is_saved(service: MachineService) -> None:
    job = service.hand_over()
    assert job.isdecimal(), job
    service.must("it counts", lambda: len(service.counted(job)) > 5)

    service.wait_for("it runs", job, "running")

    # Both nodes are reserved: it yields, and comes back when they are given up.
    body = {"workspace": service.workspace(2, "duration: 5m, start: now+40s"), "zone": "UTC"}
    status, decision = service.ask("POST", "/v1/reservations", body)
    assert (status, decision["result"]) == (201, "accepted"), decision
    service.must("it yields", lambda: "job yields" in service.log.read_text())
    service.kill()
    service.start()
    name = decision["name"]
    service.must("the reservation is active", lambda: service.reservation(name)["state"] == "active")
    status, answer = service.ask("DELETE", f"/v1/reservations/{name}")
    assert status == 200, answer
    service.wait_for_count(job, 5)

    # Its service is killed while it is saved by hand, and it continues on the other node.
    before = service.job(job)["nodes"]
    service.order("POST", job, "suspension")
    service.kill()
    service.start()
    service.wait_for("it is suspended", job, "suspended")
    service.order("POST", job, "migration", {})
    service.order("DELETE", job, "suspension")
    service.wait_for_count(job, 5)
    after = service.job(job)["nodes"]
    counted = service.counted(job)

    assert counted == [str(number) for number in range(1, len(counted) + 1)], service.log.read_text()
    assert {before, after} == {"n1", "n2"}


def test_job_in_a_machine_ends_with_what_it_has_written(service: MachineService) -> None:
    job = service.hand_over(last=5)
    service.must("it has ended", lambda: len(service.counted(job)) >= 5)
    service.must("nothing is left", lambda: service.machines() == [])

    assert service.counted(job) == ["1", "2", "3", "4", "5"]
    assert (service.work / "counted").read_text() == "5\n"


def is_on(job: dict[str, Any], node: str) -> bool:
    return bool(job["state"] == "running" and job["nodes"] == node)


def test_users_get_into_their_own_machines(service: MachineService) -> None:
    lease = "#OUTRIDER boot: ssh\n#OUTRIDER lease: interactive"
    job = service.hand_over(SCRIPT.replace("#OUTRIDER boot: tiny", lease))
    service.must("its guest is up", lambda: " ".join(service.counted(job)) == f"ready: outrider ssh {job}")

    inside = "echo hello from within >/dev/console; hostname"
    entered = service.outrider("ssh", job, "1", "--", inside)
    told = service.outrider("console", job)
    missing = service.outrider("console", job, "2")
    before = service.job(job)["nodes"]
    service.order("POST", job, "migration", {})
    other = ({"n1", "n2"} - {before}).pop()
    service.must("it runs there", lambda: is_on(service.job(job), other))
    enter = ("ssh", job, "1", "--", "hostname")
    service.must("it is entered again", lambda: service.outrider(*enter).stdout == "vm1\n")

    assert (entered.returncode, entered.stdout) == (0, "vm1\n"), entered
    assert "hello from within" in told.stdout, told
    assert "it has 1" in missing.stderr
    # Nobody else gets to its sockets.
    assert [each.stat().st_mode & 0o777 for each in service.user_folders()] == [0o700]


def test_machines_of_jobs_that_are_gone_are_removed(folder: Path) -> None:
    machines = JobMachines(folder / "machines", folder)
    machines.prepare()
    own = folder / "machines" / f"outrider-{UID}"
    for each in (own, own / "job-7", own / "job-8"):
        each.mkdir(mode=0o700)
        os.chown(each, UID, -1)

    left = machines.discard_others({"8"})

    assert left == []
    assert [each.name for each in own.iterdir()] == ["job-8"]


def test_what_a_machine_cannot_have_here_is_refused(service: MachineService) -> None:
    no_memory = service.hand_over(memory="")
    role = service.hand_over(SCRIPT.replace("#OUTRIDER boot: tiny", "#OUTRIDER role: worker count=2"))
    strange = service.hand_over(SCRIPT.replace("run: vm", "run: jail"))

    no_kernel = service.hand_over(SCRIPT.replace("boot: tiny", "boot: huge"))

    assert "no kernel huge" in no_kernel
    assert "memory" in no_memory
    assert "role" in role
    assert 'run is "jail"' in strange
    assert service.ask("GET", "/v1/jobs")[1]["jobs"] == []
