"""Running machines of real guests that go to other virtual nodes without being saved, whoever is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.embedded.machine_service import MachineService, needs_qemu, readable_folder

pytestmark = needs_qemu


@pytest.fixture
def service() -> Iterator[MachineService]:
    with readable_folder() as folder:
        made = MachineService(folder, jobs=", live: true")
        made.start()
        yield made
        made.end_jobs()


def qemu_of(service: MachineService, job: str) -> list[int]:
    """The processes for a job's machine."""
    found, own = [], f"{service.folder}/s/embedded/machines/".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes()
            is_qemu = b"qemu-system" in words.partition(b"\0")[0]
            if is_qemu and own in words and f"/job-{job}/".encode() in words:
                found.append(int(path.name))
    return found


def journaled(service: MachineService, job: str) -> dict[str, Any]:
    jobs = json.loads((service.folder / "s/embedded/jobs.json").read_text())["jobs"]
    return next(dict(each) for each in jobs if each["number"] == int(job))


def move(service: MachineService, job: str, node: str, *, is_killed: bool = False) -> set[str]:
    """The states that were seen of it until it was there."""
    service.order("POST", job, "migration", {"node": node})
    seen: set[str] = set()
    if is_killed:
        service.must("it is on its way", lambda: journaled(service, job)["lands_on"] == [node])
        service.kill()
        service.start()
        service.must("the service sees it", lambda: service.job(job)["state"] == "running")

    def is_there() -> bool:
        found = service.job(job)
        seen.add(found["state"])
        return bool(found["nodes"] == node)

    service.must(f"it is on {node}", is_there)
    return seen


@pytest.mark.repeats(
    "tests/daemons/gridengine/service/test_live_moves.py"
    "::test_machine_moves_alive_and_its_job_ends_as_it_does"
)
def test_running_machine_moves_without_being_saved(service: MachineService) -> None:
    job, beside = service.hand_over(), service.hand_over()
    service.must("both count", lambda: min(len(service.counted(each)) for each in (job, beside)) > 3)
    nodes = [service.job(each)["nodes"] for each in (job, beside)]
    service.order("POST", beside, "suspension")
    service.wait_for("the other node is free", beside, "suspended")

    at_first = journaled(service, job)
    before = qemu_of(service, job)
    seen = move(service, job, nodes[1])
    service.wait_for_count(job, 4)
    after, on_way = qemu_of(service, job), journaled(service, job)
    back = move(service, job, nodes[0], is_killed=True)
    service.wait_for_count(job, 4)
    at_home = journaled(service, job)
    service.order("POST", job, "suspension")
    service.wait_for("it is saved from where it is", job, "suspended")
    service.order("DELETE", job, "suspension")
    service.wait_for_count(job, 4)
    counted = service.counted(job)

    assert sorted(nodes) == ["n1", "n2"]
    assert seen == back == {"running"}
    assert len(before) == len(after) == 1
    assert before != after
    for each in (on_way, at_home):
        assert (each["starts"], each["done_s"], each["lands_on"]) == (at_first["starts"], 0, []), (
            service.story()
        )
    assert counted == [str(number) for number in range(1, len(counted) + 1)]
