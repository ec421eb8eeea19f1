"""Clusters whose hosts have booted a systemd: the site's daemons are units, and jobs run below them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from testbed import gridengine, slurm
from testbed.bootedcluster import BootedCluster, BootedGridEngine, BootedSlurm


def slurm_job(cluster: BootedCluster) -> str:
    return cluster.run("head", ["srun", "-wn2", "sh", "-c", "hostname; cat /proc/self/cgroup"]).stdout


def grid_job(cluster: BootedCluster) -> str:
    assert isinstance(cluster, BootedGridEngine)
    script = "#!/bin/sh\nhostname\ncat /proc/self/cgroup\n"
    cluster.wait_job(cluster.qsub(script, "-cwd", "-j", "y", "-o", "out", "-q", "all.q@n2"))
    return cluster.read("head", f"{cluster.people.of('ada').home}/out")


@pytest.mark.parametrize(
    ("kind", "job", "unit", "lacking"),
    [
        (BootedSlurm, slurm_job, "slurmd", slurm.missing),
        (BootedGridEngine, grid_job, "site-sge_execd", gridengine.missing),
    ],
)
def test_jobs_run_below_the_units_of_booted_hosts(
    kind: type[BootedSlurm | BootedGridEngine],
    job: Callable[[BootedCluster], str],
    unit: str,
    lacking: Callable[[], str | None],
) -> None:
    if (said := lacking()) is not None:
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    with kind(nodes=2) as cluster:
        printed = job(cluster)
        first = cluster.read("n1", "/proc/1/comm")
        active = cluster.run("n2", ["systemctl", "is-active", unit]).stdout

    assert printed.splitlines()[0] == "n2"
    assert f"/system.slice/{unit}.service" in printed
    assert (first, active) == ("systemd\n", "active\n")
