"""The submit filter inside a real qmaster: what users and the service can do with jobs then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider.rms.base import JobState
from outrider.rms.gridengine import GridEngine
from tests.contract.gridengine_cluster import Cluster
from tests.contract.gridengine_harness import cannot_run, gridengine_of
from tests.daemons.gridengine.filter.filtered import DIGEST, filtered, key_of, submit

# Those that answer, not those that start them anew.
KILL = "for p in $(pgrep -f ISBWignore./media/bin/outrider_jsv); do pkill -KILL -P $p -f outrider_jsv; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with the filter; it starts jobs only when a test lets time pass."""
    cannot_run()
    with filtered() as made:
        yield made


@pytest.fixture
def system(cluster: Cluster) -> Iterator[GridEngine]:
    yield gridengine_of(cluster)
    cluster.run(["qdel", "-f", "-u", "*"], check=False)


def states(system: GridEngine) -> dict[str, JobState]:
    return {job.key: job.state for job in system.look().jobs}


def test_job_with_an_image_waits_and_others_run(cluster: Cluster, system: GridEngine) -> None:
    managed = key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a.qcow2"))
    plain = key_of(submit(cluster, "-ac", "COLOUR=red"))
    cluster.schedule()
    cluster.wait_for("the plain job", lambda: states(system)[plain] in (JobState.STARTING, JobState.RUNNING))
    found = {job.key: job for job in system.look().jobs}

    assert (found[managed].state, found[managed].is_held_by_us) == (JobState.HELD, True)
    assert (found[managed].metadata, found[plain].metadata) == ("http://h/a.qcow2", None)


def test_user_cannot_let_a_job_start_that_the_service_has_seen(cluster: Cluster, system: GridEngine) -> None:
    job = key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a.qcow2"))
    system.hold(job, "waits for its image")
    cluster.run(["qrls", "-h", "u", job], user="alice", check=False)
    cluster.run(["qalter", "-h", "n", job], user="alice", check=False)
    before = states(system)[job]
    system.release(job, ("n3",))
    cluster.schedule()
    cluster.wait_for("the job", lambda: states(system)[job] in (JobState.STARTING, JobState.RUNNING))
    (found,) = system.look().jobs

    assert before is JobState.HELD
    assert found.nodes == ("n3",)


def test_service_releases_what_the_filter_has_held(cluster: Cluster, system: GridEngine) -> None:
    job = key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a.qcow2"))
    system.release(job)
    after = states(system)[job]
    cluster.run(["qhold", "-h", "u", job], user="alice")
    (found,) = system.look().jobs

    assert after is JobState.PENDING
    assert (found.state, found.is_held_by_us) == (JobState.HELD, False)


def test_metadata_of_a_variable_is_seen_with_its_line_breaks(cluster: Cluster, system: GridEngine) -> None:
    text = f"image: http://h/a.qcow2\ndigest: {DIGEST}"
    job = key_of(submit(cluster, "-v", f"OUTRIDER={text}", "-ac", "A=1,B=2"))
    (found,) = system.look().jobs
    shown = cluster.run(["qstat", "-j", job])

    assert found.metadata == text
    assert "A=1,B=2,OUTRIDER=base64:" in shown
    assert f"OUTRIDER_TICKET=1.{job}.61001.{DIGEST}." in shown


def test_mistakes_leave_the_protocol_in_step(cluster: Cluster, system: GridEngine) -> None:
    """Many more jobs than the qmaster has filters, each after one that was refused."""
    outcomes = []
    for number in range(8):
        refused = submit(cluster, "-ac", f"OUTRIDER=image: a b{number}")
        outcomes.append("cannot be its image" in refused.complaint)
        managed = key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a"))
        plain = key_of(submit(cluster))
        found = states(system)
        outcomes += [found[managed] is JobState.HELD, found[plain] is JobState.PENDING]

    assert outcomes == [True] * 24


def test_killed_filter_lets_no_job_through_unheld(cluster: Cluster, system: GridEngine) -> None:
    managed, plain = [], []
    for _ in range(4):
        cluster.run(["sh", "-c", KILL], check=False)
        plain.append(key_of(submit(cluster)))
        managed.append(key_of(submit(cluster, "-ac", "OUTRIDER=http://h/a")))
    found = states(system)

    assert {found[key] for key in managed} == {JobState.HELD}
    assert {found[key] for key in plain} == {JobState.PENDING}


def test_clients_filter_brings_what_a_script_says(cluster: Cluster, system: GridEngine) -> None:
    script = "#!/bin/sh\n#OUTRIDER image: http://h/b\n#OUTRIDER size: 3 GiB\nsleep 1\n"
    path = cluster.write("home/alice/job.sh", script)
    cluster.run(["qsub", "-jsv", "/media/bin/outrider_client_jsv.py", path], user="alice")
    (found,) = system.look().jobs

    assert (found.metadata, found.state) == ("image: http://h/b\nsize: 3 GiB", JobState.HELD)


@pytest.mark.parametrize(
    "options",
    [
        ["-jsv", "/media/bin/outrider_client_jsv.py"],
        ["-V"],
        ["-jsv", "/media/bin/outrider_client_jsv.py", "-V"],
    ],
)
def test_environment_of_whoever_submits_names_the_image(
    cluster: Cluster, system: GridEngine, options: list[str]
) -> None:
    path = cluster.write("home/alice/plain.sh", "#!/bin/sh\nsleep 1\n")
    wanted = "OUTRIDER_IMAGE_WANTED=image=http://h/e;size=3GiB"
    cluster.run(["env", wanted, "qsub", *options, path], user="alice")
    (found,) = system.look().jobs

    assert (found.metadata, found.state) == ("image=http://h/e;size=3GiB", JobState.HELD)


def test_lines_in_a_context_are_taken(cluster: Cluster, system: GridEngine) -> None:
    text = "image: http://h/a.qcow2\nsize: 3 GiB"
    key_of(submit(cluster, "-ac", f"A=1,OUTRIDER={text},B=2"))
    (found,) = system.look().jobs

    assert (found.metadata, found.state) == (text, JobState.HELD)


def test_user_at_a_terminal_is_told_of_the_hold_and_a_script_is_not(
    cluster: Cluster, system: GridEngine
) -> None:
    path = cluster.write("home/alice/told.sh", "#!/bin/sh\n#OUTRIDER image: http://h/b\nsleep 1\n")
    plain = cluster.write("home/alice/plain.sh", "#!/bin/sh\nsleep 1\n")

    def printed(script: str, wrapper: str) -> str:
        command = f"qsub -terse -jsv /media/bin/outrider_client_jsv.py {script}"
        return cluster.run(["sh", "-c", wrapper.format(command)], user="alice")

    terminal = "python3 -c \"import pty, sys; sys.exit(pty.spawn(['sh', '-c', '{}']) >> 8)\""

    assert printed(path, "{}").strip().isdecimal()
    assert "outrider: the job is held until its image is on its nodes" in printed(path, terminal)
    assert printed(plain, terminal).strip().isdecimal()


def test_user_binds_to_a_reservation_through_the_clients_filter(cluster: Cluster, system: GridEngine) -> None:
    argv = [
        "qrsub",
        "-N",
        "vw-1",
        "-d",
        "300",
        "-q",
        "ar.q@n1",
        "-l",
        "orsv=TRUE",
        "-pe",
        "two",
        "2",
        "-u",
        "alice",
    ]
    number = cluster.run(argv, user="outrider").split()[3]
    options = ["-jsv", "/media/bin/outrider_client_jsv.py", "-ar", number]
    job = key_of(submit(cluster, *options, "-ac", "OUTRIDER=http://h/a", "-l", "h_rt=20"))
    assert states(system)[job] is JobState.HELD, "without a ticket it would fail"
    cluster.run(["qrls", job])
    cluster.schedule()
    cluster.wait_for("the job", lambda: states(system).get(job) in (JobState.STARTING, JobState.RUNNING))
    (found,) = system.look().jobs
    cluster.run(["qdel", job])
    cluster.run(["qrdel", number])

    assert (found.reservation, found.nodes) == ("vw-1", ("n1",))


def test_image_in_a_foreign_reservation_is_refused_and_a_plain_job_is_not(
    cluster: Cluster, system: GridEngine
) -> None:
    argv = ["qrsub", "-d", "300", "-q", "all.q@n2", "-u", "alice"]
    number = cluster.run(argv, user="outrider").split()[3]
    refused = submit(cluster, "-ar", number, "-ac", "OUTRIDER=http://h/a")
    plain = key_of(submit(cluster, "-ar", number))
    known = set(states(system))
    cluster.run(["qdel", plain])
    cluster.run(["qrdel", number])

    assert f"no image comes to the nodes of reservation {number}" in refused.complaint
    assert known == {plain}


def test_arrays_are_held_and_a_users_hold_is_the_users(cluster: Cluster, system: GridEngine) -> None:
    array = key_of(submit(cluster, "-t", "1-9:2", "-ac", "OUTRIDER=http://h/a"))
    held = key_of(submit(cluster, "-h", "-ac", "OUTRIDER=http://h/a"))
    found = {job.key: job for job in system.look().jobs}

    assert (found[array].tasks, found[array].is_held_by_us) == (5, True)
    assert (found[held].state, found[held].is_held_by_us) == (JobState.HELD, False)
