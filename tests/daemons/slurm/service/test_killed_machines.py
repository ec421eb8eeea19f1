"""Whoever is killed, at whatever step: machines of a real Slurm go on where they were, in one place."""

from __future__ import annotations

import os
from random import Random

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.in_machines import kept_on, with_kernels
from tests.daemons.slurm.service.killings import KEEPER, MIGRATE, NODE, REQUEUE, SERVICE, SUSPEND, Killings
from tests.daemons.slurm.service.switched import cancel

KILLS = int(os.environ.get("OUTRIDER_TEST_KILLS", "200"))
SEED = int(os.environ.get("OUTRIDER_TEST_SEED", "1"))
MACHINES = 3


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


@pytest.mark.long
def test_machines_count_on_in_one_place_whoever_is_killed(machines: OutriderSite) -> None:
    site, killings = machines, Killings(machines, Random(SEED))
    killings.begin(MACHINES)
    try:
        while killings.killed.total() < KILLS:
            killings.round()
            print(dict(killings.killed), dict(killings.done), flush=True)  # noqa: T201 - takes an hour
    finally:
        cancel(site, [job.key for job in killings.jobs])
    site.cluster.wait_for(
        "no machine",
        lambda: all(kept_on(site, node) == [] for node in site.cluster.nodes),
        logs=lambda: f"{[kept_on(site, node) for node in site.cluster.nodes]}\n{site.logs()}",
    )
    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout.split()

    assert {KEEPER, NODE, SERVICE} <= set(killings.killed)
    assert {SUSPEND, MIGRATE, REQUEUE} <= set(killings.done)
    assert marks == []
