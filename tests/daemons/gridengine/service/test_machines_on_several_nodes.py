"""Jobs of a real Grid Engine have a machine on each of their nodes, and a network between these alone."""

from __future__ import annotations

import json

import pytest

from testbed.batchcluster import HEAD
from testbed.commands import CommandFailed
from testbed.gridenginesite import GridEngineSite
from testbed.linux_guest import linux_guest
from tests.daemons.gridengine.service.jobs import MB, cancel, ended, report
from tests.daemons.gridengine.service.test_jobs_in_machines import (
    BOOT_S,
    kept_on,
    machines,
    said,
    submit_machine,
    wait_until_said,
)

__all__ = ["machines"]
TWO_NODES = ("-pe", "each4", "8")
MEMORY = ("-l", "h_rt=900,mem_free=160M")
"""What the guest with OpenSSH needs."""
# vm2 adds its number to what comes, and sends that back.
AROUND = r"""
hostname
cat $OUTRIDER_HOSTS
echo "$NSLOTS slots, ${PE_HOSTFILE-no file of nodes}"
ssh vm2 'value=$(nc -l -p 7000); until echo $((value + 2)) | nc vm1 7000 2>/dev/null; do sleep 0.2; done' &
(until echo 40 | nc vm2 7000 2>/dev/null; do sleep 0.2; done) &
echo "sum $(nc -l -p 7000)"
wait
ssh vm2 "hostname; nproc; cd $PWD && cat given"
exit 7
"""


@pytest.fixture(scope="module")
def clusters(machines: GridEngineSite) -> GridEngineSite:
    """The site with an environment whose jobs have machines on all nodes, and a kernel with OpenSSH."""
    cluster, guest = machines.cluster, linux_guest()
    cluster.run(HEAD, ["qconf", "-mattr", "pe", "control_slaves", "TRUE", "each4"])
    cluster.write(HEAD, "/etc/outrider/jsv.json", json.dumps({"cluster_environments": ["each4"]}))
    for node in cluster.nodes:
        for name in ("kernel", "append"):
            source, target = f"/etc/outrider/boot/debian/{name}", f"/etc/outrider/boot/ssh/{name}"
            cluster.run(node, ["install", "-D", "-m", "644", source, target])
        cluster.write(node, "/etc/outrider/boot/ssh/initrd", guest.with_ssh.read_bytes())
    return machines


def submitted(site: GridEngineSite, name: str, work: str, more: str = "") -> str:
    image = site.image(f"{name}.qcow2", 4 * MB)
    return submit_machine(site, image, work, *TWO_NODES, *MEMORY, more=more, boot="ssh")


def wait_until_nothing_is_kept(site: GridEngineSite, job: str) -> None:
    site.cluster.wait_for(
        "no machine",
        lambda: all(kept_on(site, node) == [] for node in site.cluster.nodes),
        logs=lambda: f"{[kept_on(site, node) for node in site.cluster.nodes]}\n{report(site, job)}",
    )


@pytest.mark.long
def test_program_runs_over_the_machines_of_a_job(clusters: GridEngineSite) -> None:
    site = clusters
    site.cluster.write(HEAD, f"{site.home()}/project/given", "from the node\n")
    job = submitted(site, "around", AROUND)
    done = ended(site, job, BOOT_S)

    assert done["exit_status"] == "7", f"{said(site, job)}\n{report(site, job)}"
    words = [line for line in said(site, job).splitlines() if "known hosts" not in line]
    assert words == [
        "vm1", "vm1", "vm2", "8 slots, no file of nodes", "sum 42", "vm2", "4", "from the node",
    ]  # fmt: skip
    assert [kept_on(site, node) for node in site.cluster.nodes] == [[]] * 4


@pytest.mark.long
def test_job_that_is_deleted_leaves_none_of_its_machines(clusters: GridEngineSite) -> None:
    site = clusters
    job = submitted(site, "deleted", "echo began\nsleep 9000\n")
    wait_until_said(site, job, "began")
    kept = [node for node in site.cluster.nodes if f"job-{job}" in kept_on(site, node)]
    refused = site.outrider("suspend", job, check=False)
    shown = json.loads(site.told("show", job, "--json"))["machines"]

    cancel(site, job)
    ended(site, job)
    wait_until_nothing_is_kept(site, job)

    assert len(kept) == 2
    assert refused.returncode != 0
    assert [(each["name"], each["node"] in kept) for each in shown] == [("vm1", True), ("vm2", True)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("[q]emu", "machine job-{job}-vm2 is lost"),
        ("[l]ib/outrider/machine", "the step of the job's other machines has ended"),
    ],
)
def test_job_that_has_lost_a_machine_or_who_keeps_it_is_over(
    clusters: GridEngineSite, victim: str, words: str
) -> None:
    site = clusters
    job = submitted(site, f"lost{len(victim)}", "echo began\nsleep 9000\n")
    wait_until_said(site, job, "began")
    shown = json.loads(site.told("show", job, "--json"))["machines"]
    second = next(each["node"] for each in shown if each["name"] == "vm2")
    uid = site.cluster.people.of("ada").uid
    site.cluster.run(second, ["/bin/sh", "-c", f"kill -9 $(pgrep -u {uid} -f '{victim}')"])
    done = ended(site, job, BOOT_S)
    wait_until_nothing_is_kept(site, job)

    assert done["exit_status"] == "125", report(site, job)
    assert words.format(job=job) in said(site, job)


def test_machines_on_several_nodes_cannot_be_suspended_and_are_refused(clusters: GridEngineSite) -> None:
    with pytest.raises(CommandFailed, match="machines on several nodes cannot be suspended here"):
        submitted(clusters, "saved", "true\n", more=";preemptible=suspend")
