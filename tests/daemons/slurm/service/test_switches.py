"""Switches of a whole site on a real Slurm with real guests: drains, swaps, and kills in each stage."""

from __future__ import annotations

import os
from random import Random

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.in_machines import kept_on, wait_until_said, with_kernels
from tests.daemons.slurm.service.jobs import seen, wait_for
from tests.daemons.slurm.service.switched import (
    Strike,
    cancel,
    counting,
    counts_on,
    full_pair,
    running_on,
    struck,
    switched,
    wait_until_counted,
)

KILLS = int(os.environ.get("OUTRIDER_TEST_KILLS", "100"))
SEED = int(os.environ.get("OUTRIDER_TEST_SEED", "1"))


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


@pytest.mark.long
def test_drained_node_is_left_by_its_machines(machines: OutriderSite) -> None:
    site = machines
    jobs = [counting(site, f"drained{number}", "-c1") for number in range(2)]
    for job in jobs:
        wait_for(site, job, "RUNNING")
        wait_until_said(site, job, "3")
    node = seen(site, jobs[0]).nodes
    left = [job for job in jobs if seen(site, job).nodes == node]

    counted = {job: counts_on(site, job) for job in jobs}
    refused = site.outrider("nodes", "drain", node, "--live", user="root", check=False)
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test"])
    try:
        told = site.outrider("nodes", "drain", node, "--live", user="root", check=False)
        found = switched(site, jobs)
        for job in jobs:
            wait_until_counted(site, job, counted[job])
        kept, running = kept_on(site, node), [running_on(site, job) for job in jobs]
    finally:
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    cancel(site, jobs)

    assert "drain it in the batch system first" in refused.stderr
    assert left
    assert all(f"migrate job {job} {node} to " in told.stdout for job in left), told.stdout
    assert "a pause of at most about" in told.stdout
    assert found["state"] == "done", found
    assert kept == []
    assert all(len(each) == 1 and each != [node] for each in running), running


@pytest.mark.long
def test_switch_is_carried_to_its_end_whoever_is_killed(machines: OutriderSite) -> None:
    """Two machines change places again and again; each time somebody is killed in one of the stages."""
    site, random, killed = machines, Random(SEED), 0
    pair = full_pair(site, "killed", "-t1440")
    try:
        for number in range(KILLS):
            before, counted = pair.nodes(site), [counts_on(site, job) for job in pair.jobs]
            victim = ("service", "source", "target")[number // 3 % 3]
            found, once = struck(site, pair, Strike(victim, number % 3 + 1, random.random() * 4))
            killed += once
            for job, count in zip(pair.jobs, counted, strict=True):
                wait_until_counted(site, job, count)

            assert found["state"] == "done", found
            assert pair.nodes(site) == before[::-1]
    finally:
        cancel(site, (*pair.jobs, *pair.firm))
    assert killed > KILLS * 9 // 10
