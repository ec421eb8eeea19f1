"""Preemptible jobs on a real Grid Engine make way for reservations, and come back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cachemgr.base.clock import SystemClock
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
# It ends by itself at an instant of the day, or after 2 s if that is over.
ENDING = """left=$(( {at_ms} - $(date +%s%3N) ))
[ $left -gt 0 ] || left=2000
sleep $((left / 1000)).$(printf %03d $((left % 1000)))
echo result >>"$HOME/result-$JOB_ID"
"""
ENDING_JOBS, EVERY_MS, MARGIN_MS, AHEAD_S = 14, 500, 20_000, 75


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


@pytest.mark.long
def test_jobs_that_end_when_they_are_to_make_way_have_one_result(site: GridEngineSite) -> None:
    image = site.image("ending.qcow2", 5 * MB)
    workspace(site, "brief", 8 * MB)
    named = f"OUTRIDER=image={image.uri};digest={image.digest};preemptible=requeue"
    start_s = SystemClock().now_s() + AHEAD_S
    first_ms = start_s * 1000 - MARGIN_MS - 5 * EVERY_MS
    # The first to be told is the last to end, so that some end while they are told.
    texts = [ENDING.format(at_ms=first_ms + number * EVERY_MS) for number in reversed(range(ENDING_JOBS))]
    jobs = [submit(site, None, "-ac", named, "-l", "h_rt=300", more=text) for text in texts]
    for job in jobs:
        wait_output(site, job)

    answer = reserve(site, "brief", "--nodes=4", f"--start=uts{start_s}", "-t20s")
    wait_reservation(site, str(answer["name"]), "ended")
    ends = [ended(site, job, LONGEST_S) for job in jobs]

    assert answer["result"] == "accepted"
    assert [each["exit_status"] for each in ends] == ["0"] * ENDING_JOBS
    assert [results(site, job) for job in jobs] == ["result\n"] * ENDING_JOBS
    runs = [len(site.cluster.accounts(job)) for job in jobs]
    assert (runs[0], runs[-1]) == (2, 1), "some were sent back, and some were over before"


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
