"""Machines of a real Slurm packed by what their guests use of processors, where the policies allow it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.conftest import JOBS
from tests.daemons.slurm.service.in_machines import BOOT_S, MB, submit, wait_until_said, with_kernels
from tests.daemons.slurm.service.jobs import wait_for
from tests.daemons.slurm.service.policed import policed
from tests.daemons.slurm.service.switched import cancel, running_on, steps_of, switch_of

LINES = (
    "NodeName=n[1-2] CPUs=1 RealMemory=4000 State=UNKNOWN",
    "PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:3",
)
POLICIES = """version: 1
overbook: {margin: 10%, age: 2m, most: 3}
rules:
  - name: everybody
"""
IDLE = "echo began; sleep 86400\n"
BUSY = "echo began; while :; do :; done\n"
WAIT_S = 600


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    consolidate = {"enabled": True, "every": "10s"}
    settings = {"jobs": {**JOBS, "live": True, "consolidate": consolidate}}
    with policed(request, POLICIES, nodes=2, lines=LINES, settings=settings) as made:
        yield with_kernels(made)


def planned(site: OutriderSite, *options: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(site.told("switch", "plan", "--json", *options))
    return found


def used(site: OutriderSite) -> dict[str, int]:
    """By job, the hundredths of a processor that it uses, of those of which that is known."""
    uses = planned(site)["uses"]
    assert isinstance(uses, list)
    return {each["job"]: each["used"] for each in uses if each["used"] is not None and not each["words"]}


def is_told_apart(site: OutriderSite, jobs: Sequence[str]) -> bool:
    """Whether both idle guests together are known to use less than the busy one, and no whole processor."""
    known = used(site)
    return len(known) == len(jobs) and known[jobs[0]] + known[jobs[1]] < min(80, known[jobs[2]])


@pytest.mark.long
def test_idle_guests_share_a_processor_and_a_busy_one_leaves_them(site: OutriderSite) -> None:
    """Each has asked for a whole processor, of which its node has one."""
    cluster = site.cluster
    cluster.run(HEAD, ["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test"])
    jobs = [
        submit(site, site.image(f"{name}.qcow2", 4 * MB), work, "-c1")
        for name, work in (("idle1", IDLE), ("idle2", IDLE), ("busy", BUSY))
    ]
    for job in jobs:
        wait_for(site, job, "RUNNING")
        wait_until_said(site, job, "began")
    # At first there is what they have used for booting.
    cluster.wait_for("the idle ones to be idle", lambda: is_told_apart(site, jobs), BOOT_S, site.logs)
    before = [running_on(site, job) for job in jobs]
    explained = site.told("switch", "plan", "--explain", jobs[0])
    cluster.run(HEAD, ["scontrol", "update", "NodeName=n2", "State=RESUME"])

    def is_relieved() -> bool:
        return [running_on(site, job) for job in jobs] == [["n1"], ["n1"], ["n2"]]

    cluster.wait_for("the busy guest to leave", is_relieved, WAIT_S, lambda: f"{used(site)}\n{site.logs()}")
    cluster.wait_for(
        "the switch to end",
        lambda: switch_of(site).get("state") == "done",
        WAIT_S,
        lambda: f"{switch_of(site)}",
    )
    found = switch_of(site)
    cluster.wait_for("all to be measured anew", lambda: is_told_apart(site, jobs), BOOT_S, site.logs)
    calm = planned(site)
    cancel(site, jobs)

    assert before == [["n1"], ["n1"], ["n1"]]
    assert "use: it has asked for 1 processors, used 0." in explained, explained
    assert found["by"] == "outrider"
    assert [(each["kind"], each["job"], each["target"]) for each in steps_of(found)] == [
        ("migrate", jobs[2], "n2")
    ]
    # Both that stay have asked for a whole processor, and there is nothing to be done about it.
    assert calm["steps"] == [], calm
