"""A lease in pieces on a real Slurm: a job that saves its work goes on in the next piece."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.daemons.slurm.service.conftest import NODES
from tests.daemons.slurm.service.failing import kill_service
from tests.daemons.slurm.service.jobs import ended, output, restarts, script, seen, wait_for, wait_in_slurm
from tests.daemons.slurm.service.test_yielding_jobs import written

MB = 1_000_000
# More than the first piece has time for, and less than both.
WORK_S = 300
# Counts seconds, saves how many when it is told to, and ends when all are done.
WORK = """#!/bin/sh
{lines}
#OUTRIDER preemptible: requeue
#OUTRIDER checkpoint: USR1
#OUTRIDER grace: 45s
saved="$HOME/saved"
done=$(cat "$saved" 2>/dev/null || echo 0)
trap 'echo "$done" > "$saved"' USR1
echo "run ${{SLURM_RESTART_COUNT:-0}} from $done at $(date +%s) in $SLURM_JOB_RESERVATION" >> "$HOME/runs"
while [ "$done" -lt {work_s} ]; do sleep 1 & wait $!; done=$((done + 1)); done
head -c3 "$OUTRIDER_IMAGE" > "$HOME/result"
"""
ENDED_S = 900


@pytest.mark.long
def test_job_goes_on_from_its_checkpoint_in_the_next_piece(site: OutriderSite) -> None:
    """The service is killed in the job's grace time. What is reserved between the pieces is had."""
    image = workspace(site, "solve", 4 * MB)
    workspace(site, "between", 3 * MB)
    site.cluster.run(HEAD, ["rm", "-f", *(f"{site.home()}/{name}" for name in ("saved", "runs", "result"))])
    between = reserve(site, "between", f"--nodes={NODES}", "--start=now+340s", "-t70s")

    lease = reserve(site, "solve", f"--nodes={NODES}", "-t360s", "--finish-by=now+730s", "--least-piece=60s")
    pieces = lease["occurrences"]
    assert isinstance(pieces, list)
    names = [str(each["name"]) for each in pieces]
    job = site.submit(
        WORK.format(lines=image.lines, work_s=WORK_S),
        "-t30",
        f"--reservation={names[0]}",
        "--open-mode=append",
    )
    wait_for(site, job, "RUNNING", timeout_s=ENDED_S)
    site.cluster.wait_for(
        "the checkpoint", lambda: written(site, "saved") != [], logs=site.logs, timeout_s=ENDED_S
    )
    kill_service(site)
    site.start_service()
    inside = site.submit(script(None), "-t1", f"--reservation={between['name']}")
    within = ended(site, inside, timeout_s=ENDED_S)
    site.cluster.wait_for(
        "the next piece", lambda: seen(site, job).state == "RUNNING", logs=site.logs, timeout_s=ENDED_S
    )
    found = ended(site, job, timeout_s=ENDED_S)
    wait_reservation(site, names[0], "ended")
    receipt = shown(site, names[0])["receipt"]
    site.outrider("cancel", str(lease["name"]))
    wait_in_slurm(site, names[1], is_there=False)

    assert (lease["result"], len(names)) == ("accepted", 2)
    assert within.state == "COMPLETED", output(site, inside)
    assert found.state == "COMPLETED", site.logs()
    runs = [line.split() for line in site.cluster.read(HEAD, f"{site.home()}/runs").splitlines()]
    saved = int(written(site, "saved")[0])
    assert [(run[1], run[-1]) for run in runs] == [("0", names[0]), ("1", names[1])]
    assert [int(run[3]) for run in runs] == [0, saved]
    assert saved > 0
    for run, piece in zip(runs, pieces, strict=True):
        assert int(piece["start_s"]) <= int(run[5]) < int(piece["end_s"])
    assert written(site, "result") == ["QFI"]
    assert restarts(site, job) == "Restarts=1"
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert "reservation is endangered" not in site.logs()
