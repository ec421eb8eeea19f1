"""Whoever is killed while a machine of Grid Engine goes to another node alive: it counts on, in one place."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import NODE_DAEMON
from testbed.gridenginesite import GridEngineSite
from testbed.waiting import awaited
from tests.daemons.gridengine.service.jobs import cancel, report
from tests.daemons.gridengine.service.test_jobs_in_machines import BOOT_S, machines, said, wait_until_said
from tests.daemons.gridengine.service.test_live_moves import holders, live, nothing_is_kept
from tests.daemons.gridengine.service.test_switches import counting, kill_service
from tests.daemons.slurm.service.switched import running_on
from tests.daemons.slurm.service.test_killed_live_moves import below, holding, processes, qemus

__all__ = ["live", "machines"]
STEPS = ("asked", "waits", "ready", "both", "has")
"""How far a move is when somebody is killed: its holder waits, is ready, both QEMUs are there, it has it."""
STEP_S, NOTICED_S = 60.0, 12.0
BEYOND = 3
KEEPER_OF = b"/usr/lib/outrider/machine\0"


def place(site: GridEngineSite, job: str) -> str:
    (found,) = set(qemus(site, job).values())
    return found


def is_at(site: GridEngineSite, job: str, step: str) -> bool:
    if step == "asked":
        return True
    return len(qemus(site, job)) == 2 if step == "both" else step in holders(site, job)


def keeping(site: GridEngineSite, job: str, node: str) -> list[int]:
    """What keeps the machine there: of a job itself, or of its holder."""
    script = f"/job_scripts/{job}\0".encode()
    own = [
        pid
        for pid, at in processes(site, lambda text: KEEPER_OF in text and script in text).items()
        if at == node
    ]
    return below(sorted(own)) or below(holding(site, job, node))


def strike(site: GridEngineSite, victim: str, job: str, source: str, target: str) -> None:
    if victim == "service":
        kill_service(site)
        return
    if victim in ("source's daemon", "target's daemon"):
        node = source if victim.startswith("source") else target
        site.cluster.kill(node, NODE_DAEMON)
        site.start_node(node)
        return
    if victim == "source's keeper":
        pids = keeping(site, job, source)
    elif victim == "holder":
        pids = holding(site, job, target)
    else:
        node = source if victim.startswith("source") else target
        pids = [pid for pid, at in qemus(site, job).items() if at == node]
    for pid in pids[-1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_lost(site: GridEngineSite, victim: str, job: str, source: str) -> bool:
    """Whether the guest's memory may have gone with what was killed: with the QEMU of the machine's place,
    and with a holder to which it has come."""
    uid = site.cluster.people.of("ada").uid
    path = f"/var/tmp/outrider-{uid}/job-{job}/machine.json"
    text = site.cluster.run(source, ["cat", path], check=False).stdout
    has_gone = not text or json.loads(text)["state"] == "moved"
    return victim == "source's QEMU" or (victim in ("target's QEMU", "holder") and has_gone)


def count(site: GridEngineSite, job: str) -> int:
    """How far it has counted, without a gap or a repeat."""
    lines = [line for line in said(site, job).rpartition("\n")[0].splitlines() if "outrider: " not in line]
    assert lines == (lines and ["began", *map(str, range(1, len(lines)))]), said(site, job)
    return max(0, len(lines) - 1)


def wait_settled(site: GridEngineSite, job: str) -> None:
    """Until no step of its move is left, and it counts on in one place."""
    before = count(site, job)

    def is_so() -> bool:
        return (
            not {"waits", "ready"} & holders(site, job).keys()
            and len(running_on(site, job)) == 1
            and count(site, job) > before + BEYOND
        )

    site.cluster.wait_for(
        f"job {job} to count on in one place",
        is_so,
        BOOT_S,
        lambda: f"{holders(site, job)} {running_on(site, job)}\n{report(site, job)}\n{said(site, job)}",
    )


def begin(site: GridEngineSite, name: str) -> str:
    job = counting(site, name)
    wait_until_said(site, job, "3")
    return job


def begin_move(site: GridEngineSite, job: str, target: str) -> None:
    """Once an earlier one is over for the service, too."""
    site.cluster.wait_for(
        "a move to begin",
        lambda: site.outrider("migrate", job, target, check=False).returncode == 0,
        logs=site.logs,
    )


def wait_step(site: GridEngineSite, job: str, step: str) -> None:
    awaited(lambda: is_at(site, job, step), STEP_S)


def end(site: GridEngineSite, job: str) -> None:
    # A job whose machine was lost may have failed by now.
    site.cluster.run(HEAD, ["qdel", job], user="ada", check=False)
    site.cluster.wait_for("no holder", lambda: holders(site, job) == {}, BOOT_S, site.logs)
    nothing_is_kept(site)
    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout.split()
    assert marks == []


@pytest.mark.long
@pytest.mark.parametrize(
    "victim",
    [
        "service", "source's daemon", "target's daemon", "source's keeper", "holder", "source's QEMU",
        "target's QEMU",
    ],
)  # fmt: skip
def test_machine_counts_on_whoever_is_killed_at_whatever_step(live: GridEngineSite, victim: str) -> None:
    site, name, ways = live, victim.replace("'", "").replace(" ", ""), dict[str, str]()
    job = begin(site, name)
    for number, step in enumerate(STEPS):
        source = place(site, job)
        target = next(node for node in site.cluster.nodes if node != source)
        begin_move(site, job, target)
        wait_step(site, job, step)
        strike(site, victim, job, source, target)
        if is_lost(site, victim, job, source):
            # Its job begins anew, or fails, as one does whose QEMU is killed in its place.
            ways[step] = "lost"
            site.cluster.clock.sleep(NOTICED_S)
            assert len(running_on(site, job)) <= 1
            end(site, job)
            job = begin(site, f"{name}{number}")
            continue
        if victim == "holder":
            site.cluster.clock.sleep(NOTICED_S)
        wait_settled(site, job)
        ways[step] = "stayed" if place(site, job) == source else "moved"
    print(victim, ways)  # noqa: T201 - what became of it
    end(site, job)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("has_service", [True, False])
def test_job_that_is_deleted_while_its_machine_moves_leaves_nothing(
    live: GridEngineSite, step: str, has_service: bool
) -> None:
    site = live
    job = begin(site, f"deleted{step}{has_service}")
    site.outrider("migrate", job)
    wait_step(site, job, step)
    if not has_service:
        site.cluster.kill(HEAD, "outriderd")
    cancel(site, job)
    try:
        # What waits for its room has nothing yet, and is found by the next service.
        if not has_service and step not in ("asked", "waits"):
            site.cluster.wait_for("no guest", lambda: running_on(site, job) == [], BOOT_S, site.logs)
    finally:
        if not has_service:
            site.start_service()
    site.cluster.wait_for("no holder", lambda: holders(site, job) == {}, BOOT_S, site.logs)
    nothing_is_kept(site)
    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout.split()

    assert marks == []


@pytest.mark.long
@pytest.mark.parametrize("step", ["ready", "both", "has"])
def test_machine_goes_on_in_one_place_when_the_link_is_cut(live: GridEngineSite, step: str) -> None:
    """For longer than the ends of a machine's way wait for each other."""
    site = live
    job = begin(site, f"cut{step}")
    source = place(site, job)
    target = next(node for node in site.cluster.nodes if node != source)
    site.outrider("migrate", job, target)
    wait_step(site, job, step)
    site.cluster.cut(target)
    try:
        site.cluster.clock.sleep(45)
    finally:
        site.cluster.mend(target)
    wait_settled(site, job)
    end(site, job)
