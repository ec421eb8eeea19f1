"""The simulator's deciders on real hosts: the same hits, misses and bytes, and nothing left behind."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from bench.physical.jobs import JobsResult, RealJobs
from bench.physical.reservations import RealReservations, Staged, places
from bench.physical.site import PhysicalSite
from cachemgr.base.clock import SystemClock
from outrider.sim.experiments.deployment import BatchRequest, DeploymentRun, Testbed, run_deployments
from outrider.sim.experiments.satisfaction import NOMINAL_BYTES_PER_S
from outrider.sim.experiments.stager import StagedRequest, Strategy
from testbed.gridengine import missing
from tests.daemons.testbed.clusters import processes

FACTOR, HOSTS = 60, 2
IMAGE_BYTES = 600_000_000
# Headers of packets and of HTTP, and what is sent again.
WIRE_SHARE = 1.03
# Of the trace, in which a second is 17 ms: what a busy machine may be late by.
LATEST_S = 3600
TESTBED = replace(Testbed(), hosts=HOSTS, pool_bytes=2 * IMAGE_BYTES, copy_bytes_per_s=60_000_000)
RESERVED_S = 900


Runs = tuple[JobsResult, Staged, tuple[str, ...], str]


def job(image: str) -> BatchRequest:
    return BatchRequest(submit_s=0, image=image, size_bytes=IMAGE_BYTES, nodes=2 * HOSTS, duration_s=5)


# Each on all hosts, so that what is found in a pool does not depend on how fast anything is; with c
# the pools are too small, and b, which was used least, has to go.
JOBS = [job("a"), job("b"), job("a"), job("c"), job("a")]
RESERVATIONS = [
    StagedRequest(submit_s=0, start_s=210, nodes=2, size_bytes=IMAGE_BYTES, duration_s=1800),
    StagedRequest(submit_s=0, start_s=150, nodes=1, size_bytes=IMAGE_BYTES, duration_s=1800),
]


@pytest.fixture(scope="module")
def runs() -> Runs:
    """One site for both kinds, since it takes longer to make than to use."""
    lack = missing()
    if lack is not None and os.environ.get("CI"):
        pytest.fail(f"{lack}; in CI it must be there")
    if lack is not None:
        pytest.skip(lack)
    # Room for two images, and not for three.
    pool_bytes = IMAGE_BYTES * 5 // 2 // FACTOR
    with PhysicalSite(factor=FACTOR, clock=SystemClock(), pools=[pool_bytes] * HOSTS) as site:
        told = RealJobs(site, JOBS, TESTBED).run(LATEST_S)
        reservations = RealReservations(
            site, RESERVATIONS, Strategy.SCHEDULED, NOMINAL_BYTES_PER_S, reserved_s=RESERVED_S
        )
        staged = reservations.run(LATEST_S)
        leftovers, name = site.leftovers(), site.cluster.name
    return told, staged, leftovers, name


def hits(run: DeploymentRun) -> list[tuple[int, int, bool]]:
    return sorted((each.request, each.host, each.is_hit) for each in run.deployments)


def test_hosts_find_in_their_pools_what_the_simulator_finds(runs: Runs) -> None:
    simulated = run_deployments(JOBS, TESTBED)

    assert hits(runs[0].run) == hits(simulated)
    assert 0 < simulated.hits < len(simulated.deployments)


def test_server_sends_the_bytes_that_the_simulator_moves(runs: Runs) -> None:
    moved_bytes = run_deployments(JOBS, TESTBED).transfers * IMAGE_BYTES // FACTOR

    assert runs[0].fetched_bytes == moved_bytes
    assert moved_bytes <= runs[0].served_bytes < WIRE_SHARE * moved_bytes


def test_instances_never_come_faster_than_link_and_disk_allow(runs: Runs) -> None:
    for each in runs[0].run.deployments:
        rate = TESTBED.copy_bytes_per_s if each.is_hit else TESTBED.link_bytes_per_s

        # What the link's first burst gives, and the second of the trace in which a clock is read.
        assert each.ready_s - each.begin_s >= 0.9 * IMAGE_BYTES / rate - 1


def test_reserved_jobs_run_in_their_reservations_with_their_images(runs: Runs) -> None:
    staged = runs[1]

    assert staged.fetched_bytes == 3 * IMAGE_BYTES // FACTOR
    for number, request in enumerate(RESERVATIONS):
        started_s = staged.job_start_s[number]
        assert started_s is not None
        assert started_s >= request.start_s - 1
        assert staged.job_ready_s[number] is not None
    # The earlier deadline first, though it was handed in second.
    assert staged.ready_s[1] < staged.ready_s[0]


def test_runs_leave_nothing_behind(runs: Runs) -> None:
    assert (runs[2], processes(runs[3])) == ((), [])


def test_reservations_that_do_not_fit_on_whole_hosts_are_refused() -> None:
    wide = StagedRequest(submit_s=0, start_s=100, nodes=4, size_bytes=1, duration_s=1800)

    assert places([wide], hosts=2) == [(0, 1)]
    with pytest.raises(ValueError, match="does not fit on 2 hosts"):
        places([wide, replace(wide, start_s=150)], hosts=2)
