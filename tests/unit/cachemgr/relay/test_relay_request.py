"""Requests to the relay are read strictly: one meaning each, and no way to smuggle a second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.relay.request import RelayRequest, RequestRefused, parse_request

DIGEST = "sha256:" + "0a" * 32
TAG = f'"{DIGEST}"'


def request(**headers: str) -> RelayRequest:
    return RelayRequest("GET", f"/v1/images/{DIGEST}", headers, is_last=False)


def test_plain_request_is_read() -> None:
    found = parse_request(f"GET /v1/images/{DIGEST} HTTP/1.1\r\nHost: n1\r\nRange:  bytes=5- ".encode())

    assert (found.method, found.digest(), found.headers["range"]) == ("GET", DIGEST, "bytes=5-")
    assert not found.is_last


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET / HTTP/1.1 x", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET http://h/ HTTP/1.1", 400),
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\nHost : n1", 400),
        (b"GET / HTTP/1.1\r\n folded: x", 400),
        (b"GET / HTTP/1.1\r\nA: 1\r\na: 2", 400),
        (b"GET / HTTP/1.1\r\nA: x\ny: z", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1" + b"".join(b"\r\nH%d: x" % number for number in range(65)), 431),
    ],
)
def test_malformed_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_request(head)

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", f"/v1/images/{DIGEST}", 405),
        ("GET", "/v1/images/sha256:00", 404),
        ("GET", f"/v1/images/{DIGEST}/../x", 404),
        ("GET", f"/v1/images/{DIGEST.upper()}", 404),
        ("GET", f"/v1/images/{DIGEST}?x=1", 404),
        ("GET", "/etc/passwd", 404),
    ],
)
def test_only_images_by_digest_can_be_asked_for(method: str, target: str, status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        RelayRequest(method, target, {}, is_last=False).digest()

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("value", "span"),
    [
        ("bytes=0-", (0, 100)),
        ("bytes=10-19", (10, 20)),
        ("bytes=10-999", (10, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-999", (0, 100)),
        ("bytes=99-", (99, 100)),
        ("bytes=0-0,5-6", None),
        ("bytes=-", None),
        ("bytes=20-10", None),
        ("lines=1-2", None),
        ("", None),
    ],
)
def test_range_is_understood_or_left_alone(value: str, span: tuple[int, int] | None) -> None:
    assert request(range=value).span(100, TAG) == span


@pytest.mark.parametrize("value", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_range_outside_of_the_image_is_refused(value: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        request(range=value).span(100, TAG)

    assert caught.value.status == 416


def test_range_on_a_condition_that_does_not_hold_gives_the_whole() -> None:
    assert request(**{"range": "bytes=5-", "if-range": TAG}).span(100, TAG) == (5, 100)
    assert request(**{"range": "bytes=5-", "if-range": '"other"'}).span(100, TAG) is None


@pytest.mark.parametrize(
    ("version", "connection", "is_last"),
    [("1.1", "", False), ("1.1", "close", True), ("1.0", "", True), ("1.0", "keep-alive", False)],
)
def test_end_of_the_connection_is_agreed_on(version: str, connection: str, is_last: bool) -> None:
    found = parse_request(f"GET / HTTP/{version}\r\nConnection: {connection}".encode())

    assert found.is_last == is_last


@given(st.binary(max_size=200) | st.builds(lambda a: b"GET / HTTP/1.1\r\n" + a, st.binary(max_size=100)))
def test_any_bytes_are_a_request_or_refused(head: bytes) -> None:
    try:
        found = parse_request(head)
        found.span(100, TAG)
        found.digest()
    except RequestRefused as refused:
        status, target = refused.status, ""
    else:
        status, target = 200, found.target

    assert status in (200, 400, 404, 405, 416, 431, 505)
    assert (status == 200) == target.startswith("/v1/images/sha256:")
