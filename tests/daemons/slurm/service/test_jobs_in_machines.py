"""Jobs of a real Slurm run in virtual machines on their nodes, and survive what goes wrong."""

from __future__ import annotations

import os
import re

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, workspace
from tests.daemons.slurm.service.failing import fill, kill_service
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    COUNTING,
    MB,
    MEMORY_MB,
    counted_to,
    kept_on,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, output, restarts, script, seen, wait_for, wait_in_slurm
from tests.daemons.slurm.service.switched import Strike, cancel, counts_on, full_pair, steps_of, struck


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


def test_script_runs_in_its_guest_and_brings_its_folder_back(machines: OutriderSite) -> None:
    site = machines
    image = site.image("root.qcow2", 4 * MB)
    site.cluster.write(HEAD, f"{site.home()}/project/given", "from the node\n")
    work = 'uname -r; cat given; echo "$SLURM_JOB_ID $1"; free -m | grep Mem; echo made > made; exit 7\n'

    job = submit(site, image, work, "-c1")
    done = ended(site, job, BOOT_S)

    assert done.state == "FAILED", said(site, job)
    lines = said(site, job).split("\n")
    assert lines[0] != os.uname().release
    assert lines[1] == "from the node"
    assert lines[2].split() == [job]
    memory = int(re.split(r"\s+", lines[3])[1])
    assert MEMORY_MB * 0.6 < memory <= MEMORY_MB
    assert site.cluster.read(HEAD, f"{site.home()}/project/made") == "made\n"


def test_scratch_that_has_no_room_on_its_node_is_refused_by_name(machines: OutriderSite) -> None:
    site = machines
    image = site.image("small.qcow2", 4 * MB)

    job = submit(site, image, "echo never\n", "-c1", "-wn1", more="#OUTRIDER scratch: 16TiB\n")
    done = ended(site, job, BOOT_S)

    assert done.state == "FAILED"
    assert re.search(
        r"scratch takes 16\.0 TiB, and n1 has [0-9.]+ \w+ for it.*: ask for less", said(site, job)
    )
    assert kept_on(site, "n1") == []


@pytest.mark.long
def test_service_killed_while_a_machine_is_saved_finds_it_again(machines: OutriderSite) -> None:
    site = machines
    image, last = site.image("killed.qcow2", 4 * MB), 40
    workspace(site, "sudden", 8 * MB)
    firm = [fill(site, node) for node in ("n2", "n3", "n4")]
    job = submit(
        site, image, COUNTING.format(last=last), "-c1", "-wn1", more="#OUTRIDER preemptible: suspend\n"
    )
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")

    name = str(reserve(site, "sudden", "--nodes=1", "--start=now+75s", "-t15s")["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    site.cluster.wait_for("the signal", lambda: '"saved":[' in seen(site, job).admin_comment, logs=site.logs)
    kill_service(site)
    site.start_service()
    within = ended(site, inside, BOOT_S)
    back = ended(site, job, BOOT_S)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert (within.state, within.nodes) == ("COMPLETED", "n1"), output(site, inside)
    assert (back.state, back.nodes) == ("COMPLETED", "n1"), said(site, job)
    assert counted_to(site, job, last)
    assert restarts(site, job) == "Restarts=1"


@pytest.mark.long
def test_keeper_that_is_killed_leaves_no_machine(machines: OutriderSite) -> None:
    site = machines
    image = site.image("orphan.qcow2", 4 * MB)
    job = submit(site, image, COUNTING.format(last=9000), "-c1", "-wn1")
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")
    before = kept_on(site, "n1")

    site.cluster.run("n1", ["/bin/sh", "-c", "kill -9 $(pgrep -f '[l]ib/outrider/machine')"])
    done = ended(site, job)
    site.cluster.wait_for(
        "no machine", lambda: kept_on(site, "n1") == [], logs=lambda: str(kept_on(site, "n1"))
    )

    assert f"job-{job}" in before
    assert done.state == "FAILED"


@pytest.mark.long
def test_end_of_its_time_reaches_the_script(machines: OutriderSite) -> None:
    site = machines
    image = site.image("ended.qcow2", 4 * MB)
    work = "trap 'echo told > told; exit 3' TERM\necho ready\nwhile :; do sleep 0.1; done\n"
    job = submit(site, image, work, "-c1", "-wn1")
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "ready")

    site.cluster.run(HEAD, ["scancel", "--batch", "--signal=TERM", job], user="ada")
    done = ended(site, job)

    assert done.state == "FAILED"
    assert site.cluster.read(HEAD, f"{site.home()}/project/told") == "told\n"
    assert kept_on(site, "n1") == []


def test_owner_suspends_a_machine_and_lets_it_go_on(machines: OutriderSite) -> None:
    site = machines
    image, last = site.image("paused.qcow2", 4 * MB), 15
    job = submit(site, image, COUNTING.format(last=last), "-c1", "-wn1")
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")

    foreign = site.outrider("suspend", job, user="bob", check=False)
    site.outrider("suspend", job)
    wait_for(site, job, "PENDING")
    while_suspended = kept_on(site, "n1")
    between = ended(site, site.submit("#!/bin/sh\ntrue\n", "-t1", "-wn1", "--exclusive"))
    site.cluster.wait_for(
        "the service to see it", lambda: "resume" in seen(site, job).admin_comment, logs=site.logs
    )
    still = seen(site, job)
    site.outrider("resume", job)
    back = ended(site, job, BOOT_S)

    assert foreign.returncode != 0
    assert while_suspended == [f"job-{job}"]
    assert between.state == "COMPLETED"
    assert still.state == "PENDING"
    assert (back.state, back.nodes) == ("COMPLETED", "n1"), said(site, job)
    assert counted_to(site, job, last)
    assert restarts(site, job) == "Restarts=1"
    assert kept_on(site, "n1") == []


@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_two_machines_change_places_although_the_service_is_killed"
)
def test_machine_goes_on_at_another_node_without_a_gap(machines: OutriderSite, is_killed: bool) -> None:
    site = machines
    image, last = site.image(f"moved{is_killed}.qcow2", 4 * MB), 20
    job = submit(site, image, COUNTING.format(last=last), "-c1")
    wait_for(site, job, "RUNNING")
    source = seen(site, job).nodes
    target = next(node for node in site.cluster.nodes if node != source)
    wait_until_said(site, job, "3")

    foreign = site.outrider("migrate", job, target, user="bob", check=False)
    told = site.outrider("migrate", job, target).stdout
    if is_killed:
        site.cluster.wait_for(
            "files over there", lambda: f"job-{job}" in kept_on(site, target), BOOT_S, site.logs
        )
        kill_service(site)
        site.start_service()
    back = ended(site, job, BOOT_S)

    assert foreign.returncode != 0
    assert f"from {source} to {target}, by ada" in told
    assert (back.state, back.nodes) == ("COMPLETED", target), f"{said(site, job)}\n{site.logs()}"
    assert counted_to(site, job, last), said(site, job)
    assert restarts(site, job) == "Restarts=1"
    assert kept_on(site, source) == kept_on(site, target) == []


@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_two_machines_change_places_although_the_service_is_killed"
)
def test_two_machines_of_full_nodes_change_places_whoever_is_killed(machines: OutriderSite) -> None:
    """No third node has room: one is saved and goes on where the other was. The service and daemons of nodes
    are killed meanwhile; the disk of each guest says how far it has counted."""
    site, last = machines, 40
    pair = full_pair(site, "swapped", last=last)
    before = pair.nodes(site)

    strikes = [Strike("source", 1, 0), Strike("service", 2, 0), Strike("target", 3, 0)]
    found, killed = struck(site, pair, *strikes)
    after = pair.nodes(site)
    back = [ended(site, job, BOOT_S) for job in pair.jobs]
    cancel(site, pair.firm)

    kinds = [(each["stage"], each["kind"], each["state"]) for each in steps_of(found)]
    assert kinds == [(1, "suspend", "done"), (2, "migrate", "done"), (3, "resume", "done")], found
    assert (found["state"], killed) == ("done", len(strikes)), found
    assert after == before[::-1]
    for job, node in zip(pair.jobs, before[::-1], strict=True):
        assert counts_on(site, job) == last
        assert restarts(site, job) == "Restarts=1"
        assert kept_on(site, node) == []
    assert {each.state for each in back} == {"COMPLETED"}


@pytest.mark.long
def test_machine_leaves_a_node_that_is_drained(machines: OutriderSite) -> None:
    site = machines
    image, last = site.image("drained.qcow2", 4 * MB), 10
    job = submit(site, image, COUNTING.format(last=last), "-c1")
    wait_for(site, job, "RUNNING")
    source = seen(site, job).nodes
    wait_until_said(site, job, "3")

    site.outrider("suspend", job)
    wait_for(site, job, "PENDING")
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={source}", "State=DRAIN", "Reason=test"])
    try:
        site.outrider("resume", job)
        back = ended(site, job, BOOT_S)
    finally:
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={source}", "State=RESUME"])

    assert (back.state, back.nodes != source) == ("COMPLETED", True), f"{said(site, job)}\n{site.logs()}"
    assert counted_to(site, job, last), said(site, job)
    assert kept_on(site, source) == []


@pytest.mark.long
def test_job_that_is_cancelled_while_it_is_suspended_leaves_nothing(machines: OutriderSite) -> None:
    site = machines
    image = site.image("dropped.qcow2", 4 * MB)
    job = submit(site, image, COUNTING.format(last=9000), "-c1", "-wn1")
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")
    site.outrider("suspend", job)
    wait_for(site, job, "PENDING")
    while_suspended = kept_on(site, "n1")

    site.cluster.run(HEAD, ["scancel", job], user="ada")
    site.cluster.wait_for(
        "no machine",
        lambda: kept_on(site, "n1") == [],
        BOOT_S,
        lambda: f"{kept_on(site, 'n1')}\n{site.logs()}",
    )
    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout.split()

    assert while_suspended == [f"job-{job}"]
    assert job not in marks


@pytest.mark.long
def test_console_shows_what_the_guest_has_said(machines: OutriderSite) -> None:
    site = machines
    image = site.image("said.qcow2", 4 * MB)
    work = "echo hello from within >/dev/console\n" + COUNTING.format(last=9000)
    job = submit(site, image, work, "-c1", "-wn1")
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")

    told = site.outrider("console", job, check=False)
    foreign = site.outrider("console", job, user="bob", check=False)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    ended(site, job)

    assert "hello from within" in told.stdout, told.stderr
    assert "hello from within" not in foreign.stdout
    assert foreign.returncode != 0
