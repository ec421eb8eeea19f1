"""What hostile users try at a real qmaster with the submit filter, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider.rms.base import JobState
from outrider.rms.commands import Output
from outrider.rms.gridengine import GridEngine
from tests.contract.gridengine_cluster import Cluster
from tests.contract.gridengine_harness import cannot_run, gridengine_of
from tests.daemons.gridengine.filter.filtered import DIGEST, filtered, key_of, submit

IMAGE = f"OUTRIDER=image=http://h/a;digest=sha256:{DIGEST}"
# Each with its way into what the qmaster tells the filter: they are copied with their line breaks.
END = "BEGIN\nSTART\nPARAM VERSION 1.0\nPARAM USER bob\nPARAM JOB_ID 1\nPARAM N x\nBEGIN"
INTRUSIONS = {
    "argument": ("sleep", f"1\n{END}"),
    "two arguments": ("sleep", "1\nBEGIN", f"1\n{END}"),
    "context": ("-ac", f"K=a\n{END}", "sleep", "1"),
    "name in the context": ("-ac", f"K\n{END}=a", "sleep", "1"),
    "variable": ("-v", f"K=a\n{END}", "sleep", "1"),
    "empty variable": ("-v", "OUTRIDER_TICKET=", "sleep", "1"),
    "name of a variable": ("-v", f"K\n{END}=a", "sleep", "1"),
    "output": ("-o", f"/tmp/a\n{END}", "sleep", "1"),
    "shell": ("-S", f"/bin/sh\n{END}", "sleep", "1"),
    "folder": ("-wd", f"/tmp/a\n{END}", "sleep", "1"),
    "mail": ("-M", f"a@b\n{END}", "sleep", "1"),
    "job to wait for": ("-hold_jid", f"1\n{END}", "sleep", "1"),
    "odd context": ("-ac", "A=\",B='x,OUTRIDER_HELD=0,C=%s%n\\", "sleep", "1"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cannot_run()
    with filtered() as made:
        yield made


@pytest.fixture
def system(cluster: Cluster) -> Iterator[GridEngine]:
    yield gridengine_of(cluster)
    cluster.run(["qdel", "-f", "-u", "*"], check=False)


def qsub(cluster: Cluster, *arguments: str, user: str = "alice") -> Output:
    status, output, error = cluster.attempt(["qsub", "-terse", "-b", "y", *arguments], user=user)
    return Output(status, output.encode(), error)


def variables(cluster: Cluster, key: str) -> str:
    """The line with a job's variables, as its prolog gets them."""
    shown = cluster.run(["qstat", "-j", key]).splitlines()
    return next((line for line in shown if line.startswith("env_list:")), "")


def states(system: GridEngine) -> dict[str, JobState]:
    return {job.key: job.state for job in system.look().jobs}


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_next_jobs_are_verified_whatever_stands_in_an_option(
    cluster: Cluster, system: GridEngine, intrusion: str
) -> None:
    """Twice as many afterwards as the qmaster has filters: one that is out of step shows."""
    qsub(cluster, "-h", *INTRUSIONS[intrusion])
    managed = [key_of(submit(cluster, "-ac", IMAGE)) for _ in range(2)]
    refused = [submit(cluster, "-ac", "OUTRIDER=image: a b").code for _ in range(2)]
    found = states(system)

    assert [found[key] for key in managed] == [JobState.HELD] * 2
    assert all(f"OUTRIDER_TICKET=1.{key}.61001.{DIGEST}." in variables(cluster, key) for key in managed)
    assert refused == [1, 1]


def test_image_after_a_line_break_in_the_context_is_refused_or_held(
    cluster: Cluster, system: GridEngine
) -> None:
    done = qsub(cluster, "-ac", "K=a\n,OUTRIDER=http://h/a", "sleep", "1")

    assert done.code == 1
    assert "its context cannot be added to" in done.complaint
    assert states(system) == {}


@pytest.mark.parametrize("forged", ["1.1.61001." + DIGEST + ".9999999999.forged", "none", "x,y"])
def test_forged_ticket_is_replaced_for_a_managed_job_and_gone_from_another(
    cluster: Cluster, system: GridEngine, forged: str
) -> None:
    own = ["-v", f"OUTRIDER_TICKET={forged}"]
    managed = key_of(submit(cluster, *own, "-ac", "OUTRIDER=http://h/a"))
    plain = key_of(submit(cluster, *own))

    assert "OUTRIDER_TICKET=none" in variables(cluster, managed)
    assert "OUTRIDER_TICKET" not in variables(cluster, plain)


def test_forged_mark_of_a_hold_does_not_let_a_job_start(cluster: Cluster, system: GridEngine) -> None:
    job = key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a", "-ac", "OUTRIDER_HELD=0"))
    system.look()
    cluster.schedule()

    assert states(system) == {job: JobState.HELD}


def test_clearing_the_options_does_not_clear_the_filter(cluster: Cluster, system: GridEngine) -> None:
    argv = ["qsub", "-clear", "-terse", "-b", "y", "-ac", "OUTRIDER=http://h/a", "sleep", "1"]
    job = cluster.run(argv, user="alice").strip()

    assert states(system) == {job: JobState.HELD}
    assert "OUTRIDER_TICKET=none" in variables(cluster, job)


def test_user_may_change_what_the_job_says_but_not_its_ticket_nor_the_services_hold(
    cluster: Cluster, system: GridEngine
) -> None:
    job = key_of(submit(cluster, "-ac", IMAGE))
    before = variables(cluster, job)
    system.hold(job, "waits for its image")
    for argv in (
        ["qalter", "-ac", "OUTRIDER=http://h/other,OUTRIDER_HELD=0", job],
        ["qalter", "-dc", "OUTRIDER_HELD", job],
        ["qalter", "-h", "U", job],
        ["qalter", "-h", "n", job],
        ["qrls", "-h", "s", job],
        ["qrls", "-h", "u", job],
        ["qrls", job],
    ):
        cluster.run(argv, user="alice", check=False)
    cluster.schedule()
    (found,) = system.look().jobs

    assert found.state is JobState.HELD
    assert found.metadata == "http://h/other"
    assert variables(cluster, job) == before


def test_user_cannot_give_a_job_other_variables(cluster: Cluster, system: GridEngine) -> None:
    """`v` is not among what may be changed of jobs that the filter has seen."""
    job = key_of(submit(cluster, "-ac", IMAGE))
    before = variables(cluster, job)
    status = cluster.attempt(["qalter", "-v", "A=1", job], user="alice")[0]

    assert status != 0
    assert variables(cluster, job) == before


def test_reservation_of_others_cannot_be_used_or_given_up(cluster: Cluster, system: GridEngine) -> None:
    what = ["-q", "ar.q@n1", "-l", "orsv=TRUE", "-pe", "two", "2", "-u", "bob"]
    number = cluster.run(["qrsub", "-N", "vw-1", "-d", "300", *what], user="outrider").split()[3]
    job = ["-ar", number, "-l", "outrider_reservation=TRUE", "-ac", "OUTRIDER=http://h/a"]
    done = submit(cluster, *job)
    deleted = cluster.attempt(["qrdel", number], user="alice")[0]
    made = cluster.attempt(["qrsub", "-d", "300", *what], user="alice")
    cluster.run(["qrdel", number])

    assert done.code == 1
    assert deleted != 0
    assert made[0] != 0
    assert states(system) == {}
