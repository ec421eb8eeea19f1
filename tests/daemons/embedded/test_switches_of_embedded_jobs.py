"""Switches of all virtual nodes with real guests: swaps, kills, drains, room for a whole node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.embedded.machine_service import MachineService, needs_qemu, readable_folder

pytestmark = needs_qemu
WHOLE, HALF = "cpus: 2, duration: 30m", "cpus: 1, duration: 30m"


class SwitchedService(MachineService):
    """One that several tests share, with the jobs that they leave."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.sizes: dict[str, str] = {}
        self.asleep: dict[str, str] = {}


@pytest.fixture(scope="module")
def service() -> Iterator[SwitchedService]:
    with readable_folder() as folder:
        made = SwitchedService(folder, cpus=2, jobs=", consolidate: {enabled: true, every: 5s}")
        made.start()
        yield made
        made.end_jobs()


def counting(service: SwitchedService, size: str, node: str) -> str:
    """A job that counts on that node: one that another test has put to sleep, or a new one, whose guest takes
    three times as much of a processor to boot."""
    job = next((key for key, its in service.asleep.items() if its == size), None)
    if job is None:
        job = service.hand_over(size=size)
        assert job.isdecimal(), job
        service.sizes[job] = size
        service.must("it counts", lambda: len(counted(service, job)) > 3)
    else:
        del service.asleep[job]
        service.order("DELETE", job, "suspension")
        goes_on(service, job)
    if service.job(job)["nodes"] != node:
        service.order("POST", job, "migration", {"node": node})
        service.must(f"it is on {node}", lambda: service.job(job)["nodes"] == node)
        goes_on(service, job)
    return job


def counted(service: SwitchedService, job: str) -> list[str]:
    """How far it has counted: without a gap or a repeat."""
    found = service.counted(job)
    assert found == [str(number) for number in range(1, len(found) + 1)]
    return found


def goes_on(service: SwitchedService, job: str) -> None:
    before = len(counted(service, job))
    service.must(f"job {job} counts on", lambda: len(counted(service, job)) > before + 2)


def put_to_sleep(service: SwitchedService, *jobs: str) -> None:
    """So that their nodes are free."""
    for job in jobs:
        service.order("POST", job, "suspension")
    for job in jobs:
        service.wait_for("it is suspended", job, "suspended")
        service.asleep[job] = service.sizes[job]


def guests_of(service: SwitchedService, job: str) -> int:
    """How many processes there are for a job's machine."""
    found, own = 0, f"{service.folder}/s/embedded/machines/".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes()
            found += (
                b"qemu-system" in words.partition(b"\0")[0]
                and own in words
                and f"/job-{job}/".encode() in words
            )
    return found


def switch_of(service: SwitchedService) -> dict[str, Any]:
    found: dict[str, Any] = service.ask("GET", "/v1/switch")[1]
    return found


def switched(
    service: SwitchedService,
    jobs: tuple[str, ...],
    meanwhile: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """The switch that goes on, when it is over; no job has two guests at any look."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        for job in jobs:
            assert guests_of(service, job) <= 1
        found.clear()
        found.update(switch_of(service))
        meanwhile(found)
        return found["state"] in ("done", "failed")

    service.must("the switch is over", is_over)
    return found


def swap(service: SwitchedService, one: str, other: str, *, killed_in: tuple[int, ...]) -> dict[str, Any]:
    """They change nodes; the service is killed once in each of these stages."""
    left = set(killed_in)

    def kill(found: dict[str, Any]) -> None:
        stages = {each["stage"] for each in found["steps"] if each["state"] == "runs"}
        if stages & left:
            left.difference_update(stages)
            service.kill()
            service.start()

    nodes = [service.job(job)["nodes"] for job in (one, other)]
    told = service.outrider("switch", "run", f"--fence={one}={nodes[1]}", f"--fence={other}={nodes[0]}")
    assert told.returncode == 0, told.stderr
    found = switched(service, (one, other), kill)
    assert not left, found
    return found


@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_drained_node_is_left_by_its_machines_and_takes_no_other"
)
def test_service_moves_machines_together_for_one_that_needs_a_whole_node(service: SwitchedService) -> None:
    jobs = counting(service, HALF, "n1"), counting(service, HALF, "n2")
    large = service.hand_over(size=WHOLE)
    service.sizes[large] = WHOLE

    service.must("it counts", lambda: counted(service, large))
    found = switch_of(service)
    service.must("it has one guest", lambda: guests_of(service, large) == 1)
    for job in jobs:
        goes_on(service, job)
    nodes = [service.job(job)["nodes"] for job in (*jobs, large)]
    put_to_sleep(service, *jobs, large)

    assert found["by"] == "outrider"
    assert nodes[0] == nodes[1] != nodes[2]


def test_two_machines_change_places_although_the_service_is_killed(service: SwitchedService) -> None:
    one, other = counting(service, WHOLE, "n1"), counting(service, WHOLE, "n2")
    planned = service.outrider("switch", "plan", f"--fence={one}=n2", f"--fence={other}=n1")

    found = swap(service, one, other, killed_in=(2,))
    for job in (one, other):
        goes_on(service, job)
    nodes = [service.job(job)["nodes"] for job in (one, other)]
    shown = service.outrider("switch", "show")
    put_to_sleep(service, one, other)

    assert f"job {one} n1" in planned.stdout, planned
    assert found["state"] == "done", found
    assert nodes == ["n2", "n1"]
    assert "done" in shown.stdout, shown


def test_drained_node_is_left_by_its_machines_and_takes_no_other(service: SwitchedService) -> None:
    one, other = counting(service, HALF, "n1"), counting(service, HALF, "n2")

    told = service.outrider("nodes", "drain", "n1", "--live")
    found = switched(service, (one, other))
    late = service.hand_over(size=HALF)
    service.sizes[late] = HALF
    for job in (one, other):
        goes_on(service, job)
    service.kill()
    service.start()
    nodes = [service.job(job)["nodes"] for job in (one, other)]
    waiting = service.job(late)["state"]
    put_to_sleep(service, one, other)
    service.must("what came late runs beside nothing", lambda: service.job(late)["nodes"] == "n2")
    drained = service.outrider("nodes", "n1").stdout
    undone = service.outrider("nodes", "drain", "n1", "--undo")
    put_to_sleep(service, late)

    assert f"migrate job {one} n1 to n2" in told.stdout, told
    assert found["state"] == "done", found
    assert nodes == ["n2", "n2"]
    assert waiting != "running"
    assert "drained" in drained
    assert undone.stdout == "node n1 is up\n", undone


@pytest.mark.long
def test_two_machines_change_places_whoever_is_killed_in_each_stage(service: SwitchedService) -> None:
    one, other = counting(service, WHOLE, "n1"), counting(service, WHOLE, "n2")
    for killed_in in ((1,), (2,), (3,), (1, 2, 3)):
        before = [service.job(job)["nodes"] for job in (one, other)]
        found = swap(service, one, other, killed_in=killed_in)
        for job in (one, other):
            goes_on(service, job)

        assert found["state"] == "done", found
        assert [service.job(job)["nodes"] for job in (one, other)] == before[::-1]
    put_to_sleep(service, one, other)
