"""A real Grid Engine with Outrider on it. All tests of a unit share one; each brings images of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.jobs import advances
from tests.daemons.keeping import KeptSite
from tests.needs import lacking

NODES = 4
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
SETTLE_S = 60
AS_IT_IS_MADE = "root 666 character special file"
JOBS = {
    "preemptible": True, "most_grace": "1m", "requeue_margin": "20s", "machines": True, "saving_rate": "20MB",
}  # fmt: skip
TIMINGS = {"look": "2s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "6s", "note": "2s"}


KEPT: KeptSite[GridEngineSite] = KeptSite()


@contextmanager
def begun() -> Iterator[GridEngineSite]:
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": JOBS},
        )
        made.install()
        yield made


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        lacking(lack)
    failed_before = request.session.testsfailed
    yield KEPT.of(request.node, begun)
    if request.session.testsfailed > failed_before:
        KEPT.end()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    KEPT.end_unless_wanted(nextitem)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, site: GridEngineSite) -> Iterator[None]:
    """After a file's tests: no job, reservation, instance, pin, file of a hook's or changed device."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        return
    is_sound = False
    try:
        site.cluster.wait_for(
            "no leftovers",
            lambda: next(leftovers(site), None) is None,
            SETTLE_S,
            lambda: f"{[*leftovers(site)]}\n{site.logs()}",
        )
        is_sound = True
    finally:
        if not is_sound:
            KEPT.end()


@pytest.fixture(autouse=True)
def _idle(request: pytest.FixtureRequest, site: GridEngineSite) -> Iterator[None]:
    """After each test: no job, and no queue in error."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        # Its leftovers say nothing of the others, and must not be in their way.
        _clear(site)
        return
    cluster = site.cluster
    cluster.wait_for(
        "no jobs",
        lambda: next(jobs_left(site), None) is None,
        SETTLE_S,
        lambda: f"{[*leftovers(site)]}\n{site.logs()}",
    )
    cluster.wait_idle(SETTLE_S)
    cluster.queue_states()


def leftovers(site: GridEngineSite) -> Iterator[str]:
    """What is asked for most easily first: whoever waits for an end looks no further than to what is left."""
    yield from jobs_left(site)
    yield from (f"advance reservation {name}" for name in advances(site))
    yield from site.left_on_nodes()
    yield from changed_devices(site)


def jobs_left(site: GridEngineSite) -> Iterator[str]:
    shown = site.cluster.run(HEAD, ["qstat", "-u", "*"]).stdout
    yield from (f"job: {line}" for line in shown.splitlines()[2:])
    yield from (f"job {job} on {node}" for node, jobs in site.cluster.jobs_on().items() for job in jobs)


def changed_devices(site: GridEngineSite) -> list[str]:
    """Hosts on which /dev/null has another owner or mode, whatever jobs wrote there."""
    shown = {
        host: site.cluster.run(host, ["stat", "-c", "%U %a %F", "/dev/null"]).stdout.strip()
        for host in (HEAD, *site.cluster.nodes)
    }
    return [f"/dev/null of {host}: {said}" for host, said in shown.items() if said != AS_IT_IS_MADE]


def _clear(site: GridEngineSite) -> None:
    site.cluster.run(HEAD, ["qdel", "-u", "*"], check=False)
    for name in advances(site):
        site.outrider("cancel", name, user="root", check=False)
    site.cluster.run(HEAD, ["qmod", "-cq", "*"], check=False)
    site.cluster.run(HEAD, ["qmod", "-e", "*"], check=False)
