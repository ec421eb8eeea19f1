"""Machines of a real Grid Engine that go on at other nodes: one, a drained node's, two that change places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import NODE_DAEMON, SERVICE
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    fill,
    report,
    shown,
    submit,
    wait_output,
    wait_shown,
    wait_state,
)
from tests.daemons.gridengine.service.test_jobs_in_machines import (
    BOOT_S,
    COUNTING,
    counted_to,
    kept_on,
    machines,
    said,
    submit_machine,
    wait_until_said,
)
from tests.daemons.slurm.service.switched import running_on, steps_of, switched

__all__ = ["machines"]
HALF = ("-pe", "each2", "2")


@pytest.fixture(scope="module")
def halves(machines: GridEngineSite) -> Iterator[GridEngineSite]:
    """The site with an environment whose jobs have half of a node for their machine."""
    path = "/etc/outrider/jsv.json"
    machines.cluster.write(HEAD, path, json.dumps({"machine_environments": [HALF[1]]}))
    yield machines
    machines.cluster.run(HEAD, ["rm", path])


@contextmanager
def disabled(site: GridEngineSite, node: str) -> Iterator[None]:
    site.cluster.run(HEAD, ["qmod", "-d", f"all.q@{node}"])
    try:
        yield
    finally:
        site.cluster.run(HEAD, ["qmod", "-e", f"all.q@{node}"])


def counting(site: GridEngineSite, name: str, *options: str, last: int = 9000) -> str:
    image = site.image(f"{name}.qcow2", 4 * MB)
    return submit_machine(site, image, COUNTING.format(last=last), *options)


def node_of(site: GridEngineSite, job: str) -> str:
    found = [node for node, jobs in site.cluster.jobs_on().items() if job in jobs]
    assert len(found) == 1, f"{found}\n{site.told('switch', 'show')}\n{report(site, job)}"
    return found[0]


def counts_on(site: GridEngineSite, job: str) -> int:
    """How far it has counted, without a gap or a repeat."""
    words = said(site, job).rpartition("\n")[0].split()
    assert words == (words and ["began", *map(str, range(1, len(words)))]), words
    return max(0, len(words) - 1)


def wait_until_counted(site: GridEngineSite, job: str, beyond: int) -> None:
    site.cluster.wait_for(
        f"job {job} to count", lambda: counts_on(site, job) > beyond, BOOT_S, lambda: report(site, job)
    )


def came_first(site: GridEngineSite, job: str) -> bool:
    """Whether it still has the priority with which it had to come before others."""
    return bool(re.search(r"OUTRIDER_PRIORITY|^priority: +1024", shown(site, job), re.MULTILINE))


def full_pair(site: GridEngineSite, name: str) -> tuple[list[str], list[str]]:
    """Two machines that count, each on half of a node, and jobs that leave no room anywhere."""
    nodes = site.cluster.nodes
    firm = [fill(site, node) for node in nodes[2:]]
    for node in nodes[:2]:
        firm.append(submit(site, None, *HALF, "-q", f"all.q@{node}", more="sleep 600"))
        wait_output(site, firm[-1])
    pair = [counting(site, f"{name}{number}", *HALF) for number in (1, 2)]
    for job in pair:
        wait_until_said(site, job, "3")
    return pair, firm


def kill_service(site: GridEngineSite) -> None:
    """By SIGKILL; another one goes on."""
    site.cluster.kill(HEAD, SERVICE)
    site.start_service()


def change_places(site: GridEngineSite, pair: Sequence[str]) -> list[str]:
    """Begin a switch in which they do; where they were."""
    before = [node_of(site, job) for job in pair]
    fences = [f"--fence={job}={node}" for job, node in zip(pair, reversed(before), strict=True)]
    site.outrider("switch", "run", *fences, user="root")
    return before


@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_two_machines_change_places_although_the_service_is_killed"
)
def test_machine_of_a_job_goes_on_at_another_node(machines: GridEngineSite) -> None:
    site, last = machines, 10
    job = counting(site, "elsewhere", last=last)
    wait_until_said(site, job, "3")
    source = node_of(site, job)
    target = next(node for node in site.cluster.nodes if node != source)

    foreign = site.outrider("migrate", job, target, user="bob", check=False)
    told = site.outrider("migrate", job, target).stdout
    back = ended(site, job, BOOT_S)
    runs = site.cluster.accounts(job)

    assert foreign.returncode != 0
    assert f"from {source} to {target}" in told
    assert "a pause of at most about" in told
    assert [run["hostname"] for run in runs] == [source, target]
    assert (back["exit_status"], back["hostname"]) == ("0", target), said(site, job)
    assert counted_to(site, job, last), said(site, job)
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * 4


@pytest.mark.long
def test_suspended_machine_moves_and_stays_suspended(machines: GridEngineSite) -> None:
    site, last = machines, 15
    job = counting(site, "asleep", last=last)
    wait_until_said(site, job, "3")
    source = node_of(site, job)
    target = next(node for node in site.cluster.nodes if node != source)
    site.outrider("suspend", job)
    wait_state(site, job, "hRq", BOOT_S)
    wait_shown(site, job, "is suspended")
    # It is shown so a moment before the service has noted it.
    site.cluster.wait_for(
        "a move to begin", lambda: site.outrider("migrate", job, target, check=False).returncode == 0
    )
    site.cluster.wait_for(
        "it to be there", lambda: kept_on(site, target) == [f"job-{job}"], BOOT_S, lambda: report(site, job)
    )
    site.cluster.wait_for(
        "the other to be gone", lambda: kept_on(site, source) == [], BOOT_S, lambda: report(site, job)
    )
    still = site.cluster.job_state(job)
    site.outrider("resume", job)
    back = ended(site, job, BOOT_S)

    assert still == "hRq"
    assert (back["exit_status"], back["hostname"]) == ("0", target), said(site, job)
    assert counted_to(site, job, last), said(site, job)


@pytest.mark.long
def test_machine_that_was_saved_on_a_drained_node_goes_on_elsewhere(machines: GridEngineSite) -> None:
    site, last = machines, 15
    job = counting(site, "stranded", last=last)
    wait_until_said(site, job, "3")
    source = node_of(site, job)
    site.outrider("suspend", job)
    wait_state(site, job, "hRq", BOOT_S)
    wait_shown(site, job, "is suspended")
    with disabled(site, source):
        site.outrider("resume", job)
        back = ended(site, job, BOOT_S)

    assert back["exit_status"] == "0", said(site, job)
    assert back["hostname"] != source
    assert counted_to(site, job, last), said(site, job)
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * 4


@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_drained_node_is_left_by_its_machines_and_takes_no_other"
)
def test_drained_node_is_left_by_its_machines_although_the_service_is_killed(
    machines: GridEngineSite,
) -> None:
    site = machines
    killed: list[bool] = []

    def strike(found: dict[str, object]) -> None:
        if not killed and any(each["state"] == "runs" for each in steps_of(found)):
            killed.append(True)
            kill_service(site)

    job = counting(site, "drained")
    wait_until_said(site, job, "3")
    node = node_of(site, job)

    refused = site.outrider("nodes", "drain", node, "--live", user="root", check=False)
    with disabled(site, node):
        site.cluster.wait_for(
            "the service to see that", lambda: "drained" in site.told("nodes", node), logs=site.logs
        )
        told = site.outrider("nodes", "drain", node, "--live", user="root", check=False)
        found = switched(site, [job], strike)
        wait_until_counted(site, job, counts_on(site, job))
        kept, running = kept_on(site, node), running_on(site, job)
    cancel(site, job)

    assert "drain it in the batch system first" in refused.stderr
    assert f"migrate job {job} {node} to " in told.stdout, told.stdout + told.stderr
    assert (killed, found["state"]) == ([True], "done"), found
    assert kept == []
    assert (len(running), running == [node]) == (1, False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "stage"),
    [("", 0), ("service", 1), ("service", 2), ("service", 3), ("source", 2), ("target", 2)],
)
def test_two_machines_change_places_on_full_nodes_whoever_is_killed(
    halves: GridEngineSite, victim: str, stage: int
) -> None:
    site, left = halves, [stage] if stage else []
    pair, firm = full_pair(site, f"places{victim}{stage}")
    counted = [counts_on(site, job) for job in pair]

    def strike(found: dict[str, object]) -> None:
        for step in steps_of(found):
            if left and (step["stage"], step["state"]) == (stage, "runs"):
                left.clear()
                if victim == "service":
                    kill_service(site)
                else:
                    site.cluster.kill(str(step[victim]), NODE_DAEMON)
                    site.start_node(str(step[victim]))

    before = change_places(site, pair)
    found = switched(site, pair, strike)
    assert (found["state"], left) == ("done", []), f"{found}\n{site.logs()}"
    for job, count in zip(pair, counted, strict=True):
        wait_until_counted(site, job, count)
    after = [node_of(site, job) for job in pair]
    site.cluster.wait_for(
        "their own priorities", lambda: not any(came_first(site, job) for job in pair), logs=site.logs
    )
    cancel(site, *pair, *firm)

    assert sorted(before) == site.cluster.nodes[:2]
    assert after == before[::-1]
