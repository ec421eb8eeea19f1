"""Roles of a job on a real Slurm: a node for each machine, and how far each is in what the service shows."""

from __future__ import annotations

import json
from typing import Any

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.in_machines import BOOT_S, MB, kept_on, said, submit, with_kernels
from tests.daemons.slurm.service.jobs import ended

ROLES = "#OUTRIDER role: head memory=128MiB\n#OUTRIDER role: worker hosts=w1\n"
WORK = 'cat "$OUTRIDER_HOSTS"\ntrap "exit 0" USR2\nsleep 600 &\nwait\n'


def shown(site: OutriderSite, job: str) -> list[dict[str, Any]]:
    # Nothing is printed before the service has heard of the job.
    text = site.told("show", job, "--json")
    return list(json.loads(text)["machines"]) if text else []


def test_job_has_a_node_for_each_machine_and_shows_how_far_they_are(site: OutriderSite) -> None:
    with_kernels(site)

    job = submit(site, site.image("roles.qcow2", 4 * MB), WORK, "-c1", more=ROLES)
    site.cluster.wait_for(
        "machines that run",
        lambda: [each["state"] for each in shown(site, job)] == ["runs", "runs"],
        BOOT_S,
        lambda: f"{shown(site, job)} {said(site, job)} {site.logs()}",
    )
    machines, listed = shown(site, job), site.outrider("show", job).stdout
    memory = site.cluster.run(HEAD, ["squeue", "-h", f"--jobs={job}", "-o%m %D"]).stdout.split()
    site.cluster.run(HEAD, ["scancel", "--batch", "--signal=USR2", job], user="ada")
    done = ended(site, job, BOOT_S)

    assert done.state == "COMPLETED", said(site, job)
    assert said(site, job).split() == ["head", "w1"]
    assert [each["name"] for each in machines] == ["head", "w1"]
    assert len({each["node"] for each in machines}) == 2
    assert [each["address"] for each in machines] == ["10.211.0.1", "10.211.0.2"]
    assert "10.211.0.2" in listed
    # The larger machine's, and QEMU's own beside it.
    assert memory == ["384M", "2"]
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * len(site.cluster.nodes)
