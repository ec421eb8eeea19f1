"""Clients that mean no good: each is refused or dropped, and the others are served on."""

from __future__ import annotations

import array
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest
from cachemgr.daemon.network import line as lines
from cachemgr.daemon.verbs import requests
from cachemgr.protocol import NameRequest
from tests.daemons.node.daemons import Inside, as_user, eventually, needs_root

Start = Callable[..., Inside]


@pytest.fixture
def daemon(inside: Start) -> Inside:
    return inside()


@pytest.fixture
def line(daemon: Inside) -> Iterator[socket.socket]:
    with closing(dial(daemon)) as connection:
        yield connection


def dial(daemon: Inside) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(20)
    connection.connect(daemon.socket)
    return connection


def answer(connection: socket.socket) -> dict[str, Any]:
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(65_536)
        if not data:
            return {}
        received += data
    found: dict[str, Any] = json.loads(received)
    return found


@pytest.mark.parametrize(
    "text",
    [
        b"garbage",
        b"\xff\xfe\x00",
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"v":1}',
        b'{"v":2,"do":"ping"}',
        b'{"v":1,"do":7}',
        b'{"v":1,"do":"explode"}',
        b'{"v":1,"do":"ping","extra":1}',
        b'{"v":1,"do":"find"}',
        b'{"v":1,"do":"find","name":7}',
        b'{"v":1,"do":"find","name":"\\u0000"}',
        b'{"v":1,"do":"find","name":""}',
        b'{"v":1,"do":"pin","name":"a","owner":"b","until_s":1e400}',
        b'{"v":1,"do":"pin","name":"a","owner":"b","until_s":NaN}',
        b'{"v":1,"do":"pin","name":"a","owner":"b","until_s":true}',
        b'{"v":1,"do":"pin","name":"a","owner":"b","until_s":-5}',
        b'{"v":1,"do":"pin","name":"a","owner":"b","until_s":99999999999999999999999}',
        b'{"v":1,"do":"instance","name":"a","owner":"b","until_s":9,"context":[]}',
        b'{"v":1,"do":"add","uri":"gopher://x/y"}',
        b'{"v":1,"do":"add","uri":"http://x/y","readers":{"uids":["root"]}}',
    ],
)
def test_senseless_line_is_refused_and_the_connection_goes_on(line: socket.socket, text: bytes) -> None:
    line.sendall(text + b"\n")
    refused = answer(line)
    line.sendall(b'{"v":1,"do":"ping"}\n')

    assert refused["ok"] is False
    assert refused["error"] == "bad-request"
    assert answer(line)["ok"] is True


def test_line_of_a_mebibyte_ends_the_connection(daemon: Inside, line: socket.socket) -> None:
    try:
        line.sendall(b'{"v":1,"do":"' + b"a" * (1 << 20))
    except OSError:
        """The daemon stopped listening in the middle, as it should."""
    try:
        refused = answer(line)
    except ConnectionResetError:
        refused = {}

    assert refused.get("error", "bad-request") == "bad-request"
    assert daemon.ask("ping")["pid"] == os.getpid()


def test_deep_nesting_is_refused_before_it_is_parsed(line: socket.socket) -> None:
    line.sendall(b'{"v":1,"do":"instance","context":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n")

    assert "nested deeper" in answer(line)["message"]


def test_brackets_in_a_text_are_no_nesting() -> None:
    deep = json.dumps({"v": 1, "do": "find", "name": '[{"' * 40}).encode()

    assert requests.parse(deep).read(NameRequest).name == '[{"' * 40


@pytest.mark.parametrize("depth", [requests.MOST_NESTING, requests.MOST_NESTING + 1])
def test_nesting_has_an_exact_bound(depth: int) -> None:
    text = b'{"v":1,"do":"x","y":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    if depth <= requests.MOST_NESTING:
        assert requests.parse(text).verb == "x"
    else:
        with pytest.raises(BadRequest, match="nested"):
            requests.parse(text)


def test_half_a_line_has_a_bounded_time(daemon: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "REQUEST_S", 0.1)
    with closing(dial(daemon)) as slow:
        slow.sendall(b'{"v":1,')
        refused = answer(slow)

        assert "not complete within 0.1 s" in refused["message"]
        assert slow.recv(1) == b""


def test_a_byte_now_and_then_does_not_extend_the_time(
    daemon: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "REQUEST_S", 0.2)
    refused: dict[str, Any] = {}
    with closing(dial(daemon)) as slow:
        slow.settimeout(0.02)
        for _ in range(200):
            try:
                slow.sendall(b" ")
                refused = answer(slow)
                break
            except TimeoutError:
                continue

    assert refused["error"] == "bad-request"


def test_who_hangs_up_before_the_answer_disturbs_nobody(daemon: Inside) -> None:
    for text in (b"", b'{"v":1,"do":"ls"}\n', b'{"v":1,"do":"l'):
        with closing(dial(daemon)) as rude:
            rude.sendall(text)

    assert daemon.ask("ping")["pid"] == os.getpid()
    eventually("connections are closed", lambda: "Traceback" not in daemon.log(), daemon.log)


def test_several_requests_in_one_packet_are_answered_in_order(line: socket.socket) -> None:
    line.sendall(b'{"v":1,"do":"ping"}\n{"v":1,"do":"nothing"}\n')
    received = b""
    while received.count(b"\n") < 2:
        received += line.recv(65_536)
    first, second = (json.loads(each) for each in received.splitlines())

    assert (first["ok"], second["ok"]) == (True, False)


def test_two_hundred_connections_leave_root_its_place(daemon: Inside) -> None:
    needs_root()
    path, most = daemon.socket, daemon.config.user_connections

    def crowd() -> list[int]:
        opened = []
        for _ in range(200):
            each = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            each.settimeout(5)
            each.connect(path)
            opened.append(each)
        told = 0
        for each in opened[most:]:
            told += b"ask the administrator for user_connections" in each.recv(4096)
        opened[0].sendall(b'{"v":1,"do":"ping"}\n')
        return [told, len(opened[0].recv(4096))]

    told, answered = as_user(1234, crowd)["gives"]

    assert told == 200 - most
    assert answered > 0
    assert daemon.ask("ping")["pid"] == os.getpid()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_sent_along_are_closed_again(daemon: Inside) -> None:
    eventually("the index is open", lambda: daemon.ask("ping")["is_index_ready"], daemon.log)
    before = descriptors()
    for text in (b'{"v":1,"do":"ping"}\n', b"garbage\n", b"half a line") * 5:
        with closing(dial(daemon)) as sender, open("/dev/null") as file:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
            sender.sendmsg([text], rights)
            if text.endswith(b"\n"):
                answer(sender)

    # A connection that is just ending may still count, fifteen descriptors cannot hide.
    eventually("as many as before", lambda: descriptors() <= before + 2, daemon.log)
    assert daemon.ask("ping")["pid"] == os.getpid()


def test_more_descriptors_than_allowed_are_refused_and_closed(daemon: Inside) -> None:
    eventually("the index is open", lambda: daemon.ask("ping")["is_index_ready"], daemon.log)
    before = descriptors()
    with closing(dial(daemon)) as sender, open("/dev/null") as file:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 20))]
        sender.sendmsg([b'{"v":1,"do":"ping"}\n'], rights)
        refused = answer(sender)

    assert "at most 1 open file" in refused["message"]
    eventually("as many as before", lambda: descriptors() <= before + 2, daemon.log)


def test_values_of_users_end_no_line_of_the_log(daemon: Inside) -> None:
    with closing(dial(daemon)) as sender:
        sender.sendall(b'{"v":1,"do":"find","name":"a\\u2028b"}\n')
        answer(sender)
        sender.sendall(json.dumps({"v": 1, "do": "x\nerror forged=1"}).encode() + b"\n")
        answer(sender)

    assert not any(each.startswith("error forged") for each in daemon.log().splitlines())


def test_connection_for_which_there_is_no_thread_is_refused_and_the_next_is_served(
    daemon: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("guest "):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with closing(dial(daemon)) as unlucky:
            refused = answer(unlucky)

    assert refused["error"] == "busy"
    assert daemon.ask("ping")["pid"] == os.getpid()
