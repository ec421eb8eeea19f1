"""Jobs of a real Slurm run in virtual machines on their nodes, make way for reservations, and go on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest

from cachemgr.machines.keeper import PROGRAM
from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD
from tests.daemons.machines.linux_guest import APPEND, linux_guest
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.daemons.slurm.service.failing import fill, kill_service
from tests.daemons.slurm.service.jobs import ended, output, restarts, script, seen, wait_for, wait_in_slurm

MB = 1_000_000
MEMORY_MB = 96
BOOT_S = 240
LIMIT_MIN = 15
LINES = "#OUTRIDER run: vm\n#OUTRIDER boot: debian\n"
COUNTING = """
echo began
i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo $i; sleep 0.2; done
echo "$i" > counted
"""


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    if not os.path.exists(PROGRAM) and "CI" not in os.environ:
        pytest.skip(f"needs {PROGRAM}: make tools")
    guest = linux_guest()
    for node in site.cluster.nodes:
        folder = "/etc/outrider/boot/debian"
        site.cluster.write(node, f"{folder}/kernel", guest.kernel.read_bytes())
        site.cluster.write(node, f"{folder}/initrd", guest.initrd.read_bytes())
        site.cluster.write(node, f"{folder}/append", APPEND)
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home()}/project"], user="ada")
    return site


def submit(site: OutriderSite, image: ServedImage, work: str, *options: str, more: str = "") -> str:
    text = f"#!/bin/sh\n{image.lines}{LINES}{more}\n{work}"
    return site.submit(
        text, f"-t{LIMIT_MIN}", f"--mem={MEMORY_MB}", f"--chdir={site.home()}/project", *options
    )


def test_script_runs_in_its_guest_and_brings_its_folder_back(machines: OutriderSite) -> None:
    site = machines
    image = site.image("root.qcow2", 4 * MB)
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home()}/project"], user="ada")
    site.cluster.write(HEAD, f"{site.home()}/project/given", "from the node\n")
    work = 'uname -r; cat given; echo "$SLURM_JOB_ID $1"; free -m | grep Mem; echo made > made; exit 7\n'

    job = submit(site, image, work, "-c1")
    done = ended(site, job, BOOT_S)
    said = site.cluster.read(HEAD, f"{site.home()}/project/slurm-{job}.out")

    assert done.state == "FAILED", said
    lines = said.split("\n")
    assert lines[0] != os.uname().release
    assert lines[1] == "from the node"
    assert lines[2].split() == [job]
    memory = int(re.split(r"\s+", lines[3])[1])
    assert MEMORY_MB * 0.6 < memory <= MEMORY_MB
    assert site.cluster.read(HEAD, f"{site.home()}/project/made") == "made\n"


def test_machine_is_suspended_for_a_reservation_and_goes_on_afterwards(machines: OutriderSite) -> None:
    site = machines
    image = site.image("counted.qcow2", 4 * MB)
    workspace(site, "needed", 8 * MB)
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home()}/project"], user="ada")
    firm = [fill(site, node) for node in ("n2", "n3", "n4")]
    job = submit(
        site, image, COUNTING.format(last=900), "-c1", "-wn1", more="#OUTRIDER preemptible: suspend\n"
    )
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "5")

    answer = reserve(site, "needed", "--nodes=1", "--start=now+130s", "-t15s")
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    within = ended(site, inside, BOOT_S)
    waiting = seen(site, job)
    wait_reservation(site, name, "ended")
    back = ended(site, job, BOOT_S)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert answer["result"] == "accepted", answer
    assert within.state == "COMPLETED", output(site, inside)
    assert within.nodes == "n1"
    assert waiting.state == "PENDING", waiting
    assert f"it has yielded to reservation {name}" in waiting.admin_comment
    assert back.state == "COMPLETED", said(site, job)
    assert back.nodes == "n1"
    assert said(site, job).split() == ["began", *(str(number) for number in range(1, 901))]
    assert site.cluster.read(HEAD, f"{site.home()}/project/counted") == "900\n"
    assert restarts(site, job) == "Restarts=1"
    # It had run for more than a minute: Slurm has been told what was left, in its minutes.
    assert LIMIT_MIN - 3 <= limit_min(site, job) < LIMIT_MIN


def said(site: OutriderSite, job: str) -> str:
    # It is there once the job has begun, a moment after Slurm calls it running.
    return site.cluster.run(HEAD, ["cat", f"{site.home()}/project/slurm-{job}.out"], check=False).stdout


def wait_until_said(site: OutriderSite, job: str, word: str) -> None:
    site.cluster.wait_for(
        f"{word} of job {job}", lambda: word in said(site, job).split(), BOOT_S, lambda: said(site, job)
    )


def limit_min(site: OutriderSite, job: str) -> int:
    """A job's limit, which Slurm shows as [HH:]MM:SS."""
    shown = site.cluster.run(HEAD, ["squeue", "-h", "--states=all", f"--jobs={job}", "-o%l"]).stdout.strip()
    hours, minutes, _ = (["0", *shown.split(":")])[-3:]
    return int(hours) * 60 + int(minutes)


def counted_to(site: OutriderSite, job: str, last: int) -> bool:
    return said(site, job).split() == ["began", *(str(number) for number in range(1, last + 1))]


def kept_on(site: OutriderSite, node: str) -> list[str]:
    """What there is of machines on a node: their processes, and what is in their folders."""
    uid = site.cluster.people.of("ada").uid
    command = f"pgrep -u {uid} -l qemu; ls -A /var/tmp/outrider-{uid} 2>/dev/null"
    return site.cluster.run(node, ["/bin/sh", "-c", command], check=False).stdout.split()


def test_four_nodes_full_of_machines_make_way_for_three_and_all_end_right(machines: OutriderSite) -> None:
    site = machines
    image, last = site.image("full.qcow2", 4 * MB), 500
    workspace(site, "flock", 8 * MB)
    jobs = []
    for node in site.cluster.nodes:
        place = f"{site.home()}/project/{node}"
        site.cluster.run(HEAD, ["mkdir", "-p", place], user="ada")
        more = "#OUTRIDER preemptible: suspend\n"
        work = f"cd {place}\n{COUNTING.format(last=last)}"
        jobs.append(submit(site, image, work, "-c1", f"-w{node}", more=more))
    for job in jobs:
        wait_for(site, job, "RUNNING")
        wait_until_said(site, job, "3")

    answer = reserve(site, "flock", "--nodes=3", "--start=now+75s", "-t15s")
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", "-N3", f"--reservation={name}")
    within = ended(site, inside, BOOT_S)
    wait_reservation(site, name, "ended")
    over = [ended(site, job, 2 * BOOT_S) for job in jobs]

    assert answer["result"] == "accepted", answer
    assert within.state == "COMPLETED", output(site, inside)
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert [each.state for each in over] == ["COMPLETED"] * 4, [said(site, job)[-300:] for job in jobs]
    assert all(counted_to(site, job, last) for job in jobs)
    assert sorted(restarts(site, job) for job in jobs) == ["Restarts=0", *["Restarts=1"] * 3]
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * 4


def test_service_killed_while_a_machine_is_saved_finds_it_again(machines: OutriderSite) -> None:
    site = machines
    image, last = site.image("killed.qcow2", 4 * MB), 500
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
    image, last = site.image("paused.qcow2", 4 * MB), 150
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


def test_console_shows_what_the_guest_has_said(machines: OutriderSite) -> None:
    site = machines
    image = site.image("said.qcow2", 4 * MB)
    job = submit(
        site, image, "echo hello from within >/dev/console\n" + COUNTING.format(last=9000), "-c1", "-wn1"
    )
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "3")

    told = site.outrider("console", job, check=False)
    foreign = site.outrider("console", job, user="bob", check=False)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    ended(site, job)

    assert "hello from within" in told.stdout, told.stderr
    assert "hello from within" not in foreign.stdout
    assert foreign.returncode != 0
