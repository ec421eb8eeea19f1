"""A real Slurm with Outrider on it. All tests of a unit share one; each brings images of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from testbed.site import OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons.keeping import KeptSite
from tests.daemons.slurm.service.jobs import in_slurm, instances, pins
from tests.needs import need_slurm

NODES = 4
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
SETTLE_S = 180
# A job that is sent back waits so long, which by Slurm's own measure are 2 min.
LINES = ("AuthInfo=cred_expire=10",)
# Jobs that do not end by themselves are killed after KillWait, which is 5 s here.
JOBS = {
    "preemptible": True, "most_grace": "1m", "requeue_margin": "20s", "machines": True, "saving_rate": "20MB",
}  # fmt: skip
TIMINGS = {"look": "2s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "6s", "note": "2s"}


KEPT: KeptSite[OutriderSite] = KeptSite()


@contextmanager
def begun(nodes: int, settings: Mapping[str, object], *, is_preloaded: bool = True) -> Iterator[OutriderSite]:
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    with site_cluster(
        nodes, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=LINES
    ) as cluster:
        made = OutriderSite(
            cluster,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": JOBS, **settings},
            is_preloaded=is_preloaded,
        )
        made.install()
        yield made


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """Four nodes, or as many as the file names. When all its tests are over, nothing may be left anywhere."""
    need_slurm()
    failed_before = request.session.testsfailed
    nodes = getattr(request.module, "NODES_OF_SITE", NODES)
    settings = getattr(request.module, "SETTINGS", {})
    is_preloaded = not getattr(request.module, "FROM_NOTHING", False)
    made = KEPT.of(request.node, lambda: begun(nodes, settings, is_preloaded=is_preloaded))
    is_sound = False
    yield made
    try:
        # What a test that failed has left says nothing of the others.
        if request.session.testsfailed == failed_before:
            check_clean(made)
            is_sound = True
    finally:
        if not is_sound:
            KEPT.end()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    KEPT.end_unless_wanted(nextitem)


@pytest.fixture(autouse=True)
def freed(request: pytest.FixtureRequest, site: OutriderSite) -> Iterator[None]:
    """What a test that failed has left is not in the way of the next."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        site.cluster.run(HEAD, ["scancel", "--partition=main"], check=False)
        for name in in_slurm(site):
            site.outrider("cancel", name, user="root", check=False)


def check_clean(site: OutriderSite) -> None:
    """No node drained; no job, reservation, instance, pin or file of a hook's left."""
    site.cluster.wait_idle(SETTLE_S)
    site.cluster.wait_for("no leftovers", lambda: not leftovers(site), SETTLE_S, lambda: f"{leftovers(site)}")


def leftovers(site: OutriderSite) -> list[str]:
    found = [f"job {key} waits" for key in site.cluster.run(HEAD, ["squeue", "-h", "-o%A"]).stdout.split()]
    found += [f"reservation {name} in Slurm" for name in in_slurm(site)]
    for node in site.cluster.nodes:
        found += [f"instance of {owner} on {node}" for owner in instances(site, node)]
        found += [f"pin of {owner} on {node}" for owner in pins(site, node) if not site.may_stay(owner)]
        argv = ["find", "/run/outrider/jobs", "/run/outrider/failed", "-type", "f"]
        found += [f"{path} on {node}" for path in site.cluster.run(node, argv, check=False).stdout.split()]
    return found
