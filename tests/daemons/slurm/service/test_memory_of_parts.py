"""Memory of parts of nodes on a real Slurm: processors keep it apart, as none has more than its share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD
from tests.daemons.reservations import workspace
from tests.daemons.slurm.service.conftest import (
    LINES,
    LINK_BYTES_PER_S,
    RATE_BITS_PER_S,
    TIMINGS,
    check_clean,
)
from tests.daemons.slurm.service.jobs import ended, output, script, seen, wait_for, wait_in_slurm
from tests.daemons.slurm.service.test_parts_of_nodes import asked, cores
from tests.needs import need_slurm

MB = 1_000_000
OF_CPU_MIB = 900
MEMORY = ("SelectTypeParameters=CR_Core_Memory", f"MaxMemPerCPU={OF_CPU_MIB}", "DefMemPerCPU=100")
WANTED_MIB = 1_500
"""The share of two of the four processors of a node, and not of one."""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """One node."""
    need_slurm()
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    failed_before = request.session.testsfailed
    with site_cluster(
        1, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=(*LINES, *MEMORY)
    ) as cluster:
        slurm = {"core_cpus": 1, "cpu_memory": f"{OF_CPU_MIB}MiB"}
        made = OutriderSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "backend": {"kind": "slurm", "slurm": slurm}},
        )
        made.install()
        yield made
        if request.session.testsfailed == failed_before:
            check_clean(made)


def memory(site: OutriderSite, image: ServedImage, user: str) -> dict[str, object]:
    return asked(
        site, "reserve", "--image", image.uri, "--digest", image.digest, "--nodes=1",
        f"--memory={WANTED_MIB}MiB", "--start=now+12s", "-t60s", user=user,
    )  # fmt: skip


def test_each_of_two_has_its_memory_of_one_node_and_nobody_more(site: OutriderSite) -> None:
    image = workspace(site, "memory", 5 * MB)

    answers = [memory(site, image, user) for user in ("ada", "bob")]
    third = memory(site, image, "ada")
    names = [str(each["name"]) for each in answers]
    for name in names:
        wait_in_slurm(site, name, is_there=True)
    sizes = cores(site)
    greedy = site.submit(script(None), f"--mem={2 * OF_CPU_MIB + 100}M", "-t1", f"--reservation={names[0]}")
    jobs = [
        site.submit(
            script(None, "sleep 6"), f"--mem={WANTED_MIB}M", "-t1", f"--reservation={name}", user=user
        )
        for name, user in zip(names, ("ada", "bob"), strict=True)
    ]
    for job in jobs:
        wait_for(site, job, "RUNNING")
    states = [seen(site, job).state for job in (*jobs, greedy)]

    assert [each["result"] for each in answers] == ["accepted", "accepted"]
    assert (third["result"], third["cause"]) == ("refused", "slots")
    assert [sizes[name] for name in names] == [2, 2]
    assert states == ["RUNNING", "RUNNING", "PENDING"]
    for job, user in zip(jobs, ("ada", "bob"), strict=True):
        ended(site, job)
        assert output(site, job, user=user).count("QFI") == 1
    site.cluster.run(HEAD, ["scancel", greedy])
    for name, user in zip(names, ("ada", "bob"), strict=True):
        site.outrider("cancel", name, user=user)
        wait_in_slurm(site, name, is_there=False)
