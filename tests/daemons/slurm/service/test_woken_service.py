"""The submit filter wakes the service: jobs start although it looks at Slurm every ten minutes only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from testbed.site import OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons.slurm.service.jobs import PATIENCE_S, seen
from tests.needs import need_slurm

NODES = 3
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
TIMINGS = {"look": "10m", "sight": "1h", "progress": "1s", "call": "30s", "away": "1m", "reconcile": "10m"}
JOB = "#!/bin/sh\n{lines}sleep 2\n"


@pytest.fixture(scope="module")
def site() -> Iterator[OutriderSite]:
    need_slurm()
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S, version=version) as cluster:
        made = OutriderSite(
            cluster, is_preloaded=True, link_bytes_per_s=LINK_BYTES_PER_S, settings={"timings": TIMINGS}
        )
        made.install()
        yield made


def test_jobs_start_without_waiting_for_the_regular_look(site: OutriderSite) -> None:
    image = site.image("woken.qcow2", 4_000_000)
    for node in site.cluster.nodes:
        job = site.submit(JOB.format(lines=image.lines), "-t1", f"-w{node}")
        site.cluster.wait_job(job, timeout_s=PATIENCE_S)
    burst = [site.submit(JOB.format(lines=image.lines), "-t1", "-n1") for _ in range(12)]
    for job in burst:
        site.cluster.wait_job(job, timeout_s=PATIENCE_S)

    # Four run on each node at once: what is led to one node alone takes them all there.
    assert {seen(site, job).nodes for job in burst} == set(site.cluster.nodes)


def test_filter_that_finds_no_file_lets_jobs_through(site: OutriderSite) -> None:
    image = site.image("unheard.qcow2", 4_000_000)
    site.cluster.run(HEAD, ["mv", "/run/outrider/wake", "/run/outrider/other"])
    job = site.submit(JOB.format(lines=image.lines), "-t1")
    state = site.cluster.job_state(job)
    site.outrider("reconcile", user="root")
    site.cluster.wait_job(job, timeout_s=PATIENCE_S)

    assert state == "PENDING"
