"""Jobs of a real Slurm have a machine on each of their nodes, and a network between these alone."""

from __future__ import annotations

import os

import pytest

from outrider.metadata.notation.hostlists import expand
from testbed.linux_guest import linux_guest
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.amount import LONG
from tests.daemons.reservations import reserve, workspace
from tests.daemons.slurm.service.failing import fill
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    MB,
    kept_on,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, restarts, script, seen, wait_for, wait_in_slurm
from tests.daemons.slurm.service.switched import kill, running_on, steps_of, switched

NODES = 4
AROUND_COUNT = NODES if os.environ.get(LONG) else 2
"""How many machines are in the ring."""
MEMORY = "--mem=160"
"""What the guest with OpenSSH needs."""
# The stand-in for an MPI program: each instance adds its number to what came, and sends that on.
RING = r"""#!/bin/sh
# ring.sh NUMBER NEXT
value=$(nc -l -p 7000)
until echo $((value + $1)) | nc "$2" 7000 2>/dev/null; do sleep 0.2; done
"""
# Instance 1 begins the others by ssh, sends 0 around, and is told the sum by the last.
AROUND = r"""
for number in $(seq 2 COUNT); do
    next=vm$((number % COUNT + 1))
    ssh "vm$number" "cd $PWD && sh ring.sh $number $next" &
done
(until echo 0 | nc vm2 7000 2>/dev/null; do sleep 0.2; done) &
echo "sum $(nc -l -p 7000)"
wait
"""

INSIDE = """uname -n; df /scratch | grep -c /scratch; begun=$(date +%s)
dd if=/dev/vda of=/dev/null bs=1M count=4 2>/dev/null; echo $(($(date +%s) - begun))"""


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with kernels for machines on each node, one whose guests can be reached by ssh."""
    with_kernels(site)
    guest = linux_guest()
    for node in site.cluster.nodes:
        for name in ("kernel", "append"):
            source, target = f"/etc/outrider/boot/debian/{name}", f"/etc/outrider/boot/ssh/{name}"
            site.cluster.run(node, ["install", "-D", "-m", "644", source, target])
        site.cluster.write(node, "/etc/outrider/boot/ssh/initrd", guest.with_ssh.read_bytes())
    site.cluster.write(HEAD, f"{site.home()}/project/ring.sh", RING)
    return site


@pytest.mark.long
def test_program_runs_around_the_ring_of_a_jobs_machines(machines: OutriderSite) -> None:
    site = machines
    work = "hostname\ncat $OUTRIDER_HOSTS\nping -c1 -w5 vm2 >/dev/null && echo reached\n"
    work += AROUND.replace("COUNT", str(AROUND_COUNT))
    job = submit(site, site.image("ring.qcow2", 4 * MB), work, "-c1", f"-N{AROUND_COUNT}", MEMORY, boot="ssh")
    done = ended(site, job, BOOT_S)

    assert done.state == "COMPLETED", said(site, job)
    hosts = [f"vm{number}" for number in range(1, AROUND_COUNT + 1)]
    # Each but the first has added its own number.
    total = str(sum(range(2, AROUND_COUNT + 1)))
    assert said(site, job).split() == ["vm1", *hosts, "reached", "sum", total]
    assert {node: kept_on(site, node) for node in site.cluster.nodes} == {
        node: [] for node in site.cluster.nodes
    }


@pytest.mark.long
def test_other_jobs_machines_on_the_same_nodes_cannot_be_reached(machines: OutriderSite) -> None:
    site = machines
    image = site.image("apart.qcow2", 4 * MB)
    listening = "echo began\nwhile :; do echo first | nc -l -p 7000; done\n"
    first = submit(site, image, listening, "-c1", "-wn1,n2,n3", MEMORY, boot="ssh")
    wait_until_said(site, first, "began")
    # Both have 10.211.0.1, each its own; 10.211.0.3 is of the first job alone.
    probe = (
        "nc -w3 vm1 7000 </dev/null 2>&1 || echo closed\nping -c2 -w5 vm2 >/dev/null && echo own\n"
        "ping -c2 -w5 10.211.0.3 >/dev/null || echo apart\n"
    )
    second = submit(site, image, probe, "-c1", "-wn1,n2", MEMORY, boot="ssh")
    done = ended(site, second, BOOT_S)
    site.cluster.run("n2", ["/bin/sh", "-c", f"kill -9 $(pgrep -u {site.cluster.people.of('ada').uid} qemu)"])
    lost = ended(site, first)

    assert done.state == "COMPLETED", said(site, second)
    assert [line for line in said(site, second).splitlines() if ":" not in line] == ["closed", "own", "apart"]
    # A machine that is gone ends its job, which says so.
    assert lost.state == "FAILED"
    assert "n2: machine job-" in said(site, first)
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * NODES


@pytest.mark.long
def test_machines_without_a_script_are_there_for_their_user(machines: OutriderSite) -> None:
    site = machines
    more = "#OUTRIDER lease: interactive\n#OUTRIDER scratch: 16MiB\n#OUTRIDER disk-rate: 1MB\n"
    more += "#OUTRIDER network-rate: 1MB\n"
    image = site.image("inside.qcow2", 4 * MB)
    job = submit(site, image, "echo never", "-c1", "-wn1,n2", MEMORY, more=more, boot="ssh")
    wait_until_said(site, job, "ready:")
    entered = site.outrider("ssh", job, "vm2", INSIDE, check=False)
    foreign = site.outrider("ssh", job, "2", "hostname", user="bob", check=False)
    missing = site.outrider("ssh", job, "vm3", check=False)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    ended(site, job)

    assert entered.returncode == 0, entered.stderr
    name, count, lasted_s = entered.stdout.splitlines()
    assert (name, count) == ("vm2", "1")
    # 4 MB at 1 MB a second; QEMU lets a tenth of a second's go at once.
    assert int(lasted_s) >= 3
    assert "never" not in said(site, job)
    assert foreign.returncode != 0
    assert "it has 2" in missing.stderr


# Connections that last: each machine adds 1 to what comes and passes it on.
PASSING = r"""#!/bin/sh
# pass.sh NEXT
sleep 100000 | nc -l -p 7000 | while read -r value; do echo $((value + 1)); done |
    until nc "$1" 7000 2>/dev/null; do sleep 0.2; done
"""
TURNING = r"""
for number in $(seq 2 COUNT); do
    next=vm$((number % COUNT + 1))
    ssh "vm$number" "cd $PWD && sh pass.sh $next" &
done
mkfifo /tmp/in
sleep 100000 | nc -l -p 7000 >/tmp/in &
exec 7</tmp/in
{
    echo 1
    while read -r value <&7; do
        echo "$value" >&2
        [ "$value" -lt LAST ] || break
        echo $((value + 1))
        sleep 0.3
    done
} | until nc vm2 7000 2>/dev/null; do sleep 0.2; done
echo "over on $(hostname)"
"""


def turning(count: int, last: int) -> str:
    return TURNING.replace("COUNT", str(count)).replace("LAST", str(last))


def turned_to(site: OutriderSite, job: str) -> list[int]:
    return [int(line) for line in said(site, job).splitlines() if line.isdigit()]


@pytest.mark.repeats(
    "tests/daemons/machines/test_machines_together.py"
    "::test_machines_go_on_wherever_the_batch_system_puts_their_numbers"
)
def test_program_goes_on_when_all_machines_were_suspended_and_have_moved(machines: OutriderSite) -> None:
    site, last = machines, 400 if os.environ.get(LONG) else 160
    site.cluster.write(HEAD, f"{site.home()}/project/pass.sh", PASSING)
    image = site.image("turning.qcow2", 4 * MB)
    job = submit(site, image, turning(2, last), "-c1", "-N2", MEMORY, boot="ssh")
    wait_for(site, job, "RUNNING")
    sources = expand(seen(site, job).nodes)
    targets = [node for node in site.cluster.nodes if node not in sources]
    wait_until_said(site, job, "20")

    told = site.outrider("migrate", job).stdout
    back = ended(site, job, 2 * BOOT_S)

    assert f"from {', '.join(sources)} to {', '.join(targets)}" in told
    assert back.state == "COMPLETED", f"{said(site, job)}\n{site.logs()}"
    assert list(expand(back.nodes)) == targets
    assert turned_to(site, job) == list(range(2, last + 2, 2)), said(site, job)
    assert restarts(site, job) == "Restarts=1"
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * NODES


def emptied(site: OutriderSite, job: str, node: str) -> tuple[str, dict[str, object], list[str]]:
    """A job's machines leave a drained node, and the service is killed when it has begun with that: what was
    told, the switch when it is over, and on which nodes its machines are then."""
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test"])
    count, is_killed, told = len(expand(seen(site, job).nodes)), False, ""

    def strike(found: dict[str, object]) -> None:
        nonlocal is_killed
        if not is_killed and any(each["state"] == "runs" for each in steps_of(found)):
            is_killed = True
            kill(site, "")

    def is_begun() -> bool:
        """The service knows that the node is drained when it has looked."""
        nonlocal told
        done = site.outrider("nodes", "drain", node, "--live", user="root", check=False)
        told = done.stdout + done.stderr
        return done.returncode == 0

    try:
        site.cluster.wait_for("the drain", is_begun, BOOT_S, lambda: f"{told}\n{site.logs()}")
        found = switched(site, [job], strike, most=count)
        # The batch system says that it runs, and then its machines begin one after the other.
        site.cluster.wait_for("all machines", lambda: len(running_on(site, job)) == count, BOOT_S, site.logs)
        places = running_on(site, job)
    finally:
        site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    assert is_killed, f"{told}{found}"
    return told, found, places


@pytest.mark.repeats(
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py"
    "::test_drained_node_is_left_by_its_machines_and_takes_no_other"
)
def test_job_of_two_nodes_leaves_a_drained_one_and_goes_on_as_a_whole(machines: OutriderSite) -> None:
    site, last = machines, 400 if os.environ.get(LONG) else 110
    site.cluster.write(HEAD, f"{site.home()}/project/pass.sh", PASSING)
    image = site.image("emptied.qcow2", 4 * MB)
    job = submit(site, image, turning(2, last), "-c1", "-N2", MEMORY, boot="ssh")
    wait_for(site, job, "RUNNING")
    first, second = expand(seen(site, job).nodes)
    wait_until_said(site, job, "10")

    told, found, places = emptied(site, job, second)
    kept = kept_on(site, second)
    back = ended(site, job, 2 * BOOT_S)

    assert f"migrate job {job} {first},{second} to {first}," in told
    assert found["state"] == "done", found
    assert len(places) == 2
    assert first in places
    assert second not in places
    assert kept == []
    assert (back.state, sorted(expand(back.nodes))) == ("COMPLETED", places), said(site, job)
    assert turned_to(site, job) == list(range(2, last + 2, 2)), said(site, job)
    assert restarts(site, job) == "Restarts=1"


@pytest.mark.long
def test_machines_of_a_job_change_their_order_and_the_first_takes_anothers_place(
    machines: OutriderSite,
) -> None:
    """On all nodes but one, so that a node that is left is the only one that is free then."""
    site, last = machines, 1_500
    site.cluster.write(HEAD, f"{site.home()}/project/pass.sh", PASSING)
    image = site.image("ordered.qcow2", 4 * MB)
    job = submit(site, image, turning(3, last), "-c1", f"-N{NODES - 1}", MEMORY, boot="ssh")
    wait_for(site, job, "RUNNING")
    nodes = site.cluster.nodes
    (free,) = {*nodes} - {*expand(seen(site, job).nodes)}
    assert free == nodes[-1]
    wait_until_said(site, job, "30")

    second, found, places = emptied(site, job, nodes[1])
    entered = site.outrider("ssh", job, "vm2", "uname -n", check=False)
    first, found_then, places_then = emptied(site, job, nodes[0])
    back = ended(site, job, 4 * BOOT_S)

    assert f"{nodes[0]},{nodes[1]},{nodes[2]} to {nodes[0]},{nodes[3]},{nodes[2]}" in second
    assert (found["state"], places) == ("done", [nodes[0], nodes[2], nodes[3]])
    assert entered.stdout.strip() == "vm2", entered.stderr
    assert (found_then["state"], places_then) == ("done", list(nodes[1:])), f"{first}{found_then}"
    assert back.state == "COMPLETED", said(site, job)
    assert turned_to(site, job) == list(range(3, last + 3, 3)), said(site, job)
    assert restarts(site, job) == "Restarts=2"


@pytest.mark.long
def test_machines_of_two_nodes_make_way_for_a_reservation_and_go_on_together(machines: OutriderSite) -> None:
    site, last = machines, 900
    site.cluster.write(HEAD, f"{site.home()}/project/pass.sh", PASSING)
    image = site.image("yielding.qcow2", 4 * MB)
    workspace(site, "wanted", 8 * MB)
    more = "#OUTRIDER preemptible: suspend\n"
    job = submit(site, image, turning(2, last), "-c1", "-wn1,n2", MEMORY, more=more, boot="ssh")
    firm = [fill(site, node) for node in ("n3", "n4")]
    wait_for(site, job, "RUNNING")
    wait_until_said(site, job, "20")

    answer = reserve(site, "wanted", "--nodes=1", "--start=now+75s", "-t15s")
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    within = ended(site, inside, BOOT_S)
    back = ended(site, job, 2 * BOOT_S)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert answer["result"] == "accepted", answer
    assert within.state == "COMPLETED"
    assert (back.state, back.nodes) == ("COMPLETED", "n[1-2]"), f"{said(site, job)}\n{site.logs()}"
    assert turned_to(site, job) == list(range(2, last + 2, 2)), said(site, job)
    assert restarts(site, job) == "Restarts=1"
