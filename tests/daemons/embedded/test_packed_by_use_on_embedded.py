"""Machines of virtual nodes packed by what their guests use of processors, where the policies allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemons.embedded.machine_service import SCRIPT, MachineService, needs_qemu, readable_folder

pytestmark = needs_qemu
POLICIES = """version: 1
overbook: {margin: 10%, age: 2m, most: 3}
rules:
  - name: everybody
"""
LOOP = SCRIPT[SCRIPT.index("i=0") :]
IDLE = SCRIPT.replace(LOOP, "echo 1; sleep 86400\n")
BUSY = SCRIPT.replace(LOOP, "echo 1; while :; do :; done\n")


@pytest.fixture
def service() -> Iterator[MachineService]:
    with readable_folder() as folder:
        (folder / "policies.yaml").write_text(POLICIES)
        made = MachineService(
            folder,
            jobs=", consolidate: {enabled: true, every: 5s}",
            backend=", jobs_on_a_processor: 3",
            more=f"policies: {folder}/policies.yaml\n",
        )
        made.start()
        yield made
        made.end_jobs()


def planned(service: MachineService) -> dict[str, Any]:
    status, found = service.ask("POST", "/v1/switch", {"is_plan": True})
    assert status == 200, found
    return dict(found)


def used(service: MachineService) -> dict[str, int]:
    """By job, the hundredths of a processor that it uses, of those of which that is known."""
    uses = planned(service)["uses"]
    return {each["job"]: each["used"] for each in uses if each["used"] is not None and not each["words"]}


@pytest.mark.repeats(
    "tests/unit/service/desk/switch/test_packed_by_use.py"
    "::test_idle_machines_share_processors_and_a_busy_one_leaves"
)
def test_idle_guests_share_a_processor_and_a_busy_one_leaves_them(service: MachineService) -> None:
    """Each has asked for a whole processor, of which its node has one."""
    assert service.outrider("nodes", "drain", "n2").returncode == 0
    jobs = [service.hand_over(script) for script in (IDLE, IDLE, BUSY)]
    service.must("all run", lambda: [service.counted(job) for job in jobs] == [["1"]] * 3)

    def are_told_apart() -> bool:
        known = used(service)
        return len(known) == 3 and known[jobs[0]] + known[jobs[1]] < min(80, known[jobs[2]])

    service.must("the idle ones are idle", are_told_apart)
    before = [service.job(job)["nodes"] for job in jobs]
    explained = service.outrider("switch", "plan", "--explain", jobs[0]).stdout
    assert service.outrider("nodes", "drain", "n2", "--undo").returncode == 0
    service.must("the busy one leaves", lambda: service.job(jobs[2])["nodes"] == "n2")
    found = service.ask("GET", "/v1/switch")[1]

    assert before == ["n1", "n1", "n1"]
    assert "use: it has asked for 1 processors, used 0." in explained, explained
    assert found["by"] == "outrider"
    assert [(each["kind"], each["job"], each["target"]) for each in found["steps"]] == [
        ("migrate", jobs[2], "n2")
    ]
    assert [service.job(job)["nodes"] for job in jobs[:2]] == ["n1", "n1"]
