"""The node's pool, with real files, against the simulator's on the thesis' traces III and IV.

Both evict by the same table. Here each deployment that the simulator made is asked of a pool
of its host in the same order and at the same instants, everything a million times smaller.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool, Want
from outrider.sim.experiments.deployment import InstanceDeployment, Testbed, run_deployments
from outrider.sim.experiments.figures import batch_requests
from outrider.sim.workload.formats.thesis import published_trace

SMALLER = 1_000_000


class HandedClock:
    """The time of the deployment that is being replayed."""

    def __init__(self) -> None:
        self.at_s = 0

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


class Host:
    """One host's pool on a real file system."""

    def __init__(self, root: Path, testbed: Testbed) -> None:
        disk = RealDisk()
        self.clock = HandedClock()
        limit_bytes = testbed.pool_bytes // SMALLER
        ImagePool.create(disk, str(root), PoolSettings(limit_bytes=limit_bytes, policy=testbed.eviction))
        self.pool = ImagePool(disk, str(root), self.clock, SqliteIndex(f"{root}/index.sqlite"))

    def deploy(self, image: str, deployment: InstanceDeployment) -> bool:
        """Whether the image was in the pool when the deployment began."""
        content = image.encode().ljust(deployment.size_bytes // SMALLER, b".")
        digest = hashlib.sha256(content).hexdigest()
        self.clock.at_s = deployment.begin_s
        found = self.pool.want(Want(uri=image, size_bytes=len(content), digest=digest))
        if isinstance(found, Ingest):
            self.clock.at_s = deployment.ready_s
            writer = found.writer(InlineHasher())
            assert writer is not None
            writer.write(content)
            writer.commit()
        self.pool.use(digest)
        return not isinstance(found, Ingest)


@pytest.mark.parametrize("trace", ["III", "IV"])
@pytest.mark.parametrize("eviction", ["lfu", "lru"])
def test_node_pool_hits_exactly_when_the_simulated_pool_does(
    trace: str, eviction: str, tmp_path: Path
) -> None:
    requests = batch_requests(published_trace(trace))
    testbed = Testbed(eviction=eviction)
    run = run_deployments(requests, testbed)
    hosts = [Host(tmp_path / str(number), testbed) for number in range(testbed.hosts)]

    hits = [
        hosts[each.host].deploy(requests[each.request].image, each)
        for each in sorted(run.deployments, key=lambda each: (each.begin_s, each.ready_s, each.host))
    ]
    for host in hosts:
        host.pool.close()

    expected = sorted(run.deployments, key=lambda each: (each.begin_s, each.ready_s, each.host))
    assert 0 < run.hits < len(hits)
    assert hits == [each.is_hit for each in expected]
