"""Preemptible jobs on a real Grid Engine make way for reservations, and come back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from testbed.commands import CommandFailed
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    fill,
    output,
    report,
    submit,
    wait_advance,
    wait_output,
    wait_shown,
)
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace

IN_OURS = ("-l", "outrider_reservation=TRUE")
WHOLE = ("-pe", "each4", "4")
LONGEST_S = 180
# It works until it has been sent back once, or until there is a file `enough`.
WORK = """echo "run $RESTARTED"
while [ "$RESTARTED" = 0 ] && [ ! -e "$HOME/enough" ]; do sleep 1; done
echo result >>"$HOME/result-$JOB_ID"
"""


def work(site: GridEngineSite, image: ServedImage, node: str) -> str:
    """A preemptible job that runs on a node of its own for longer than the test."""
    named = f"OUTRIDER=image={image.uri};digest={image.digest};preemptible=requeue"
    job = submit(site, None, "-ac", named, *WHOLE, "-q", f"all.q@{node}", "-l", "h_rt=3000", more=WORK)
    wait_output(site, job)
    return job


def results(site: GridEngineSite, job: str) -> str:
    done = site.cluster.run(HEAD, ["cat", f"{site.home()}/result-{job}"], check=False)
    return done.stdout


@pytest.mark.long
def test_youngest_job_makes_way_in_time_and_comes_back(site: GridEngineSite) -> None:
    image = site.image("worked.qcow2", 5 * MB)
    reserved = workspace(site, "needed", 8 * MB)
    firm = [fill(site, node) for node in site.cluster.nodes[2:]]
    older, younger = (work(site, image, node) for node in site.cluster.nodes[:2])

    answer = reserve(site, "needed", "--nodes=1", "--start=now+50s", "-t20s")
    name = str(answer["name"])
    number = wait_advance(site, name)
    inside = submit(site, None, "-ar", number, *IN_OURS, *WHOLE, "-l", "h_rt=10")
    wait_shown(site, younger, f"yields to reservation {name}")
    within = ended(site, inside, LONGEST_S)
    wait_reservation(site, name, "ended")
    back = ended(site, younger, LONGEST_S)
    site.cluster.run(HEAD, ["touch", f"{site.home()}/enough"], user="ada")
    ended(site, older)
    cancel(site, *firm)

    assert (answer["result"], answer["nodes"]) == ("accepted", site.cluster.nodes[1])
    assert (within["exit_status"], within["qname"]) == ("0", "outrider.q"), report(site, inside)
    assert "QFI" in output(site, inside)
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert receipt["transferred_bytes"] == reserved.size_bytes
    assert back["exit_status"] == "0", report(site, younger)
    assert (results(site, younger), results(site, older)) == ("result\n", "result\n")
    assert [output(site, job).count("began on") for job in (younger, older)] == [2, 1]
    assert f"reservation is endangered reservation={name} " not in site.logs()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("preemptible=suspend", (), "only a job in a virtual machine"),
        ("preemptible=requeue;checkpoint=USR1", (), "leave checkpoint out"),
        ("preemptible=requeue", ("-t", "1-3"), "leave out preemptible"),
    ],
)
def test_what_cannot_be_done_is_refused_when_it_is_submitted(
    site: GridEngineSite, text: str, options: tuple[str, ...], words: str
) -> None:
    with pytest.raises(CommandFailed, match=words):
        site.submit("#!/bin/sh\ntrue\n", "-ac", f"OUTRIDER=image=http://images/x;{text}", *options)
