"""A user whose `qsub` never ends keeps neither the service nor other users waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import MB, ended, report, submit
from tests.daemons.reservations import workspace

LOOPS, JOBS = 4, 3
ENDLESS = "while :; do outrider submit --workspace %s -t 10m %s; done"


@pytest.fixture
def _hostile(site: GridEngineSite) -> Iterator[None]:
    """Eve submits, and none of it ever ends by itself: qsub reads a file of hers, which is a pipe that nobody
    writes into."""
    workspace(site, "hangs", 5 * MB)
    home, cluster = site.home("eve"), site.cluster
    cluster.write(HEAD, f"{home}/job.sh", "#!/bin/sh\n", mode=0o755, owner="eve:eve")
    cluster.run(HEAD, ["mkfifo", f"{home}/.sge_request"], user="eve")
    loop = ENDLESS % (f"{site.home()}/hangs.yaml", f"{home}/job.sh")
    for _ in range(LOOPS):
        cluster.run(HEAD, ["/bin/sh", "-c", f"({loop}) >/dev/null 2>&1 &"], user="eve")
    hanging = ["pgrep", "-u", "eve", "-x", "qsub"]
    cluster.wait_for(
        "a qsub of eve's", lambda: cluster.run(HEAD, hanging, check=False).returncode == 0, logs=site.logs
    )
    yield
    cluster.run(HEAD, ["rm", f"{home}/.sge_request"], user="eve")
    cluster.run(HEAD, ["pkill", "-KILL", "-u", "eve"], check=False)


@pytest.mark.usefixtures("_hostile")
def test_hanging_submissions_of_one_user_keep_nobody_else_waiting(site: GridEngineSite) -> None:
    for number in range(JOBS):
        job = submit(site, site.image(f"beside{number}.qcow2", 5 * MB))
        assert ended(site, job, timeout_s=200)["exit_status"] == "0", report(site, job)
    site.cluster.write(HEAD, f"{site.home('bob')}/job.sh", "#!/bin/sh\n", mode=0o755, owner="bob:bob")
    asked = ["--workspace", f"{site.home()}/hangs.yaml", "-t", "10m", f"{site.home('bob')}/job.sh"]
    bobs = site.outrider("submit", *asked, user="bob").stdout.strip()

    assert ended(site, bobs, timeout_s=200)["exit_status"] == "0", report(site, bobs)
