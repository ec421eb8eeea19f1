"""Running machines of a real Grid Engine go to other nodes in holder jobs, and are not saved on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
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
    kill_service,
    node_of,
)
from tests.daemons.slurm.service.switched import running_on

__all__ = ["machines"]
CONFIGURATION = "/etc/outrider/outriderd.yaml"


@pytest.fixture(scope="module")
def live(machines: GridEngineSite) -> Iterator[GridEngineSite]:
    """The site with a service that moves machines alive."""
    site = machines
    before = site.cluster.read(HEAD, CONFIGURATION)
    found = json.loads(before)
    found["jobs"]["live"], found["link"]["best_effort_rate"] = True, "10MB"
    site.cluster.write(HEAD, CONFIGURATION, json.dumps(found))
    kill_service(site)
    yield site
    site.cluster.write(HEAD, CONFIGURATION, before)
    kill_service(site)


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


def reported_s(site: GridEngineSite) -> int:
    """What holders have had of ada's machines by the service's report."""
    found = json.loads(site.outrider("report", "--json", user="root").stdout)
    return sum(line["machine_node_seconds"] for line in found["lines"] if line["payer"] == "ada")


def nothing_is_kept(site: GridEngineSite) -> None:
    site.cluster.wait_for(
        "no machine",
        lambda: all(kept_on(site, node) == [] for node in site.cluster.nodes),
        BOOT_S,
        lambda: f"{[kept_on(site, node) for node in site.cluster.nodes]}\n{site.logs()}",
    )


def moving(site: GridEngineSite, name: str, last: int = 9000) -> tuple[str, str, str]:
    """A job whose machine counts and is about to move; from where to where."""
    job = counting(site, name, last=last)
    wait_until_said(site, job, "3")
    source = node_of(site, job)
    target = next(node for node in site.cluster.nodes if node != source)
    site.outrider("migrate", job, target)
    return job, source, target


def test_machine_moves_alive_and_its_job_ends_as_it_does(live: GridEngineSite) -> None:
    site, last = live, 13
    job, source, target = moving(site, "alive", last)
    holder = wait_holder(site, job, "has")
    generation = record(site, target, job)["generation"]
    site.cluster.wait_for(
        "the job to be shown there", lambda: target in site.told("show", job), logs=lambda: report(site, job)
    )
    told, there = site.told("show", job), running_on(site, job)
    on_nodes, left = site.cluster.jobs_on(), kept_on(site, source)
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
    (had,) = site.cluster.accounts(holder)
    assert (had["failed"], had["owner"], had["hostname"]) == ("0", "ada", target)
    site.cluster.wait_for(
        "the report", lambda: reported_s(site) == float(had["ru_wallclock"].rstrip("s")), logs=site.logs
    )
    nothing_is_kept(site)


def test_job_that_is_deleted_while_its_machine_moves_leaves_nothing(live: GridEngineSite) -> None:
    site = live
    job, source, target = moving(site, "deleted")
    site.cluster.wait_for(
        "both machines", lambda: running_on(site, job) == sorted([source, target]), BOOT_S, site.logs
    )
    cancel(site, job)
    site.cluster.wait_for("no holder", lambda: holders(site, job) == {}, logs=site.logs)
    nothing_is_kept(site)

    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout
    assert marks.split() == []
