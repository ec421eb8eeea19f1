"""The submit filter wakes the service: jobs start although it looks at Grid Engine every ten minutes only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.jobs import output, submit
from tests.needs import lacking

NODES = 3
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
TIMINGS = {"look": "10m", "sight": "1h", "progress": "1s", "call": "30s", "away": "1m", "reconcile": "10m"}
PATIENCE_S = 120


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        lacking(lack)
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster, is_preloaded=True, link_bytes_per_s=LINK_BYTES_PER_S, settings={"timings": TIMINGS}
        )
        made.install()
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    """What is left here goes with the next look, for which nobody waits."""


@pytest.mark.long
def test_jobs_start_without_waiting_for_the_regular_look(site: GridEngineSite) -> None:
    image = site.image("woken.qcow2", 4_000_000)
    for node in site.cluster.nodes:
        job = submit(site, image, "-l", f"h={node}")
        site.cluster.wait_job(job, timeout_s=PATIENCE_S)
    burst = [submit(site, image, more="sleep 2") for _ in range(12)]
    for job in burst:
        site.cluster.wait_job(job, timeout_s=PATIENCE_S)

    # Four run on each node at once: what is led to one node alone takes them all there.
    assert {output(site, job).split()[2] for job in burst} == set(site.cluster.nodes)
