"""The installer on a real Grid Engine: hooks are tried before queues have them, and all of it goes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from testbed.gridengine import GridEngineCluster
from testbed.people import USERS
from tests.daemons.installing.grids import grid, objects, outrider
from tests.daemons.installing.machines import tree

START = "/usr/sbin/cachemgr serve >/var/log/cachemgr.log 2>&1 &"
WHERE = ("/etc/outrider", "/etc/systemd", "/usr/lib/outrider", "/usr/sbin", "/run/outrider")
DEPLOY = ("nodes", "deploy", "n[1-2]", "--limit", "1GiB", "--start-command", START)
Said = dict[str, CompletedProcess[str]]


@pytest.fixture(scope="module")
def said() -> Said:
    """What the commands of the installation said, by their name."""
    return {}


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    """Objects and files at several times."""
    return {}


@pytest.fixture(scope="module")
def cluster(installed: Path, said: Said, seen: dict[str, object]) -> Iterator[GridEngineCluster]:
    """A site, installed as the page says."""
    with grid(installed) as made:
        seen["files"] = {host: tree(made, host, *WHERE) for host in ("head", "n1", "n2")}
        seen["objects"] = objects(made)
        said["show"] = outrider(made, "init", "gridengine", "--json")
        seen["objects after show"] = objects(made)
        said["early"] = outrider(made, "init", "gridengine", "--apply")
        seen["objects after early"] = objects(made)
        said["deploy"] = outrider(made, *DEPLOY)
        said["apply"] = outrider(made, "init", "gridengine", "--apply", "--prove-as", USERS[0])
        yield made


def test_showing_changes_nothing(cluster: GridEngineCluster, said: Said, seen: dict[str, object]) -> None:
    shown = json.loads(said["show"].stdout)

    assert seen["objects after show"] == seen["objects"]
    assert (shown["is_applied"], shown["troubles"]) == (False, [])


def test_queues_get_no_hooks_before_the_nodes_have_their_files(
    cluster: GridEngineCluster, said: Said, seen: dict[str, object]
) -> None:
    early = seen["objects after early"]
    assert isinstance(early, dict)

    assert "outrider nodes deploy 'n[1-2]'" in said["early"].stdout
    assert "/usr/lib/outrider" not in early["queue all.q"]
    assert "script:" not in early["-sconf"]
    assert "queue outrider.q" in early


def test_hooks_are_tried_on_a_queue_of_their_own_which_goes_again(
    cluster: GridEngineCluster, said: Said
) -> None:
    after = objects(cluster)
    prologs = {
        queue: line.split()[-1]
        for queue in ("all.q", "outrider.q")
        for line in after[f"queue {queue}"].splitlines()
        if line.startswith("prolog")
    }

    assert prologs == {"all.q": "$host", "outrider.q": "reserved"}
    assert "Jobs have come through the hooks on n1" in said["apply"].stdout
    assert "outrider-proof" not in "".join(after.values())
    assert set(cluster.queue_states().values()) <= {"", "S"}


def test_service_is_told_of_programs_and_the_scheduler_takes_little_off_reservations(
    cluster: GridEngineCluster,
) -> None:
    config = cluster.read("head", "/etc/outrider/outriderd.yaml")

    assert "commands: /usr/lib/gridengine\n" in config
    assert "duration_offset: 5s\n" in config
    assert "DURATION_OFFSET=5" in objects(cluster)["-ssconf"]


def test_jobs_come_through_the_hooks_and_one_with_an_image_waits(cluster: GridEngineCluster) -> None:
    plain = [cluster.qsub("#!/bin/sh\nexit 0\n") for _ in range(4)]
    parallel = cluster.qsub("#!/bin/sh\nexit 0\n", "-pe", "each4", "8")
    managed = cluster.qsub("#!/bin/sh\n", "-ac", "OUTRIDER=http://images:8000/a.qcow2")
    for job in (*plain, parallel):
        cluster.wait_job(job)
    states = [cluster.accounts(job)[0]["failed"].split()[0] for job in (*plain, parallel)]
    waits = cluster.job_state(managed)
    cluster.run("head", ["qdel", managed])

    assert states == ["0"] * 5
    assert waits == "hqw"
    assert set(cluster.queue_states().values()) <= {"", "S"}


@pytest.mark.repeats(
    "tests/daemons/gridengine/hooks/test_hooks_in_gridengine.py::test_environment_of_a_job_disables_no_queue"
)
def test_hook_that_would_disable_queues_is_found_on_its_own_queue(cluster: GridEngineCluster) -> None:
    """As if a file of ours did not run on a node: no queue of the site's is touched by that."""
    prolog = "/usr/lib/outrider/gridengine/prolog"
    cluster.run("n1", ["mv", prolog, f"{prolog}.away"])
    cluster.run("head", ["qconf", "-rattr", "queue", "prolog", "NONE", "all.q"])
    done = outrider(cluster, "init", "gridengine", "--apply", "--prove-as", USERS[0], check=False)
    hooks = objects(cluster)["queue all.q"]
    states = cluster.queue_states()
    cluster.run("n1", ["mv", f"{prolog}.away", prolog])
    again = outrider(cluster, "init", "gridengine", "--apply", "--prove-as", USERS[0])

    assert done.returncode != 0
    assert f"execvlp({prolog}" in done.stderr
    assert prolog not in hooks
    assert set(states.values()) <= {"", "S"}
    assert "come through" in again.stdout


def test_doctor_finds_nothing_but_that_no_service_runs(cluster: GridEngineCluster) -> None:
    done = outrider(cluster, "doctor", "--json", check=False)
    found = {each["what"]: each for each in json.loads(done.stdout)["findings"] if each["level"] != "ok"}

    assert set(found) == {"outriderd"}


def test_removal_leaves_the_site_as_it_was(cluster: GridEngineCluster, seen: dict[str, object]) -> None:
    # Of what the tests before this one have installed.
    assert "/usr/lib/outrider/hook.py" in tree(cluster, "n1", *WHERE)
    outrider(cluster, "init", "gridengine", "--remove")
    nodes = outrider(cluster, "nodes", "deploy", "n[1-2]", "--remove")
    after = {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")}

    assert "removed" in nodes.stdout
    assert objects(cluster) == seen["objects"]
    assert after == seen["files"]
