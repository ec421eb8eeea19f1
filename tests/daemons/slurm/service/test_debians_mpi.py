"""Debian's MPICH over the machines of a job of a real Slurm."""

from __future__ import annotations

import pytest

from testbed.site import OutriderSite
from tests.daemons.machines.mpi_guest import mpi_initrd
from tests.daemons.slurm.service.in_machines import BOOT_S, MB, kept_on, said, submit, with_kernels
from tests.daemons.slurm.service.jobs import ended

MEMORY = "--mem=320"
NODES = 4
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
def test_mpi_program_runs_over_four_machines(machines: OutriderSite) -> None:
    site, rounds = machines, 5
    image = site.image("mpi.qcow2", 4 * MB)
    work = f"mpiexec.hydra -launcher ssh -ppn 1 ring {rounds}\n"
    job = submit(site, image, work, "-c1", f"-N{NODES}", MEMORY, boot="mpi")
    done = ended(site, job, 2 * BOOT_S)

    assert done.state == "COMPLETED", said(site, job)
    # 1 + 2 + 3 + 4 more in each round.
    assert lines_of(site, job, "round") == [f"round {n} {10 * n}" for n in range(1, rounds + 1)]
    assert sorted(lines_of(site, job, "rank")) == RANKS
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * NODES
