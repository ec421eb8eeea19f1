"""Machines of two users change places alive, in holder jobs that are charged to the account of the policies.

Slurm's own record of jobs that have ended says what is charged; what the service reports has to agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.conftest import JOBS
from tests.daemons.slurm.service.in_machines import kept_on, wait_until_said, with_kernels
from tests.daemons.slurm.service.jobs import ended, wait_for
from tests.daemons.slurm.service.policed import policed
from tests.daemons.slurm.service.switched import counting, counts_on, kill

RECORD = "/var/log/slurm/ended-jobs"
LINES = ("JobCompType=jobcomp/filetxt", f"JobCompLoc={RECORD}")
ACCOUNT = "machines"
LAST = 200
POLICIES = f"""version: 1
holder_account: {ACCOUNT}
rules:
  - name: everybody
"""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    settings = {"jobs": {**JOBS, "live": True}}
    with policed(request, POLICIES, nodes=2, lines=LINES, settings=settings) as made:
        yield with_kernels(made)


def charged(site: OutriderSite) -> dict[str, tuple[int, int, int]]:
    """By user, the holder jobs that have ended, by Slurm's own record: how many, node- and CPU-seconds."""
    found: dict[str, tuple[int, int, int]] = {}
    for line in site.cluster.read(HEAD, RECORD).splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        assert fields["Name"].startswith("outrider-") == (fields["Account"] == ACCOUNT), line
        if fields["Account"] != ACCOUNT:
            continue
        start, end = (datetime.fromisoformat(fields[name]) for name in ("StartTime", "EndTime"))
        had_s = int((end - start).total_seconds())
        user = fields["UserId"].partition("(")[0]
        count, node_s, cpu_s = found.get(user, (0, 0, 0))
        found[user] = count + 1, node_s + had_s, cpu_s + had_s * int(fields["ProcCnt"])
    return found


def reported(site: OutriderSite) -> dict[str, tuple[int, int, int]]:
    answer = json.loads(site.outrider("report", "--json", user="root").stdout)
    return {
        line["payer"]: (line["machines"], line["machine_node_seconds"], line["machine_cpu_seconds"])
        for line in answer["lines"]
    }


@pytest.mark.long
def test_two_users_machines_change_places_at_once_and_pay_for_what_slurm_charges(site: OutriderSite) -> None:
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home('bob')}/project"], user="bob")
    first, second = site.cluster.nodes
    jobs = {}
    for user, node, other, cpus in (("ada", first, second, 1), ("bob", second, first, 2)):
        # A wish of its own for a node would keep it there.
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=test"])
        jobs[user] = counting(site, user, f"-c{cpus}", last=LAST, user=user)
        assert wait_for(site, jobs[user], "RUNNING").nodes == node
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={other}", "State=RESUME"])
    for user, job in jobs.items():
        wait_until_said(site, job, "3", user)
    for user, job in jobs.items():
        site.outrider("migrate", job, user=user)
    landed = {f"outrider-has-{jobs['ada']} {second}", f"outrider-has-{jobs['bob']} {first}"}
    shown = ["squeue", "-h", "-tR", "-o%j %N"]
    site.cluster.wait_for(
        "both machines to be at the other's place",
        lambda: landed <= set(site.cluster.run(HEAD, shown).stdout.splitlines()),
        240,
        site.logs,
    )
    # What is over while no service runs is added up, too.
    kill(site, "")
    for job in jobs.values():
        assert ended(site, job, 400).state == "COMPLETED"
    counted = [counts_on(site, job, user) for user, job in jobs.items()]
    site.cluster.wait_for("the report", lambda: len(reported(site)) == len(jobs), logs=site.logs)

    assert counted == [LAST, LAST]
    assert reported(site) == charged(site)
    assert all(count == 1 and cpu_s > 60 for count, _, cpu_s in reported(site).values())
    assert all(kept_on(site, node) == [] for node in site.cluster.nodes)
