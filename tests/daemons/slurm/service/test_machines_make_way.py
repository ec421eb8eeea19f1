"""Machines on a real Slurm make way for reservations, and go on afterwards."""

from __future__ import annotations

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, wait_reservation, workspace
from tests.daemons.slurm.service.failing import fill
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    COUNTING,
    LIMIT_MIN,
    MB,
    limit_min,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, output, restarts, script, seen, wait_for, wait_in_slurm


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


@pytest.mark.repeats(
    "tests/daemons/embedded/test_machines_of_embedded_jobs.py"
    "::test_job_counts_on_in_its_machine_for_whatever_it_is_saved"
)
def test_machine_is_suspended_for_a_reservation_and_goes_on_afterwards(machines: OutriderSite) -> None:
    site = machines
    image = site.image("counted.qcow2", 4 * MB)
    workspace(site, "needed", 8 * MB)
    firm = [fill(site, node) for node in ("n2", "n3", "n4")]
    job = submit(
        site, image, COUNTING.format(last=75), "-c1", "-wn1", more="#OUTRIDER preemptible: suspend\n"
    )
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "5")

    answer = reserve(site, "needed", "--nodes=1", "--start=now+110s", "-t15s")
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    within = ended(site, inside, BOOT_S)
    waiting = seen(site, job)
    wait_reservation(site, name, "ended")
    back = ended(site, job, BOOT_S)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert answer["result"] == "accepted", answer
    assert within.state == "COMPLETED", output(site, inside)
    assert within.nodes == "n1"
    assert waiting.state == "PENDING", waiting
    assert f"it has yielded to reservation {name}" in waiting.admin_comment
    assert back.state == "COMPLETED", said(site, job)
    assert back.nodes == "n1"
    assert said(site, job).split() == ["began", *(str(number) for number in range(1, 76))]
    assert site.cluster.read(HEAD, f"{site.home()}/project/counted") == "75\n"
    assert restarts(site, job) == "Restarts=1"
    # It had run for more than a minute: Slurm has been told what was left, in its minutes.
    assert LIMIT_MIN - 3 <= limit_min(site, job) < LIMIT_MIN
