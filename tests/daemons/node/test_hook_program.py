"""The hook client as prologs run it: a program of its own, under every Python that is here."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemgr import protocol
from cachemgr.base.errors import CacheError, NoDaemon
from cachemgr.daemon.verbs.requests import parse
from cachemgr.hook import read_options, request_line
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier, pythons
from tests.repository import ROOT

Start = Callable[..., Inside]
HOOK = str(ROOT / "cachemgr" / "hook.py")
A = "http://x/a"


def hook(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run as a batch system does: no environment, another working directory."""
    command = [python, "-I", "-S", HOOK, *arguments]
    return subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, timeout=240)


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier) -> Inside:
    carrier.contents = {A: b"a" * MIB}
    found = inside()
    found.ask("add", uri=A)
    found.settle()
    return found


@pytest.mark.parametrize("python", pythons())
def test_job_gets_its_instance_and_gives_it_back(daemon: Inside, python: str) -> None:
    where = ["--socket", daemon.socket]
    until = str(CLOCK.now_s() + 600)
    prepare = ["prepare", "--owner", "job:7", "--image", A, "--uid", "1000", "--until", until, *where]
    first, second = hook(*prepare, python=python), hook(*prepare, python=python)
    with open(first.stdout.strip(), "rb") as file:
        content = file.read()
    released, again = (hook("release", "--owner", "job:7", *where, "--json", python=python) for _ in range(2))

    assert (first.returncode, first.stderr) == (0, "")
    assert second.stdout == first.stdout
    assert content == b"a" * MIB
    assert json.loads(released.stdout)["result"] == {"removed": 1, "pins": 0}
    assert json.loads(again.stdout)["result"] == {"removed": 0, "pins": 0}
    assert (released.returncode, again.returncode) == (0, 0)


@pytest.mark.parametrize("python", pythons())
def test_two_modules_are_imported_and_no_more(python: str) -> None:
    program = (
        "import sys; before = set(sys.modules); sys.argv = ['hook.py']\n"
        f"source = compile(open({HOOK!r}, 'rb').read(), 'hook.py', 'exec')\n"
        "exec(source, {'__name__': 'hook'}); print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([python, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=240)

    assert done.stderr == ""
    assert set(done.stdout.split()) - {"__future__", "posix"} == {"_json", "_socket"}


def test_names_with_any_characters_travel_safely(daemon: Inside) -> None:
    name = 'a"b\\c\u20ac\U0001f600 {"x":[1]}'
    done = hook("prepare", "--owner", name, "--image", name, "--until", "1", "--socket", daemon.socket)

    assert done.returncode == 3
    assert done.stderr.startswith("outrider: image a")


def test_label_and_read_only_reach_the_daemon(daemon: Inside) -> None:
    until = str(CLOCK.now_s() + 600)
    common = ["prepare", "--owner", "o", "--image", A, "--until", until, "--socket", daemon.socket, "--json"]
    one = json.loads(hook(*common, "--label", "a", "--method", "copy").stdout)["result"]
    two = json.loads(hook(*common, "--label", "b", "--read-only", "--method", "shared").stdout)["result"]

    assert (one["label"], one["is_writable"], one["method"]) == ("a", True, "copy")
    assert (two["label"], two["is_writable"], two["method"]) == ("b", False, "shared")


def test_error_of_the_daemon_is_the_exit_status(daemon: Inside) -> None:
    for fields, verb in (({"name": "none"}, "find"), ({"name": A}, "explode"), ({}, "find")):
        with DaemonClient(daemon.socket) as client, pytest.raises(CacheError) as found:
            client.ask(verb, fields)
        assert found.value.exit_code in (2, 3)
    missing = hook("prepare", "--owner", "o", "--image", "none", "--until", "9", "--socket", daemon.socket)

    assert missing.returncode == 3
    assert missing.stderr == "outrider: image none is not in the pool: add it first\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["prepare"],
        ["prepare", "--owner", "o", "--image", "i"],
        ["prepare", "--owner", "o", "--image", "i", "--until", "soon"],
        ["prepare", "--owner", "o", "--image", "i", "--until", "1", "--uid", "-1"],
        ["release", "--owner"],
        ["release", "--owner", ""],
        ["release", "--image", "i", "--owner", "o"],
        ["ping", "extra"],
    ],
)
def test_wrong_options_are_told_from_all_else(arguments: list[str]) -> None:
    done = hook(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("outrider: ")


def test_absent_daemon_has_its_own_status(folder: Path) -> None:
    stale = folder / "stale"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as dead:
        dead.bind(str(stale))
    for path in (folder / "none", stale, folder):
        done = hook("ping", "--socket", str(path))
        assert (done.returncode, done.stdout) == (NoDaemon.exit_code, "")
        assert "no daemon answers" in done.stderr


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"hello\n",
        b"[]\n",
        b"{}\n",
        b'{"ok":true}\n',
        b'"ok"\n',
        b"{\n",
        b"\xff\n",
        b'{"ok":true,"result":1}\n',
    ],
)
def test_wrong_server_has_that_status_too(folder: Path, reply: bytes) -> None:
    path = str(folder / "other")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        done = hook("ping", "--socket", path)
        thread.join()

    assert done.returncode == NoDaemon.exit_code
    assert "Traceback" not in done.stderr


def test_silent_daemon_is_not_waited_for_for_ever(folder: Path) -> None:
    path = str(folder / "silent")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(1)
        begin_s = CLOCK.monotonic_s()
        done = hook("ping", "--socket", path, "--timeout", "1")
        took_s = CLOCK.monotonic_s() - begin_s

    assert done.returncode == NoDaemon.exit_code
    assert 1 <= took_s < 3


def test_word_about_copied_bytes_is_noted_and_the_answer_waited_for(folder: Path) -> None:
    path, noted = str(folder / "copying"), folder / "noted"
    noted.touch()
    word = b'{"progress":{"copied_bytes":%d,"size_bytes":%d}}\n'
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                # Two words may come at once, and half a line with them.
                connection.sendall(word % (MIB, 9 * MIB) + word % (5 * MIB, 9 * MIB) + b'{"ok":true,')
                connection.sendall(b'"result":{"path":"/pool/disk"}}\n')

        thread = threading.Thread(target=serve)
        thread.start()
        done = hook("claim", "--socket", path, "--job", "17", "--uid", "1", "--progress", str(noted))
        thread.join()

    assert (done.returncode, done.stdout, done.stderr) == (0, "/pool/disk\n", "")
    assert noted.read_text() == "5 of 9 MiB are copied\n"


def test_hook_ends_at_its_limit_whatever_it_waits_for(folder: Path) -> None:
    path = str(folder / "silent")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(1)
        done = hook("ping", "--socket", path, "--timeout", "25", "--limit", "1")

    assert done.returncode == -signal.SIGALRM


def test_full_queue_of_a_hanging_daemon_is_given_two_seconds(folder: Path) -> None:
    path = str(folder / "full")
    crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(0)
        for each in crowd:
            each.setblocking(False)
            each.connect_ex(path)
        begin_s = CLOCK.monotonic_s()
        done = hook("ping", "--socket", path)
        took_s = CLOCK.monotonic_s() - begin_s
    for each in crowd:
        each.close()

    assert done.returncode == NoDaemon.exit_code
    assert 1.9 <= took_s < 5


@pytest.mark.parametrize(
    ("said", "verb", "message"),
    [
        (
            "prepare --owner o --image i --until 9 --label l --method m --read-only",
            "instance",
            protocol.InstanceRequest("i", "o", 9, label="l", method="m", is_writable=False),
        ),
        (
            "prepare --owner o --image i --until 9 --uid 3 --writable",
            "instance",
            protocol.InstanceRequest("i", "o", 9, 3, is_writable=True),
        ),
        (
            "claim --job 1 --task 2 --uid 3 --ticket t --reservation r --pinned --attempt 4 --until 5 "
            "--nodes a,b",
            "claim",
            protocol.ClaimRequest("1", 2, 4, 5, 3, "t", "r", True, ("a", "b")),
        ),
        ("release --owner o --label l --nodes a", "release", protocol.ReleaseRequest("o", "l", ("a",))),
        ("where --owner o", "instances", protocol.NoFields()),
        ("ping", "ping", protocol.NoFields()),
    ],
)
def test_hook_says_what_the_protocol_has(said: str, verb: str, message: Any) -> None:
    """It writes its requests by itself, since it imports nothing: every option arrives as what it means."""
    request = parse(request_line(*read_options(said.split())))

    assert (request.verb, request.read(type(message))) == (verb, message)
