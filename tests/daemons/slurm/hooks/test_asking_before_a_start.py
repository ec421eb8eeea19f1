"""The prolog on the head: the service can send a job back to the queue, and nothing else can."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from outrider_client.doors import LEADER_HEADER
from outrider_client.munge import hash_request
from tests.daemons.node.daemons import CLOCK, needs_root
from tests.daemons.slurm.hooks.node import Node, answered, node, verdict


@pytest.fixture
def head() -> Iterator[Node]:
    needs_root()
    with node() as found:
        yield found


def asked(head: Node, answer: bytes | None, **changes: str) -> tuple[int, list[bytes]]:
    """The hook's status, and what the service was asked. None: it never answers."""
    questions: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(head.told / "outriderd.sock"))
        listener.listen()
        listener.settimeout(20)
        is_over = threading.Event()

        def serve() -> None:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return
            with connection:
                questions.append(connection.recv(1 << 20))
                if answer is None:
                    is_over.wait(20)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        # One that is started again, as jobs of a first start are not asked about.
        given = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_RESTART_COUNT": "1", **changes}
        status = head.run("PrologSlurmctld", **given).returncode
        is_over.set()
        thread.join()
    os.unlink(head.told / "outriderd.sock")
    return status, questions


def test_job_waits_only_if_the_service_says_so(head: Node) -> None:
    wait, go = asked(head, verdict("wait")), asked(head, verdict("go"))

    assert (wait[0], go[0]) == (1, 0)
    question = wait[1][0]
    assert question.startswith(b"POST /v1/starting HTTP/1.0\r\n")
    assert json.loads(question.partition(b"\r\n\r\n")[2]) == {"job": "17", "nodes": ["n1", "n2", "n3"]}


def test_head_that_leads_is_asked_where_this_one_stands_by(head: Node) -> None:
    """As `outrider_client` would: another machine believes nobody but MUNGE."""
    body = json.dumps({"job": "17", "nodes": ["n1", "n2", "n3"]}, separators=(",", ":")).encode()
    program, payload = head.folder / "munge", head.folder / "payload"
    program.write_text(f"#!/bin/sh\n/usr/bin/cat >{payload}\necho MUNGE:word:\n")
    program.chmod(0o755)
    head.patch("PrologSlurmctld", '"/usr/bin/munge"', f'"{program}"')
    with socket.create_server(("127.0.0.1", 0)) as leader:
        leader.settimeout(20)
        heard: list[bytes] = []

        def lead() -> None:
            connection, _ = leader.accept()
            with connection:
                heard.append(connection.recv(1 << 20))
                connection.sendall(verdict("wait"))

        thread = threading.Thread(target=lead)
        thread.start()
        address = f"127.0.0.1:{leader.getsockname()[1]}"
        status, _ = asked(head, f"HTTP/1.1 503 x\r\n{LEADER_HEADER}: {address}\r\n\r\n{{}}".encode())
        thread.join()

    assert status == 1
    assert b"\r\nAuthorization: MUNGE MUNGE:word:\r\n" in heard[0]
    assert heard[0].endswith(b"\r\n\r\n" + body)
    assert payload.read_text() == hash_request("POST", "/v1/starting", "", body)


def test_job_begins_where_nobody_leads(head: Node) -> None:
    nobody, dead = (
        asked(head, f"HTTP/1.1 503 x\r\n{more}\r\n{{}}".encode())
        for more in ("", f"{LEADER_HEADER}: 127.0.0.1:1\r\n")
    )

    assert (nobody[0], dead[0]) == (0, 0)


def begun(head: Node, **changes: str) -> tuple[int, list[str]]:
    """The status for a first start with a ticket, and the programs that it took."""
    given = {"SLURM_JOB_NODELIST": "n1", **changes}
    trace = head.folder / "trace"
    watch = ("strace", "-f", "-qq", "-e", "trace=execve", "-o", str(trace))
    done = head.run_under(watch, "PrologSlurmctld", **given)
    started = [line for line in trace.read_text().splitlines() if "execve(" in line and " = 0" in line]
    return done.returncode, started[1:]


def test_nobody_is_asked_where_the_service_has_given_its_word(head: Node) -> None:
    in_reservation = {"SLURM_JOB_COMMENT": "", "SLURM_JOB_RESERVATION": "render-1"}
    released = begun(head)
    unknown = begun(head, **in_reservation)
    (head.told / "begin").mkdir()
    (head.told / "begin" / "render-1").touch()
    ready = begun(head, **in_reservation)
    waiting = begun(head, SLURM_JOB_COMMENT="outrider-ticket=none", SLURM_JOB_RESERVATION="render-1")

    assert (released, ready, waiting) == ((0, []), (0, []), (0, []))
    assert unknown[1] != []


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_COMMENT": "mine outrider-ticket=none"},
        {"SLURM_JOB_RESTART_COUNT": "2"},
        {"SLURM_JOB_RESERVATION": "render-2"},
        {"SLURM_JOB_RESERVATION": "../begin/render-1"},
        {"SLURM_JOB_RESERVATION": "render-1,render-2"},
        {"SLURM_JOB_COMMENT": "", "SLURM_JOB_RESERVATION": "maintenance"},
    ],
)
def test_any_other_job_with_something_of_ours_is_asked_about(head: Node, changes: dict[str, str]) -> None:
    (head.told / "begin").mkdir()
    (head.told / "begin" / "render-1").touch()
    first_start = {"SLURM_JOB_RESTART_COUNT": "0", **changes}

    assert asked(head, verdict("wait"), **first_start)[0] == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        b"HTTP/1.1 500 Internal Server Error\r\n\r\n" + b'{"verdict":"wait"}',
        b"HTTP/1.1 403 Forbidden\r\n\r\n{}",
        answered("[]"),
        answered("{"),
        answered('{"verdict":7}'),
        answered('{"verdict":"explode"}'),
        answered("[" * 60_000),
    ],
)
def test_senseless_answer_keeps_no_job_from_starting(head: Node, answer: bytes) -> None:
    assert asked(head, answer)[0] == 0


def test_silent_service_keeps_no_job_from_starting(head: Node) -> None:
    begin_s = CLOCK.monotonic_s()
    status, questions = asked(head, None)
    took_s = CLOCK.monotonic_s() - begin_s

    assert (status, len(questions)) == (0, 1)
    assert took_s < 10


def test_head_without_a_service_or_without_python_lets_jobs_start(head: Node) -> None:
    again = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_RESTART_COUNT": "1"}
    alone = head.run("PrologSlurmctld", **again)
    head.patch("PrologSlurmctld", "/usr/bin/python3 -I", "/usr/bin/no-python -I")
    bare = head.run("PrologSlurmctld", **again)

    assert (alone.returncode, bare.returncode) == (0, 0)


@pytest.mark.parametrize("text", ["", "n[", "n[1-", "n[a-b]", "n[1-99999999]", "[" * 1000])
def test_list_of_nodes_that_is_none_keeps_no_job_from_starting(head: Node, text: str) -> None:
    again = {"SLURM_JOB_NODELIST": text, "SLURM_JOB_RESTART_COUNT": "1"}

    assert head.run("PrologSlurmctld", **again).returncode == 0


def test_nodes_are_named_one_by_one(head: Node) -> None:
    script = head.hooks["PrologSlurmctld"]
    program = f"import runpy, sys; print(*runpy.run_path({str(script)!r})['expanded'](sys.argv[1]))"
    found = {
        text: subprocess.run(
            ["/usr/bin/python3", "-I", "-S", "-c", program, text], capture_output=True, text=True, timeout=240
        ).stdout.split()
        for text in ("head", "n[1-3,07-08],head", "r[0-1]n[2-3]", "a-b,c.d")
    }

    assert found["head"] == ["head"]
    assert found["n[1-3,07-08],head"] == ["n1", "n2", "n3", "n07", "n08", "head"]
    assert found["r[0-1]n[2-3]"] == ["r0n2", "r0n3", "r1n2", "r1n3"]
    assert found["a-b,c.d"] == ["a-b", "c.d"]


def test_hooks_are_right_for_every_shell_that_may_be_sh(head: Node) -> None:
    for shell in ("dash", "bash"):
        for hook in ("Prolog", "TaskProlog", "Epilog"):
            done = subprocess.run([shell, "-n", str(head.hooks[hook])], capture_output=True, timeout=240)
            assert (done.returncode, done.stderr) == (0, b"")
