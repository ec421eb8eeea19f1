"""Running machines of a real Grid Engine go to other nodes in holder jobs, and are saved nowhere on the way."""

from __future__ import annotations

import json

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.conftest import JOBS
from tests.daemons.gridengine.service.jobs import cancel, ended, report
from tests.daemons.gridengine.service.test_jobs_in_machines import (
    BOOT_S,
    counted_to,
    kept_on,
    machines,
    said,
    wait_until_said,
)
from tests.daemons.gridengine.service.test_switches import (
    counting,
    counts_on,
    disabled,
    kill_service,
    node_of,
    wait_until_counted,
)
from tests.daemons.slurm.service.switched import running_on, switched

__all__ = ["machines"]
NODES_OF_SITE = 3
SETTINGS = {"jobs": {**JOBS, "live": True}}


def names(site: GridEngineSite) -> dict[str, str]:
    """The names of all jobs, by their numbers."""
    shown = site.cluster.run(HEAD, ["qstat", "-j", "*"], check=False).stdout
    found, number = {}, ""
    for line in shown.splitlines():
        key, _, text = line.partition(":")
        if key == "job_number":
            number = text.strip()
        elif key == "job_name":
            found[number] = text.strip()
    return found


def holders(site: GridEngineSite, job: str) -> dict[str, str]:
    """The holder jobs of a job, by how far they are."""
    shown = ((name.split("-"), key) for key, name in names(site).items() if name.startswith("outrider-"))
    return {words[1]: key for words, key in shown if words[2] == job}


def wait_holder(site: GridEngineSite, job: str, word: str) -> str:
    """Until a job's holder is so far; its number."""
    site.cluster.wait_for(
        f"a holder that {word} of job {job}",
        lambda: word in holders(site, job),
        BOOT_S,
        lambda: f"{names(site)}\n{report(site, job)}\n{said(site, job)}",
    )
    return holders(site, job)[word]


def record(site: GridEngineSite, node: str, job: str) -> dict[str, object]:
    uid = site.cluster.people.of("ada").uid
    path = f"/var/tmp/outrider-{uid}/job-{job}/machine.json"
    found: dict[str, object] = json.loads(site.cluster.run(node, ["cat", path]).stdout)
    return found


def nothing_is_kept(site: GridEngineSite) -> None:
    site.cluster.wait_for(
        "no machine",
        lambda: all(kept_on(site, node) == [] for node in site.cluster.nodes),
        BOOT_S,
        lambda: f"{[kept_on(site, node) for node in site.cluster.nodes]}\n{site.logs()}",
    )


def test_machine_moves_alive_and_its_job_ends_as_it_does(machines: GridEngineSite) -> None:
    site, last = machines, 45
    job = counting(site, "alive", last=last)
    wait_until_said(site, job, "3")
    source = node_of(site, job)
    target = next(node for node in site.cluster.nodes if node != source)

    site.outrider("migrate", job, target)
    holder = wait_holder(site, job, "has")
    wait_until_counted(site, job, counts_on(site, job))
    there, generation = running_on(site, job), record(site, target, job)["generation"]
    site.cluster.wait_for(
        "the job to be shown there", lambda: target in site.told("show", job), logs=lambda: report(site, job)
    )
    told, on_nodes = site.told("show", job), site.cluster.jobs_on()
    left = kept_on(site, source)
    back = ended(site, job, BOOT_S)
    runs = site.cluster.accounts(job)

    assert there == [target]
    # It was not saved on its way: that would have begun another layer of its disks.
    assert generation == 1
    assert "running" in told, told
    assert (on_nodes[source], on_nodes[target], left) == ([], [holder], [])
    assert back["exit_status"] == "0", said(site, job)
    assert counted_to(site, job, last), said(site, job)
    # It has migrated once, and ended as its machine did.
    assert [run["failed"].split()[0] for run in runs] == ["24", "0"]
    assert [run["failed"].split()[0] for run in site.cluster.accounts(holder)] == ["0"]
    nothing_is_kept(site)
