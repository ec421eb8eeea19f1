"""What is too large, too deep, too slow or too much is refused, and nobody else notices."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from outrider.service.answers.images import ImageList, ImageOnNodes
from outrider.service.answers.records import DecisionList
from outrider.service.web.limits import Limits
from outrider.service.web.requests.strictjson import JsonError, parse_json
from tests.unit.service.web.apiserver import (
    DECISION,
    DIGEST,
    WORKSPACE,
    ScriptedFront,
    Server,
    UnixConnection,
    check_error,
    done,
    wait_until,
)
from tests.unit.service.web.siteanswers import STATUS

MIB = 1024 * 1024
Serve = Callable[..., Server]


def received(connection: socket.socket) -> bytes:
    """All until the server closes."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def test_body_of_more_than_a_mebibyte_is_refused_by_its_length(api: Server, front: ScriptedFront) -> None:
    reply = api.send("POST", "/v1/plans", b"{" + b" " * MIB + b"}")

    assert check_error(reply, 413, "invalid")
    assert front.asked == []


def test_body_that_does_not_tell_its_length_is_counted(api: Server) -> None:
    connection = api.connect()
    connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")

    def send() -> None:
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        try:
            for _ in range(64):
                connection.sendall(chunk)
        except OSError:
            return

    sender = threading.Thread(target=send)
    sender.start()
    head = connection.recv(65_536)
    sender.join()
    connection.close()

    assert head.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b'{"workspace": NaN}', "NaN"),
        (b'{"workspace": Infinity}', "Infinity"),
        (b'{"workspace": -Infinity}', "Infinity"),
        (b'{"workspace": "\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"workspace": ""}', "BOM"),
        (b'{"workspace": "\\ud800"}', "half of a character"),
        (b'{"workspace": "", "workspace": ""}', "twice"),
        (b'{"nodes": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"nodes": 1e400}', "whole number"),
        (b"[" * 33 + b"]" * 33, "nested"),
        (b"[" * 100_000, "nested"),
        (b"[" + b"0," * 20_001 + b"0]", "20000"),
        (b'{"workspace": "' + b'\\"' * 100_000, "not JSON"),
        (b"\x00", "not JSON"),
    ],
)
def test_json_that_others_may_read_differently_is_refused(api: Server, body: bytes, words: str) -> None:
    found = check_error(api.send("POST", "/v1/plans", body), 400, "invalid")

    assert words in found["message"]


def test_brackets_in_a_text_are_no_depth() -> None:
    assert parse_json(b'{"a": "' + b"[" * 1000 + b'\\"{"}') == {"a": "[" * 1000 + '"{'}
    assert parse_json(b"[" * 32 + b"]" * 32)


def test_reading_hostile_json_takes_one_pass() -> None:
    began_s = time.perf_counter()
    for body in (
        b'"' + b'\\"' * (MIB // 2),
        b'"' * MIB,
        b"\\" * MIB,
        b'{"a":' * (MIB // 5),
        b"[]," * (MIB // 3),
    ):
        with pytest.raises(JsonError):
            parse_json(body)

    # Going back over a mebibyte would take minutes.
    assert time.perf_counter() - began_s < 5


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""]
)
def test_body_that_is_not_declared_as_json_is_refused(api: Server, kind: str) -> None:
    assert check_error(api.send("POST", "/v1/plans", b"{}", Content_Type=kind), 415, "invalid")


def test_declared_charset_is_accepted(api: Server) -> None:
    body = b'{"nodes": 3}'
    kind = "application/json; charset=UTF-8"

    assert api.send("PATCH", "/v1/reservations/render-17", body, Content_Type=kind).status == 200


@pytest.mark.parametrize("key", ["a b", "x" * 129, "käse", "a\tb"])
def test_key_of_another_form_is_refused(api: Server, key: str) -> None:
    assert check_error(api.get("/v1/status", Idempotency_Key=key), 400, "invalid")


@pytest.mark.parametrize("name", [b"Idempotency-Key", b"Authorization", b"Content-Type"])
def test_header_that_stands_twice_is_refused(api: Server, name: bytes) -> None:
    with api.connect() as connection:
        head = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        connection.sendall(head + (name + b": a\r\n") * 2 + b"\r\n")

        assert received(connection).startswith(b"HTTP/1.1 400 ")


def test_too_many_headers_are_refused(api: Server) -> None:
    headers = {f"X-{number}": "1" for number in range(70)}

    assert check_error(api.get("/v1/status", **headers), 431, "invalid")


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_head_that_is_too_large_is_refused_in_json(api: Server, size: int) -> None:
    with api.connect() as connection:
        head = b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
        answer = received(connection)

    assert answer[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")
    assert b'"code": "invalid"' in answer


def test_what_is_no_http_is_refused_in_json(api: Server) -> None:
    with api.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        answer = received(connection)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /v1/status HTTP/1.1\r\nHost:",
        b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_request_that_does_not_arrive_in_time_is_dropped(serve: Serve, sent: bytes) -> None:
    server = serve(limits=Limits(arrival_s=0.3))
    with server.connect() as connection:
        connection.sendall(sent)
        answer = received(connection)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
    assert server.get("/v1/status").status == 200


def test_request_that_comes_byte_by_byte_is_dropped(serve: Serve) -> None:
    server = serve(limits=Limits(arrival_s=0.4))
    pause = threading.Event()
    sent = 0
    with server.connect() as connection:
        try:
            for byte in b"GET /v1/status?" + b"a" * 1000:
                connection.sendall(bytes([byte]))
                sent += 1
                pause.wait(0.02)
        except OSError:
            pass

    assert sent < 500


def test_each_request_on_a_connection_has_its_own_time(serve: Serve) -> None:
    server = serve(limits=Limits(arrival_s=0.2))
    connection = UnixConnection(server.path)
    connection.connect()
    only = connection.sock
    until_s = time.perf_counter() + 0.6
    while time.perf_counter() < until_s:
        connection.request("GET", "/v1/status")
        assert connection.getresponse().read().startswith(b"{")

    assert connection.sock is only
    connection.close()


def test_client_that_does_not_read_is_cut_off(serve: Serve) -> None:
    server = serve(limits=Limits(unread_s=0.3))
    image = ImageOnNodes(
        digest=DIGEST,
        uri="u" * 2000,
        size_bytes=1,
        nodes="n1",
        node_count=1,
        coming_nodes="",
        reservations=0,
        is_private=False,
    )
    server.front.answers["ListImages"] = ImageList(images=(image,) * 1000, is_complete=True)
    with server.connect() as connection:
        connection.sendall(b"GET /v1/images HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: ("outrider_requests_total", "/v1/images", "200") in server.tally.counts)
        wait_until(lambda: server.open_connections == 0)
        try:
            taken = len(received(connection))
        except ConnectionResetError:
            taken = 0

    assert taken < 2_000_000


@pytest.fixture
def pending() -> Iterator[Future[Any]]:
    future: Future[Any] = Future()
    yield future
    if not future.done():
        future.set_result(STATUS)


def test_user_with_too_many_requests_under_way_is_told_to_wait(serve: Serve, pending: Future[Any]) -> None:
    server = serve(limits=Limits(requests_per_user=2))
    server.front.answers["ShowStatus"] = pending
    waiting = [threading.Thread(target=server.get, args=("/v1/status",)) for _ in range(2)]
    for each in waiting:
        each.start()
    wait_until(lambda: len(server.front.asked) == 2)
    refused = server.get("/v1/images")
    pending.set_result(STATUS)
    for each in waiting:
        each.join()

    assert check_error(refused, 503, "busy")
    assert refused.headers["retry-after"] == "1"
    assert server.get("/v1/images").status == 200


def test_bodies_of_all_together_are_bounded(serve: Serve, pending: Future[Any]) -> None:
    server = serve(limits=Limits(bodies_bytes=2000))
    server.front.answers["Reserve"] = pending
    waiting = threading.Thread(target=server.post, args=("/v1/plans", {"workspace": WORKSPACE + "#" * 1500}))
    waiting.start()
    wait_until(lambda: len(server.front.asked) == 1)
    refused = server.post("/v1/submissions", {"argv": ["true", "x" * 500]})
    pending.set_result(DECISION)
    waiting.join()

    assert check_error(refused, 503, "busy")
    assert server.post("/v1/submissions", {"argv": ["true", "x" * 500]}).status == 201


def test_bodies_of_one_host_leave_memory_to_others(serve: Serve) -> None:
    server = serve(limits=Limits(body_bytes=1_000, bodies_bytes=4_000))
    head = (
        b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 990\r\n\r\n"
    )
    with server.connect_tcp() as first, server.connect_tcp() as second:
        first.sendall(head + b" " * 900)
        wait_until(lambda: sum(share.held for share in server.shares()) >= 900)
        second.sendall(head + b" " * 900)
        refused = received(second)
        answer = server.post("/v1/submissions", {"argv": ["true", "x" * 900]})

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert answer.status == 201


def test_long_polls_beyond_a_users_share_are_answered_at_once(serve: Serve) -> None:
    server = serve(limits=Limits(polls_per_user=1, poll_every_s=0.05))
    server.front.answers["ListDecisions"] = DecisionList(decisions=(), last=5)
    with server.connect() as connection:
        connection.sendall(b"GET /v1/decisions?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(server.front.asked) > 1)
        began_s = time.perf_counter()
        second = server.get("/v1/decisions?wait=30")

    assert second.status == 200
    assert time.perf_counter() - began_s < 15


def test_user_with_too_many_connections_is_refused_but_for_probes(serve: Serve) -> None:
    server = serve(limits=Limits(connections_per_user=2))
    first, second = server.connect(), server.connect()
    for each in (first, second):
        each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert each.recv(65_536).startswith(b"HTTP/1.1 200 ")
    refused, probed = server.get("/v1/status"), server.get("/readyz")
    first.close()
    second.close()

    assert check_error(refused, 503, "busy")
    assert probed.status == 200
    wait_until(lambda: server.get("/v1/status").status == 200)


def test_answer_that_does_not_come_is_given_up(serve: Serve, pending: Future[Any]) -> None:
    server = serve(limits=Limits(answer_s=0.2))
    server.front.answers["Reserve"] = pending
    found = check_error(
        server.post("/v1/reservations", {"workspace": WORKSPACE}, Idempotency_Key="k"), 503, "unavailable"
    )

    assert "Idempotency-Key" in found["message"]
    assert not pending.cancelled()


def test_long_poll_ends_when_the_client_hangs_up(serve: Serve) -> None:
    server = serve(limits=replace(Limits(requests_per_user=1), poll_every_s=0.05))
    server.front.answers["ListDecisions"] = DecisionList(decisions=(), last=5)
    with server.connect() as connection:
        connection.sendall(b"GET /v1/decisions?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(server.front.asked) > 2)
        busy = server.get("/v1/status").status

    assert busy == 503
    wait_until(lambda: server.get("/v1/status").status == 200)


def test_server_stops_while_somebody_waits_for_decisions(serve: Serve) -> None:
    server = serve()
    server.front.answers["ListDecisions"] = DecisionList(decisions=(), last=5)
    with server.connect() as connection:
        connection.sendall(b"GET /v1/decisions?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(server.front.asked) > 0)
        began_s = time.perf_counter()
        server.stop()
        answer = received(connection)

    assert time.perf_counter() - began_s < 4
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_answer_after_nobody_waits_is_no_fault(serve: Serve) -> None:
    server = serve(limits=Limits(answer_s=0.1))
    late: Future[Any] = Future()
    server.front.answers["ShowStatus"] = late
    first = server.get("/v1/status").status
    late.set_exception(RuntimeError("late"))
    server.front.answers["ShowStatus"] = done(STATUS)

    assert (first, server.get("/v1/status").status) == (503, 200)
    assert server.tally.lines == []
