"""Jobs of a real Grid Engine run in virtual machines on their nodes, make way for reservations, and go on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest

from cachemgr.machines.keeper import PROGRAM
from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from testbed.gridenginesite import GridEngineSite
from testbed.linux_guest import append, linux_guest
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    fill,
    report,
    shown,
    submit,
    wait_advance,
    wait_shown,
    wait_state,
)
from tests.daemons.reservations import reserve, wait_reservation, workspace
from tests.daemons.reservations import shown as reservation_shown

MEMORY_MB = 96
BOOT_S = 240
LIMIT_S = 900
IN_OURS = ("-l", "outrider_reservation=TRUE")
WHOLE = ("-pe", "each4", "4")
# A number in two seconds: each starts a program in a guest that may be translated.
COUNTING = """
echo began
i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo $i; sleep 2; done
echo "$i" > counted
"""


@pytest.fixture(scope="module")
def machines(site: GridEngineSite) -> GridEngineSite:
    """The site with a kernel for machines on each node."""
    if not os.path.exists(PROGRAM) and "CI" not in os.environ:
        pytest.skip(f"needs {PROGRAM}: make tools")
    guest = linux_guest()
    for node in site.cluster.nodes:
        folder = "/etc/outrider/boot/debian"
        site.cluster.write(node, f"{folder}/kernel", guest.kernel.read_bytes())
        site.cluster.write(node, f"{folder}/initrd", guest.initrd.read_bytes())
        site.cluster.write(node, f"{folder}/append", append())
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home()}/project"], user="ada")
    return site


def submit_machine(
    site: GridEngineSite, image: ServedImage, work: str, *options: str, more: str = "", boot: str = "debian"
) -> str:
    said = f"OUTRIDER=image={image.uri};digest={image.digest};run=vm;boot={boot}{more}"
    folder = f"{site.home()}/project"
    asked = f"h_rt={LIMIT_S},mem_free={MEMORY_MB}M"
    place = ("-wd", folder, "-o", f"{folder}/out-$JOB_ID", "-j", "y")
    return site.submit(f"#!/bin/sh\n{work}", "-ac", said, "-l", asked, *place, *options)


def said(site: GridEngineSite, job: str) -> str:
    return site.cluster.run(HEAD, ["cat", f"{site.home()}/project/out-{job}"], check=False).stdout


def wait_until_said(site: GridEngineSite, job: str, word: str) -> None:
    site.cluster.wait_for(
        f"{word} of job {job}",
        lambda: word in said(site, job).split(),
        BOOT_S,
        lambda: f"{said(site, job)}\n{report(site, job)}",
    )


def kept_on(site: GridEngineSite, node: str) -> list[str]:
    """What there is of machines on a node: their processes, and what is in their folders."""
    uid = site.cluster.people.of("ada").uid
    command = f"pgrep -u {uid} -l qemu; ls -A /var/tmp/outrider-{uid} 2>/dev/null"
    return site.cluster.run(node, ["/bin/sh", "-c", command], check=False).stdout.split()


def counted_to(site: GridEngineSite, job: str, last: int) -> bool:
    return said(site, job).split() == ["began", *(str(number) for number in range(1, last + 1))]


def limit_s(site: GridEngineSite, job: str) -> int:
    """The limit of a job that Grid Engine knows."""
    found = re.search(r"h_rt=(\d+)", shown(site, job))
    assert found is not None, shown(site, job)
    return int(found[1])


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_jobs_in_machines.py"
    "::test_script_runs_in_its_guest_and_brings_its_folder_back"
)
def test_script_runs_in_its_guest_and_brings_its_folder_back(machines: GridEngineSite) -> None:
    site = machines
    image = site.image("root.qcow2", 4 * MB)
    site.cluster.write(HEAD, f"{site.home()}/project/given", "from the node\n")
    work = 'uname -r; cat given; echo "$JOB_ID $1"; free -m | grep Mem; echo made > made; exit 7\n'

    job = submit_machine(site, image, work)
    done = ended(site, job, BOOT_S)
    lines = said(site, job).split("\n")

    assert done["exit_status"] == "7", said(site, job)
    assert lines[0] != os.uname().release
    assert lines[1] == "from the node"
    assert lines[2].split() == [job]
    memory = int(re.split(r"\s+", lines[3])[1])
    assert MEMORY_MB * 0.6 < memory <= MEMORY_MB
    assert site.cluster.read(HEAD, f"{site.home()}/project/made") == "made\n"


@pytest.mark.long
def test_machine_is_suspended_for_a_reservation_and_goes_on_afterwards(machines: GridEngineSite) -> None:
    site, last = machines, 75
    image = site.image("counted.qcow2", 4 * MB)
    workspace(site, "needed", 8 * MB)
    first = site.cluster.nodes[0]
    firm = [fill(site, node) for node in site.cluster.nodes[1:]]
    job = submit_machine(site, image, COUNTING.format(last=last), more=";preemptible=suspend")
    wait_until_said(site, job, "5")

    answer = reserve(site, "needed", "--nodes=1", "--start=now+100s", "-t20s")
    name = str(answer["name"])
    number = wait_advance(site, name)
    inside = submit(site, None, "-ar", number, *IN_OURS, *WHOLE, "-l", "h_rt=10")
    within = ended(site, inside, BOOT_S)
    held, kept = site.cluster.job_state(job), kept_on(site, first)
    wait_reservation(site, name, "ended")
    site.cluster.wait_for(
        "the job to run", lambda: site.cluster.job_state(job) == "Rr", BOOT_S, lambda: report(site, job)
    )
    resumed_s = limit_s(site, job)
    back = ended(site, job, BOOT_S)
    runs = site.cluster.accounts(job)
    cancel(site, *firm)

    assert (answer["result"], answer["nodes"]) == ("accepted", first), answer
    assert (within["exit_status"], within["hostname"]) == ("0", first), report(site, inside)
    receipt = reservation_shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    # It may be released already, to its node, which is another's until the reservation ends.
    assert held in ("hRq", "Rq")
    assert kept == [f"job-{job}"]
    assert (back["exit_status"], back["hostname"]) == ("0", first), said(site, job)
    assert counted_to(site, job, last), said(site, job)
    assert site.cluster.read(HEAD, f"{site.home()}/project/counted") == f"{last}\n"
    # A record for each run; migrating is 24 there.
    assert [run["failed"].split()[0] for run in runs] == ["24", "0"]
    ran_s = float(runs[0]["ru_wallclock"].rstrip("s"))
    # Charged until it was told to save itself, and not for the saving.
    assert 0 <= resumed_s - (LIMIT_S - ran_s) <= 60
    assert kept_on(site, first) == []


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_jobs_in_machines.py::test_owner_suspends_a_machine_and_lets_it_go_on"
)
def test_owner_suspends_a_machine_and_lets_it_go_on(machines: GridEngineSite) -> None:
    site, last = machines, 15
    image = site.image("paused.qcow2", 4 * MB)
    node = site.cluster.nodes[0]
    job = submit_machine(site, image, COUNTING.format(last=last), "-q", f"all.q@{node}")
    wait_until_said(site, job, "3")

    foreign = site.outrider("suspend", job, user="bob", check=False)
    site.outrider("suspend", job)
    wait_state(site, job, "hRq", BOOT_S)
    kept = kept_on(site, node)
    between = ended(site, submit(site, None, *WHOLE, "-q", f"all.q@{node}"))
    wait_shown(site, job, "is suspended")
    still = site.cluster.job_state(job)
    site.outrider("resume", job)
    back = ended(site, job, BOOT_S)

    assert foreign.returncode != 0
    assert kept == [f"job-{job}"]
    assert (between["exit_status"], still) == ("0", "hRq")
    assert (back["exit_status"], back["hostname"]) == ("0", node), said(site, job)
    assert counted_to(site, job, last), said(site, job)
    assert kept_on(site, node) == []


# In the place of what saves a machine: the first time it does nothing.
DEAF = """#!/bin/sh
if [ ! -e /tmp/heard ]; then : >/tmp/heard; exit 0; fi
exec /usr/lib/outrider/gridengine/suspend.real "$@"
"""


@pytest.mark.long
def test_machine_that_has_not_heard_that_it_is_suspended_is_told_again(machines: GridEngineSite) -> None:
    """Grid Engine forgets it of a job that has only just begun, and calls it suspended all the same."""
    site, last = machines, 40
    image = site.image("early.qcow2", 4 * MB)
    node, program = site.cluster.nodes[1], "/usr/lib/outrider/gridengine/suspend"
    site.cluster.run(node, ["mv", program, f"{program}.real"])
    site.cluster.write(node, program, DEAF, mode=0o755)
    try:
        job = submit_machine(site, image, COUNTING.format(last=last), "-q", f"all.q@{node}")
        wait_until_said(site, job, "3")
        site.outrider("suspend", job)
        wait_state(site, job, "hs", BOOT_S)
        wait_until_said(site, job, "8")
        wait_state(site, job, "hRq", BOOT_S)
    finally:
        site.cluster.run(node, ["mv", f"{program}.real", program])
    kept = kept_on(site, node)
    wait_shown(site, job, "is suspended")
    site.outrider("resume", job)
    back = ended(site, job, BOOT_S)

    assert kept == [f"job-{job}"]
    assert (back["exit_status"], back["hostname"]) == ("0", node), said(site, job)
    assert counted_to(site, job, last), said(site, job)
    assert kept_on(site, node) == []


@pytest.mark.long
def test_job_that_is_deleted_leaves_no_machine(machines: GridEngineSite) -> None:
    site = machines
    image = site.image("deleted.qcow2", 4 * MB)
    node = site.cluster.nodes[0]
    job = submit_machine(site, image, COUNTING.format(last=9000), "-q", f"all.q@{node}")
    wait_until_said(site, job, "3")
    before = kept_on(site, node)

    cancel(site, job)
    ended(site, job)
    site.cluster.wait_for(
        "no machine", lambda: kept_on(site, node) == [], logs=lambda: str(kept_on(site, node))
    )

    assert f"job-{job}" in before


@pytest.mark.long
def test_job_that_is_deleted_while_it_is_suspended_leaves_nothing(machines: GridEngineSite) -> None:
    site = machines
    image = site.image("dropped.qcow2", 4 * MB)
    node = site.cluster.nodes[0]
    job = submit_machine(site, image, COUNTING.format(last=9000), "-q", f"all.q@{node}")
    wait_until_said(site, job, "3")
    site.outrider("suspend", job)
    wait_state(site, job, "hRq", BOOT_S)
    kept = kept_on(site, node)

    cancel(site, job)
    site.cluster.wait_for(
        "no machine",
        lambda: kept_on(site, node) == [],
        BOOT_S,
        lambda: f"{kept_on(site, node)}\n{site.logs()}",
    )

    assert kept == [f"job-{job}"]
