"""Clusters whose hosts have booted a systemd: the site's daemons are units, and jobs run below them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import gridengine, slurm
from testbed.booted import BootedMachine
from testbed.bootedcluster import BootedCluster, BootedGridEngine, BootedSlurm
from testbed.records import TestbedError


def slurm_job(cluster: BootedCluster) -> str:
    return cluster.run("head", ["srun", "-wn2", "sh", "-c", "hostname; cat /proc/self/cgroup"]).stdout


def grid_job(cluster: BootedCluster) -> str:
    assert isinstance(cluster, BootedGridEngine)
    script = "#!/bin/sh\nhostname\ncat /proc/self/cgroup\n"
    cluster.wait_job(cluster.qsub(script, "-cwd", "-j", "y", "-o", "out", "-q", "all.q@n2"))
    return cluster.read("head", f"{cluster.people.of('ada').home}/out")


@pytest.mark.parametrize("path", ["/", "/etc", "/var", "/srv/../tmp", "/usr/"])
def test_machine_shares_nothing_that_it_has_itself(path: str) -> None:
    """A systemd that finds another machine's files in the place of its own tidies these up."""
    with pytest.raises(TestbedError, match="which has its own"):
        BootedMachine(shared=[Path(path)])
    with pytest.raises(TestbedError, match="which has its own"):
        BootedMachine(elsewhere={Path("/srv"): path})


@pytest.mark.parametrize(
    ("kind", "job", "unit", "lacking"),
    [
        (BootedSlurm, slurm_job, "slurmd", slurm.missing),
        pytest.param(
            BootedGridEngine, grid_job, "site-sge_execd", gridengine.missing, marks=pytest.mark.long
        ),
    ],
)
@pytest.mark.repeats("tests/daemons/systemd/test_units.py::test_job_that_is_submitted_runs_as_its_user")
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
