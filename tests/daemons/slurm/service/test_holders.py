"""Running machines of a real Slurm go to other nodes in holder jobs, and are saved nowhere on the way."""

from __future__ import annotations

import json

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.conftest import JOBS
from tests.daemons.slurm.service.in_machines import kept_on, said, wait_until_said, with_kernels
from tests.daemons.slurm.service.jobs import ended, seen, wait_for
from tests.daemons.slurm.service.switched import (
    counting,
    counts_on,
    kill,
    running_on,
    switched,
    wait_until_counted,
)

NODES_OF_SITE = 3
SETTINGS = {"jobs": {**JOBS, "live": True}}


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


def holders(site: OutriderSite) -> dict[str, str]:
    """The holder jobs that run, by their names, and on which node."""
    lines = site.cluster.run(HEAD, ["squeue", "-h", "-tR", "-o%j %N"]).stdout.splitlines()
    return {name: node for name, _, node in (line.partition(" ") for line in lines) if "outrider-" in name}


def record(site: OutriderSite, node: str, job: str) -> dict[str, object]:
    uid = site.cluster.people.of("ada").uid
    path = f"/var/tmp/outrider-{uid}/job-{job}/machine.json"
    found: dict[str, object] = json.loads(site.cluster.run(node, ["cat", path]).stdout)
    return found


def drained(site: OutriderSite, job: str, node: str) -> str:
    """Have a node emptied; where the job's machine is then."""
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test"])
    try:
        argv = ("nodes", "drain", node, "--live")
        site.cluster.wait_for(
            "the service to see a drained node",
            lambda: site.outrider(*argv, user="root", check=False).returncode == 0,
            logs=site.logs,
        )
        found = switched(site, [job], most=2)
        assert found["state"] == "done", found
        there = running_on(site, job)
        assert len(there) == 1, f"{there}\n{said(site, job)}\n{site.logs()}"
        assert there != [node]
        return there[0]
    finally:
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"])


@pytest.mark.long
def test_drained_node_is_left_alive_and_the_job_ends_as_its_machine_does(machines: OutriderSite) -> None:
    site = machines
    job = counting(site, "alive", "-c1", last=150)
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")
    first = seen(site, job).nodes
    second = drained(site, job, first)
    wait_until_counted(site, job, counts_on(site, job))

    assert holders(site) == {f"outrider-has-{job}": second}
    assert seen(site, job).state == "PENDING"
    told = site.told("show", job)
    assert "running" in told, told
    assert second in told, told
    # It was not saved on its way: that would have begun another layer of its disks.
    assert record(site, second, job)["generation"] == 1
    assert kept_on(site, first) == []

    third = drained(site, job, second)
    assert holders(site) == {f"outrider-has-{job}": third}
    assert record(site, third, job)["generation"] == 1
    kill(site, "")
    ended(site, job, 400)
    assert counts_on(site, job) == 150
    assert seen(site, job).state == "COMPLETED"
