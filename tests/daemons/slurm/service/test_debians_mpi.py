"""Debian's MPICH over the machines of a job of a real Slurm, which are suspended and go on elsewhere."""

from __future__ import annotations

import pytest

from outrider.metadata.notation.hostlists import expand
from testbed.site import OutriderSite
from tests.daemons.machines.mpi_guest import mpi_initrd
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    MB,
    kept_on,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, restarts, seen, wait_for

NODES_OF_SITE = 8
"""So that all four machines can go on where none of them was."""
SETTINGS = {
    "link": {"rate": "176MB", "best_effort_rate": "88MB", "reserve": "at-once", "spread": "3s"},
}
MEMORY = "--mem=320"
NODES = 4
ROUNDS = 120
BEFORE = 10
"""So many rounds are over when the machines are told to move."""
RANKS = sorted(f"rank {rank} of {NODES} on vm{rank + 1}: {1 + 4 + 9 + 16}" for rank in range(NODES))


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel whose guests have MPICH."""
    with_kernels(site)
    initrd = mpi_initrd().read_bytes()
    for node in site.cluster.nodes:
        for name in ("kernel", "append"):
            source, target = f"/etc/outrider/boot/debian/{name}", f"/etc/outrider/boot/mpi/{name}"
            site.cluster.run(node, ["install", "-D", "-m", "644", source, target])
        site.cluster.write(node, "/etc/outrider/boot/mpi/initrd", initrd)
    return site


def lines_of(site: OutriderSite, job: str, word: str) -> list[str]:
    return [line for line in said(site, job).splitlines() if line.startswith(word)]


@pytest.mark.long
def test_mpi_program_goes_on_when_its_four_machines_were_suspended_and_have_moved(
    machines: OutriderSite,
) -> None:
    site = machines
    image = site.image("mpi.qcow2", 4 * MB)
    work = f"mpiexec.hydra -launcher ssh -ppn 1 ring {ROUNDS}\n"
    job = submit(site, image, work, "-c1", f"-N{NODES}", MEMORY, boot="mpi")
    wait_for(site, job, "RUNNING")
    sources = expand(seen(site, job).nodes)
    wait_until_said(site, job, str(10 * BEFORE))
    site.outrider("migrate", job)
    wait_for(site, job, "PENDING", timeout_s=BOOT_S)
    rounds_before = len(lines_of(site, job, "round"))
    done = ended(site, job, 2 * BOOT_S)

    assert done.state == "COMPLETED", f"{said(site, job)}\n{site.logs()}"
    assert not set(expand(done.nodes)) & set(sources)
    assert BEFORE <= rounds_before < ROUNDS
    # 1 + 2 + 3 + 4 more in each round: none is missing, none comes twice.
    assert lines_of(site, job, "round") == [f"round {n} {10 * n}" for n in range(1, ROUNDS + 1)]
    assert sorted(lines_of(site, job, "rank")) == RANKS
    assert restarts(site, job) == "Restarts=1"
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * NODES_OF_SITE
