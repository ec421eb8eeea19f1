"""The hooks under a real slurmctld with two real slurmds: jobs get their images, or fail alone."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, SLURM_UID, Site, add, needs_slurm, slurm

FIRST_LINE = CONTENT.decode().splitlines()[0]


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    needs_slurm()
    with slurm(2) as found:
        yield found


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """Each test finds, and leaves, nodes that are idle and hold nothing of any job."""
    shared.check_clean()
    yield shared
    shared.check_clean()


@contextmanager
def service(site: Site, *verdicts: str) -> Iterator[list[dict[str, object]]]:
    """What answers on the head in the service's place, one verdict after the other; what it was asked."""
    path = site.folder / "head" / "outrider" / "outriderd.sock"
    asked: list[dict[str, object]] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        os.chown(path, SLURM_UID, SLURM_UID)
        listener.listen()

        def serve() -> None:
            for verdict in verdicts:
                connection, _ = listener.accept()
                with connection:
                    asked.append(json.loads(connection.recv(65_536).partition(b"\r\n\r\n")[2]))
                    body = json.dumps({"verdict": verdict, "words": "the image has left n1"}).encode()
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        path.unlink()


def test_job_on_two_nodes_has_an_instance_on_each(site: Site) -> None:
    each = 'echo "$SLURMD_NODENAME $(wc -c <"$OUTRIDER_IMAGE")"'
    job = site.submit(f"head -1 \"$OUTRIDER_IMAGE\"; srun -N2 -n2 sh -c '{each}'", "-N2")

    assert site.ended(job) == "COMPLETED 0:0"
    said = site.output(job).splitlines()
    assert said[0] == FIRST_LINE
    assert {f"n1 {len(CONTENT)}", f"n2 {len(CONTENT)}"} <= set(said)


def test_job_without_a_ticket_passes_untouched(site: Site) -> None:
    job = site.submit('echo "image:$OUTRIDER_IMAGE"', ticket=None)

    assert site.ended(job) == "COMPLETED 0:0"
    assert site.output(job) == "image:\n"


def test_job_with_a_wrong_ticket_fails_alone_and_says_why(site: Site) -> None:
    tickets = {
        "has the ticket of job 9999": site.ticket("9999"),
        "is for uid 1234": site.ticket("-", uid=1234),
        "has expired": site.ticket("-", expires_s=1_700_000_000),
        "was not signed": site.ticket("-")[:-4] + "0000",
        "is not on this node": site.ticket("-", digest="0" * 64),
        "cannot be read": "rubbish $(reboot) `id`",
    }
    jobs = {said: site.submit("echo ran", ticket=text) for said, text in tickets.items()}
    outcomes = {said: (site.ended(job), site.output(job)) for said, job in jobs.items()}

    assert {state for state, _ in outcomes.values()} == {"FAILED 3:0"}
    assert [said for said, (_, printed) in outcomes.items() if said not in printed] == []
    assert not any("ran\n" in printed for _, printed in outcomes.values())


def test_user_who_forges_a_ticket_gains_nothing(site: Site) -> None:
    tried = site.run("srun", "-N1", "--comment=outrider-ticket=1.1.0.x", "sh", "-c", "echo ran")

    assert tried.code != 0
    assert "ran" not in tried.printed
    assert "outrider: the image is not ready on node" in tried.printed + tried.said


def test_every_task_of_an_array_has_a_copy(site: Site) -> None:
    script = 'echo mine >>"$OUTRIDER_IMAGE"; wc -l <"$OUTRIDER_IMAGE" >"lines.$SLURM_ARRAY_TASK_ID"'
    array = site.submit(script, "--array=1-3")
    site.eventually("the array has ended", lambda: not site.run("squeue", "-h", "-j", array).printed)
    lines = [(site.folder / "jobs" / f"lines.{task}").read_text().strip() for task in (1, 2, 3)]

    assert lines == [str(CONTENT.count(b"\n") + 1)] * 3


def test_two_jobs_of_one_image_on_one_node_do_not_see_each_other(site: Site) -> None:
    script = (
        'echo "$SLURM_JOB_ID" >>"$OUTRIDER_IMAGE"; touch "met.$SLURM_JOB_ID"; '
        'while [ "$(ls met.* | wc -l)" -lt 2 ]; do sleep 0.05; done; tail -n +1001 "$OUTRIDER_IMAGE"'
    )
    jobs = [site.submit(script, "-w", "n1", "-N1") for _ in range(2)]

    assert [site.ended(job) for job in jobs] == ["COMPLETED 0:0"] * 2
    assert [site.output(job) for job in jobs] == [f"{job}\n" for job in jobs]


def test_requeued_job_begins_with_a_fresh_copy_on_the_same_node(site: Site) -> None:
    job = site.submit(
        'wc -l <"$OUTRIDER_IMAGE"; echo more >>"$OUTRIDER_IMAGE"; '
        'if [ -z "$SLURM_RESTART_COUNT" ]; then scontrol requeue "$SLURM_JOB_ID"; sleep 60; fi',
        "--requeue",
        "-w",
        "n1",
    )

    assert site.ended(job) == "COMPLETED 0:0"
    lines = str(CONTENT.count(b"\n"))
    assert [line for line in site.output(job).splitlines() if line.isdigit()] == [lines, lines]


def test_cancelled_job_leaves_nothing(site: Site) -> None:
    job = site.submit('touch began; sleep 60', "-N2")  # fmt: skip
    site.eventually("it has begun", lambda: (site.folder / "jobs" / "began").exists())
    held = site.instances()
    site.run("scancel", job)

    assert site.ended(job).startswith("CANCELLED")
    assert held == [f"n1 job-{job}", f"n2 job-{job}"]


def test_image_that_has_left_one_node_fails_the_job_there(site: Site) -> None:
    site.ask("n2", "evict", name=DIGEST)
    job = site.submit("echo ran", "-w", "n2")
    ended, printed = site.ended(job), site.output(job)
    add(site, "n2")

    assert ended == "FAILED 3:0"
    assert "node n2" in printed
    assert "is not on this node" in printed


def test_service_that_says_wait_sends_the_job_back_to_the_queue(site: Site) -> None:
    with service(site, "wait", "go") as asked:
        job = site.submit("echo ran", "-N2", "--requeue", ticket="none")
        site.eventually("it was asked", lambda: asked)
        site.eventually("it waits", lambda: site.state(job).startswith("PENDING"))
        site.update(job, f"Comment=mine outrider-ticket={site.ticket(job)}")
        nodes = site.states_of_nodes()
        ended = site.ended(job)

    assert asked == [{"job": job, "nodes": ["n1", "n2"]}] * 2
    assert nodes == {"idle"}
    assert ended == "COMPLETED 0:0"
    assert site.output(job) == "ran\n"


def test_service_that_hangs_up_keeps_no_job_from_starting(site: Site) -> None:
    path = Path(site.folder / "head" / "outrider" / "outriderd.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        os.chown(path, SLURM_UID, SLURM_UID)
        silent.listen()
        job = site.submit("echo ran", ticket="none")
        ended, said = site.ended(job), site.output(job)
    path.unlink()

    # It has started, and its node sees what nobody could say.
    assert ended == "FAILED 3:0"
    assert "somebody let the job start" in said


def test_killed_daemon_fails_jobs_with_words_and_drains_nothing() -> None:
    needs_slurm()
    with slurm(1) as site:
        site.run("kill", "-KILL", str(site.ask("n1", "ping")["pid"]), uid=0)
        ours, other = site.submit("echo ran"), site.submit("echo ran", ticket=None)
        ended = [site.ended(job) for job in (ours, other)]
        said, words, nodes = site.output(ours), site.words(), site.states_of_nodes()

    assert ended == ["FAILED 3:0", "COMPLETED 0:0"]
    assert "no daemon answers" in said
    assert words == []
    assert nodes == {"idle"}
