"""Preemptible jobs on a real Slurm make way for reservations, and come back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.commands import CommandFailed
from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.daemons.slurm.service.failing import fill, kill_service
from tests.daemons.slurm.service.jobs import ended, output, restarts, script, seen, wait_for, wait_in_slurm

MB = 1_000_000
# Says when it is told to go. It works until it has been sent back once, or until there is a file `enough`.
WORK = """#!/bin/sh
{lines}
#OUTRIDER preemptible: requeue
{more}
trap 'echo told >> "$HOME/told-$SLURM_JOB_ID"' USR1
echo "run ${{SLURM_RESTART_COUNT:-0}} on $SLURMD_NODENAME"
while [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] && [ ! -e "$HOME/enough" ]; do sleep 1 & wait $!; done
head -c3 "$OUTRIDER_IMAGE" >/dev/null && echo result >> "$HOME/result-$SLURM_JOB_ID"
"""
TOLD = "#OUTRIDER checkpoint: USR1\n#OUTRIDER grace: 10s"


def work(site: OutriderSite, image: ServedImage, node: str, more: str = TOLD) -> str:
    """A preemptible job that runs on a node of its own for longer than the test."""
    site.cluster.run(HEAD, ["rm", "-f", f"{site.home()}/enough"])
    job = site.submit(
        WORK.format(lines=image.lines, more=more), "-t30", f"-w{node}", "--exclusive", "--open-mode=append"
    )
    wait_for(site, job, "RUNNING")
    return job


def written(site: OutriderSite, name: str) -> list[str]:
    """The lines of a file in ada's home; none if there is no such file."""
    done = site.cluster.run(HEAD, ["cat", f"{site.home()}/{name}"], check=False)
    return done.stdout.split()


def test_youngest_job_makes_way_in_time_and_comes_back(site: OutriderSite) -> None:
    image = site.image("worked.qcow2", 5 * MB)
    reserved = workspace(site, "needed", 8 * MB)
    firm = [fill(site, node) for node in ("n3", "n4")]
    older, younger = work(site, image, "n1"), work(site, image, "n2")

    answer = reserve(site, "needed", "--nodes=1", "--start=now+60s", "-t15s")
    name, start_s = str(answer["name"]), answer["start_s"]
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    site.cluster.wait_for(
        "words at the job", lambda: f"yields to reservation {name}" in seen(site, younger).admin_comment
    )
    told = site.outrider("show", younger).stdout
    within = ended(site, inside)
    wait_reservation(site, name, "ended")
    back = ended(site, younger)
    site.cluster.run(HEAD, ["touch", f"{site.home()}/enough"], user="ada")
    other = ended(site, older)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert answer["result"] == "accepted"
    assert answer["nodes"] == "n2"
    assert f"it yields to reservation {name}" in told
    assert within.state == "COMPLETED", output(site, inside)
    assert within.nodes == "n2"
    assert isinstance(start_s, int)
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert receipt["transferred_bytes"] == reserved.size_bytes
    assert back.state == other.state == "COMPLETED", output(site, younger)
    assert written(site, f"told-{younger}") == ["told"]
    assert written(site, f"result-{younger}") == written(site, f"result-{older}") == ["result"]
    assert restarts(site, younger) == "Restarts=1"
    assert written(site, f"told-{older}") == []
    assert restarts(site, older) == "Restarts=0"
    assert f"reservation is endangered reservation={name} " not in site.logs()


@pytest.mark.long
def test_service_killed_in_the_grace_time_requeues_the_job_in_time(site: OutriderSite) -> None:
    image = site.image("worked-on.qcow2", 5 * MB)
    workspace(site, "urgent", 5 * MB)
    firm = [fill(site, node) for node in ("n2", "n3", "n4")]
    job = work(site, image, "n1")

    name = str(reserve(site, "urgent", "--nodes=1", "--start=now+60s", "-t15s")["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    site.cluster.wait_for("the signal", lambda: written(site, f"told-{job}") != [], logs=site.logs)
    kill_service(site)
    site.start_service()
    within = ended(site, inside)
    wait_reservation(site, name, "ended")
    back = ended(site, job)
    for each in firm:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert within.state == "COMPLETED", output(site, inside)
    assert within.nodes == "n1"
    assert back.state == "COMPLETED", output(site, job)
    # It may have been killed before it could write down that the signal was sent: then that comes twice.
    assert set(written(site, f"told-{job}")) == {"told"}
    assert written(site, f"result-{job}") == ["result"]
    assert restarts(site, job) == "Restarts=1"


@pytest.mark.parametrize(
    ("more", "options", "words"),
    [
        ("#OUTRIDER preemptible: suspend", (), "virtual machine"),
        ("#OUTRIDER run: vm", (), "--mem"),
        ("#OUTRIDER grace: 5m", (), "grace has no effect without preemptible"),
        ("#OUTRIDER preemptible: requeue", ("--no-requeue",), "contradict"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_submitted(
    site: OutriderSite, more: str, options: tuple[str, ...], words: str
) -> None:
    image = site.image("meant.qcow2", 1 * MB)

    with pytest.raises(CommandFailed, match=words):
        site.submit(f"#!/bin/sh\n{image.lines}\n{more}\ntrue\n", "-t1", *options)


def test_grace_beyond_the_sites_bound_is_refused_and_said(site: OutriderSite) -> None:
    image = site.image("patient.qcow2", 1 * MB)
    lines = f"{image.lines}\n#OUTRIDER preemptible: requeue\n{TOLD.replace('10s', '1h')}"

    job = site.submit(f"#!/bin/sh\n{lines}\ntrue\n", "-t1")
    site.cluster.wait_for(
        "words at the job", lambda: "jobs.most_grace" in seen(site, job).admin_comment, logs=site.logs
    )

    assert seen(site, job).state == "PENDING"
    site.cluster.run(HEAD, ["scancel", job], user="ada")
