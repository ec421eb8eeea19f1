"""A private Grid Engine: jobs on its nodes, what an administrator sets up, its daemons under control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.gridengine import FINISHED, GridEngineCluster
from testbed.records import TestbedError
from tests.daemons.testbed.clusters import machine, needs_gridengine, processes

WHERE = "#!/bin/sh\nhostname; id -un; pwd\n"
WAITS = "#!/bin/sh\ntouch began\nwhile [ ! -e go-on ]; do sleep 0.1; done\nhostname >>ran\n"
BEGAN = ("ls", "began")
INTO_NOTHING = ("-o", "/dev/null", "-j", "y")


@pytest.fixture(scope="module")
def cluster() -> Iterator[GridEngineCluster]:
    needs_gridengine()
    with GridEngineCluster(nodes=2, files={"/etc/given": "given"}, queues={"seq_no": "7"}) as made:
        yield made


@pytest.fixture(autouse=True)
def all_idle(cluster: GridEngineCluster) -> Iterator[None]:
    cluster.run("head", ["rm", "-f", "began", "go-on", "ran"], user="ada")
    yield
    cluster.run("head", ["qdel", "-u", "*"], check=False)
    cluster.wait_idle()
    cluster.queue_states()


def test_job_runs_on_the_node_that_was_asked_for_as_its_user(cluster: GridEngineCluster) -> None:
    job = cluster.qsub(WHERE, "-l", "h=n2", "-o", "out", "-j", "y", user="bob")
    cluster.wait_job(job)
    lines = cluster.run("head", ["cat", "out"], user="bob").stdout.splitlines()
    ends = [(end["hostname"], end["owner"], end["exit_status"]) for end in cluster.accounts(job)]

    assert lines == ["n2", "bob", cluster.people.of("bob").home]
    assert ends == [("n2", "bob", "0")]


def test_environment_gives_every_node_its_slots(cluster: GridEngineCluster) -> None:
    job = cluster.qsub(WAITS, "-pe", "each4", "8", *INTO_NOTHING)
    cluster.wait_job(job, "r")
    # Grid Engine forgets a deletion that comes before the job's first process.
    cluster.wait_for(
        "its first process", lambda: cluster.run("head", BEGAN, user="ada", check=False).returncode == 0
    )
    found = {node: jobs.count(job) for node, jobs in cluster.jobs_on().items()}
    states = cluster.node_states()

    # Where a job's own process is, its slots are listed with one of the master's.
    assert {node for node, count in found.items() if count >= 4} == {"n1", "n2"}
    assert states == {"n1": "busy", "n2": "busy"}


def test_service_may_reserve_and_users_may_not(cluster: GridEngineCluster) -> None:
    asked = ["qrsub", "-d", "600", "-q", "outrider.q@n1", "-l", "outrider_reservation=TRUE", "-u", "ada"]
    made = cluster.run("head", asked, user="outrider")
    number = made.stdout.split()[3]
    refused = cluster.run("head", asked, user="ada", check=False)
    job = cluster.qsub(WHERE, "-ar", number, "-l", "outrider_reservation=TRUE", *INTO_NOTHING)
    cluster.wait_job(job)
    place = [(end["hostname"], end["qname"]) for end in cluster.accounts(job)]
    cluster.run("head", ["qrdel", number], user="outrider")

    assert 'must be manager or in userset "arusers"' in refused.stdout + refused.stderr
    assert place == [("n1", "outrider.q")]


def test_job_without_a_reservation_stays_out_of_the_queue_of_reservations(cluster: GridEngineCluster) -> None:
    refused = cluster.run(
        "head", ["qsub", "-w", "e", "-q", "outrider.q"], given=WHERE, user="ada", check=False
    )

    assert refused.returncode == 1
    assert "no suitable queues" in refused.stderr


def test_settings_and_files_of_the_caller_are_in_force(cluster: GridEngineCluster) -> None:
    numbers = {
        queue: cluster.run("head", ["qconf", "-sq", queue]).stdout.split("seq_no")[1].split()[0]
        for queue in ("all.q", "outrider.q")
    }

    assert numbers == {"all.q": "7", "outrider.q": "7"}
    assert cluster.read("n2", "/etc/given") == "given"


def test_tasks_of_an_array_have_one_state_until_they_differ(cluster: GridEngineCluster) -> None:
    job = cluster.qsub(WAITS, "-t", "1-9", *INTO_NOTHING)
    cluster.wait_job(job, "qw r")
    cluster.run("head", ["touch", "go-on"], user="ada")
    cluster.wait_job(job)
    tasks = sorted(int(end["taskid"]) for end in cluster.accounts(job))

    assert tasks == list(range(1, 10))


def test_job_outlives_its_daemons_and_its_end_is_known_when_they_are_back(cluster: GridEngineCluster) -> None:
    job = cluster.qsub(WAITS, "-l", "h=n1", *INTO_NOTHING)
    cluster.wait_job(job, "r")
    cluster.kill_qmaster("TERM")
    was_up = cluster.is_qmaster_up()
    cluster.kill_execd("n1")
    was_running = cluster.is_daemon_running("n1", "sge_execd")
    cluster.run("head", ["touch", "go-on"], user="ada")
    cluster.wait_for("the job's end", lambda: cluster.programs("n1") == [])
    cluster.start_qmaster()
    state = cluster.job_state(job)
    cluster.restart_execds()
    cluster.wait_job(job)

    assert (was_up, was_running, state) == (False, False, "r")
    assert cluster.run("head", ["cat", "ran"], user="ada").stdout == "n1\n"


def test_rebooted_node_runs_its_jobs_again(cluster: GridEngineCluster) -> None:
    job = cluster.qsub(WAITS, "-l", "h=n2", *INTO_NOTHING)
    # If it is not yet that far, Grid Engine blames the queue for the failure.
    cluster.wait_for("the job", lambda: cluster.run("head", BEGAN, user="ada", check=False).returncode == 0)
    cluster.reboot("n2")
    cluster.wait_for("the job to be run again", lambda: "R" in cluster.job_state(job), 60, cluster.logs)
    cluster.run("head", ["touch", "go-on"], user="ada")
    cluster.wait_job(job)

    assert cluster.run("head", ["cat", "ran"], user="ada").stdout == "n2\n"


def test_queue_in_error_is_told_with_its_reason(cluster: GridEngineCluster) -> None:
    cluster.set_queue("all.q", prolog="/usr/bin/false")
    job = cluster.qsub(WHERE, "-l", "h=n1", *INTO_NOTHING)
    cluster.wait_for("a queue in error", lambda: cluster.node_states()["n1"] == "error")
    with pytest.raises(TestbedError, match=r"queues are in error:[^$]*all\.q@n1"):
        cluster.queue_states()
    cluster.set_queue("all.q", prolog="NONE")
    cluster.run("head", ["qmod", "-cq", "*"])
    cluster.wait_job(job)

    assert set(cluster.queue_states().values()) == {""}


def test_job_that_is_not_known_has_no_state(cluster: GridEngineCluster) -> None:
    assert cluster.job_state("99999") == ""
    assert cluster.accounts("99999") == []
    assert FINISHED != ""


def test_machine_is_not_changed_and_nothing_is_left(cluster: GridEngineCluster) -> None:
    before = machine()
    with GridEngineCluster(nodes=1) as other:
        job = other.qsub(WHERE, "-o", "out", user="ada")
        other.wait_job(job)
        told = other.run("n1", ["cat", "out"], user="ada").stdout
        elsewhere = cluster.run("n1", ["ls", "out"], user="ada", check=False).returncode
        during = machine()

    assert told.splitlines()[:2] == ["n1", "ada"]
    assert elsewhere != 0
    assert during == before
    assert machine() == before
    assert processes(other.name) == []
