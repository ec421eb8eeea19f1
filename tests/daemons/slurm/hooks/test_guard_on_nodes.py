"""Nodes as the guard, under a real slurmctld that has no prolog of its own: a job whose image is not on its
nodes goes back to the queue, whoever let it start, and no node is drained."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.daemons.node.daemons import CLOCK
from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, HOOKS, Site, add, needs_slurm, slurm

ON_NODES = {name: path for name, path in HOOKS.items() if name != "PrologSlurmctld"}
RECORD = '{"outrider":1,"metadata":"image: here","begin":17}'
MARK = "PURGE_COMP=1366-14:17:00"
RUNS = 'echo ran; head -1 "$OUTRIDER_IMAGE"'
RAN = f"ran\n{CONTENT.decode().splitlines()[0]}\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    needs_slurm()
    with slurm(2, hooks=ON_NODES) as found:
        yield found


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """Each test finds, and leaves, nodes that are idle and hold nothing of any job."""
    shared.check_clean()
    yield shared
    shared.check_clean()


def submitted(site: Site, script: str, *options: str, comment: str, note: str = f"outrider: {RECORD}") -> str:
    """A job as the filter leaves it, but for its begin."""
    argv = ("sbatch", "--parsable", "--hold", "--output=out.%j", *options)
    done = site.run(*argv, text=f"#!/bin/sh\n{script}\n")
    assert done.code == 0, done.said
    job = done.printed.strip()
    site.update(job, f"Comment={comment}", *([f"AdminComment={note}"] if note else []))
    return job


def let_go(site: Site, job: str) -> None:
    assert site.run("scontrol", "release", job, uid=0).code == 0


def shown(site: Site, job: str) -> str:
    """State, reason, and restarts of a job that Slurm knows."""
    done = site.run("squeue", "--noheader", "--all", "-j", job, "--Format=State,Reason,RestartCnt")
    return " ".join(done.printed.split())


def noted(site: Site, job: str) -> str:
    """What stands at the job for its user."""
    return site.run("squeue", "--noheader", "-j", job, "--Format=admin_comment:4096").printed.strip()


def went_back(site: Site, job: str, restarts: int = 1) -> str:
    """Until a job waits again, held as the filter holds; what is said of it."""
    wanted = f"PENDING BeginTime {restarts}"
    site.eventually(f"job {job} waits again", lambda: shown(site, job) == wanted, lambda: shown(site, job))
    site.eventually(
        "why is said", lambda: "went back to the queue" in noted(site, job), lambda: noted(site, job)
    )
    return noted(site, job)


def start_of(site: Site, job: str) -> int:
    done = site.run("scontrol", "-o", "show", "job", job, uid=0)
    text = next(word for word in done.printed.split() if word.startswith("EligibleTime=")).partition("=")[2]
    return int(site.run("date", "-d", text, "+%s").printed)


def test_job_that_somebody_let_go_waits_again_and_starts_with_its_image_later(site: Site) -> None:
    job = submitted(site, RUNS, comment="mine outrider-ticket=none")
    let_go(site, job)
    went_s = CLOCK.now_s()
    said = went_back(site, job)
    held_s = start_of(site, job) - CLOCK.now_s()
    nodes = site.states_of_nodes()
    before = site.output(job)
    record = json.loads(said[said.index("{") :])
    # As the service lets it go: with its ticket, and not before Slurm would start it again.
    begin_s = record["begin"]
    ticket = f"Comment=mine outrider-ticket={site.ticket(job)}"
    site.update(job, ticket, f"StartTime=uts{begin_s}")

    assert "could not give it its image: somebody let the job start before its image was here" in said
    assert record == {**json.loads(RECORD), "begin": begin_s}
    assert 0 < begin_s - went_s < 60
    assert held_s > 300 * 86_400
    assert nodes == {"idle"}
    assert "ran" not in before
    assert site.ended(job) == "COMPLETED 0:0"
    assert site.output(job) == RAN


def test_job_on_two_nodes_that_somebody_let_go_begins_on_neither(site: Site) -> None:
    job = submitted(site, RUNS, "-N2", comment="outrider-ticket=none")
    let_go(site, job)
    said = went_back(site, job)
    site.run("scancel", job)

    assert "somebody let the job start" in said
    assert "ran" not in site.output(job)


def test_job_for_which_the_service_holds_the_image_on_its_node_starts_without_a_ticket(site: Site) -> None:
    job = submitted(site, RUNS, "-w", "n2", comment="outrider-ticket=none")
    owner, until_s = f"reservation:job-{job}", CLOCK.now_s() + 600
    site.ask("n2", "pin", name=DIGEST, owner=owner, until_s=until_s)
    let_go(site, job)
    ended = site.ended(job)
    site.ask("n2", "unpin", name=DIGEST, owner=owner)

    assert ended == "COMPLETED 0:0"
    assert site.output(job) == RAN


def test_job_whose_image_has_left_its_node_waits_again_as_a_whole(site: Site) -> None:
    site.ask("n2", "evict", name=DIGEST)
    job = submitted(site, RUNS, "-N2", comment="")
    site.update(job, f"Comment=outrider-ticket={site.ticket(job)}")
    let_go(site, job)
    said = went_back(site, job)
    add(site, "n2")
    site.run("scancel", job)

    assert "n2 could not give it its image" in said
    assert "is not on this node" in said


def test_one_task_of_an_array_goes_back_alone(site: Site) -> None:
    array = submitted(site, "echo ran; sleep 600", "--array=1-2", "-w", "n1", comment="outrider-ticket=none")
    site.update(f"{array}_1", f"Comment=outrider-ticket={site.ticket('-')}")
    let_go(site, array)
    # The last one to start has the array's own number.
    went_back(site, f"{array}_2")
    site.eventually("the other one runs", lambda: site.instances() != [])
    other = shown(site, f"{array}_1")
    site.run("scancel", array)
    site.eventually("all is over", lambda: not site.run("squeue", "-h", "-j", array).printed)

    assert other == "RUNNING None 0"


def test_srun_cannot_wait_and_is_told_so(site: Site) -> None:
    tried = site.run("srun", "-N1", "--comment=outrider-ticket=none", "sh", "-c", "echo ran")

    assert tried.code != 0
    assert tried.printed.startswith("outrider: the image is not ready on node n1: somebody let the job start")


def test_job_that_may_not_be_requeued_fails_with_words(site: Site) -> None:
    job = submitted(site, RUNS, "--no-requeue", comment="outrider-ticket=none")
    let_go(site, job)

    assert site.ended(job) == "FAILED 3:0"
    assert "somebody let the job start" in site.output(job)


@pytest.fixture
def reserved(site: Site) -> Iterator[list[str]]:
    """Makes reservations of n1 as they are named, with these flags."""
    names: list[str] = []

    def made(name: str, flags: str) -> None:
        argv = (f"ReservationName={name}", "StartTime=now", "Duration=60", "Nodes=n1", "Users=nobody")
        done = site.run("scontrol", "create", "reservation", *argv, f"Flags={flags}", uid=0)
        assert done.code == 0, done.said
        names.append(name)

    made("render-1", f"IGNORE_JOBS,{MARK}")
    yield names
    for name in names:
        site.eventually(
            "it is free",
            lambda name=name: site.run("scontrol", "delete", f"ReservationName={name}", uid=0).code == 0,  # type: ignore[misc]
        )


@pytest.mark.usefixtures("reserved")
def test_plain_job_in_a_reservation_of_the_services_waits_for_the_reservations_image(site: Site) -> None:
    job = submitted(site, RUNS, "--reservation=render-1", comment="", note="")
    let_go(site, job)
    said = went_back(site, job)
    soon_s = start_of(site, job) - CLOCK.now_s()
    owner = "reservation:render-1"
    site.ask("n1", "pin", name=DIGEST, owner=owner, until_s=CLOCK.now_s() + 600)
    ended = site.ended(job)
    site.ask("n1", "unpin", name=DIGEST, owner=owner)

    assert "no image is held on this node for reservation render-1" in said
    assert soon_s < 300
    assert ended == "COMPLETED 0:0"
    assert site.output(job) == RAN


def test_plain_job_in_a_sites_own_reservation_is_none_of_ours(site: Site) -> None:
    argv = ("ReservationName=night-1", "StartTime=now", "Duration=60", "Nodes=n1", "Users=nobody")
    assert site.run("scontrol", "create", "reservation", *argv, uid=0).code == 0
    job = submitted(site, "echo ran", "--reservation=night-1", comment="", note="")
    let_go(site, job)
    ended = site.ended(job)
    site.eventually(
        "it is free", lambda: site.run("scontrol", "delete", "ReservationName=night-1", uid=0).code == 0
    )

    assert ended == "COMPLETED 0:0"
    assert site.output(job) == "ran\n"


def test_job_whose_nodes_daemon_is_gone_waits_again() -> None:
    needs_slurm()
    with slurm(1, hooks=ON_NODES) as site:
        prolog = site.folder / "lib" / "slurm" / "prolog"
        prolog.write_text(prolog.read_text().replace("--timeout 30", "--timeout 3"))
        site.run("kill", f"-{signal.SIGKILL.value}", str(site.ask("n1", "ping")["pid"]), uid=0)
        job = submitted(site, RUNS, comment="")
        site.update(job, f"Comment=outrider-ticket={site.ticket(job)}")
        let_go(site, job)
        said = went_back(site, job)
        nodes = site.states_of_nodes()

    assert "no daemon answers" in said
    assert nodes == {"idle"}
