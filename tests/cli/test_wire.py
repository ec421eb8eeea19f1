"""What comes over the socket is an answer, a cut-off one, or something strange; never half believed."""

from __future__ import annotations

import socket

import pytest

from outrider.cli.wire import MOST_HEAD_BYTES, CutOff, Reply, Strange, exchange


def answered(said: bytes, *, most_bytes: int = 1_000) -> tuple[Reply, bytes]:
    """What is made of an answer, and what was sent for it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.settimeout(5)
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        reply = exchange(
            ours, "POST", "/v1/plans", headers={"Accept": "a/b"}, content=b"{}", most_bytes=most_bytes
        )
        return reply, theirs.recv(10_000)


def test_request_is_sent_whole_with_its_length() -> None:
    _, sent = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nAccept: a/b\r\nContent-Length: 2\r\n\r\n"
    assert sent == head + b"{}"


def test_body_is_as_long_as_announced() -> None:
    reply, _ = answered(b"HTTP/1.1 503 Busy\r\nRETRY-After: 5 \r\nContent-Length: 3\r\n\r\nabcdef")

    assert reply == Reply(status=503, headers={"retry-after": "5", "content-length": "3"}, body=b"abc")


def test_body_without_length_ends_with_the_connection() -> None:
    reply, _ = answered(b"HTTP/1.0 200 OK\r\n\r\nabcdef")

    assert reply.body == b"abcdef"


@pytest.mark.parametrize("announced", [b"", b"Content-Length: 5000\r\n"])
def test_no_more_of_a_body_is_taken_than_allowed(announced: bytes) -> None:
    reply, _ = answered(b"HTTP/1.1 200 OK\r\n" + announced + b"\r\n" + b"x" * 5_000, most_bytes=100)

    assert reply.body == b"x" * 100


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 200 OK\r\nConte", b"HTT", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_answer_that_ends_too_early_is_cut_off(said: bytes) -> None:
    with pytest.raises(CutOff):
        answered(said)


def test_connection_that_ends_without_a_word_was_reset() -> None:
    with pytest.raises(ConnectionResetError):
        answered(b"")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 2 * MOST_HEAD_BYTES,
    ],
)
def test_what_is_no_answer_is_strange(said: bytes) -> None:
    with pytest.raises(Strange):
        answered(said)
