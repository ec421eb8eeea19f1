"""Who shows no ticket to the relay, and comes in numbers: those who have one are served all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from cachemgr.network.strangers import Strangers, unread
from tests.unit.cachemgr.relay.test_relay_server import DATA, DIGEST, Node, Start, start, ticket, until

__all__ = ["start"]
MANY = 200


def dial_from(node: Node, host: str) -> socket.socket:
    address = ("127.0.0.1", node.relay.port)
    return socket.create_connection(address, timeout=240, source_address=(host, 0))


@pytest.mark.parametrize("said", [b"", b"GET /v1/ima"], ids=["silent", "half a head"])
def test_crowd_that_says_nothing_keeps_no_ticket_of_its_own_address_out(start: Start, said: bytes) -> None:
    node = start()
    node.add()
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(node.dial()).sendall(said)
        status, body, _ = node.ask(Authorization=ticket())

    assert (status, body) == (200, DATA)


def test_crowds_of_ten_addresses_keep_no_ticket_out(start: Start) -> None:
    node = start()
    node.add()
    with ExitStack() as stack:
        for number in range(MANY):
            stack.enter_context(dial_from(node, f"127.0.0.{10 + number % 10}"))
        answers = [node.ask(Authorization=ticket())[0] for _ in range(3)]
        until(lambda: node.relay.connections <= 64 + 3, "only so many are waited for")

    assert answers == [200] * 3


def test_crowd_that_dials_again_and_again_keeps_no_ticket_out(start: Start) -> None:
    node = start()
    node.add()
    is_over = threading.Event()

    def dial_again_and_again() -> None:
        while not is_over.is_set():
            with suppress(OSError), ExitStack() as stack:
                for _ in range(40):
                    stack.enter_context(node.dial())

    crowd = [threading.Thread(target=dial_again_and_again) for _ in range(2)]
    for thread in crowd:
        thread.start()
    answers = []
    for _ in range(5):
        with suppress(OSError):
            answers.append(node.ask("HEAD", Authorization=ticket())[0])
    is_over.set()
    for thread in crowd:
        thread.join(60)

    assert 200 in answers


def test_wrong_tickets_take_no_place_of_right_ones(start: Start) -> None:
    node = start(most_connections=2, most_connections_a_host=2)
    node.add()
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(node.dial())
            sock.sendall(f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: Outrider 1.2\r\n\r\n".encode())
            assert sock.recv(12) == b"HTTP/1.1 401"
        status, _, _ = node.ask(Authorization=ticket())

    assert status == 200


def test_whoever_shows_no_ticket_goes_after_some_seconds_whatever_is_said(start: Start) -> None:
    node = start(stranger_s=0.5)
    with node.dial() as sock:
        asked = 0
        with suppress(OSError):
            for _ in range(100_000):
                sock.sendall(b"HEAD /v1/nothing HTTP/1.1\r\n\r\n")
                asked += 1
                if not sock.recv(4096):
                    break

    until(lambda: node.relay.connections == 0, "the connection is gone")
    assert asked < 100_000


def test_who_takes_no_answer_to_a_wrong_ticket_is_not_waited_for(start: Start) -> None:
    node = start(stranger_s=0.5)
    with node.dial() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0.2)
        with suppress(OSError):
            for _ in range(2000):
                sock.sendall(b"GET /v1/nothing HTTP/1.1\r\n\r\n" * 100)

        until(lambda: node.relay.connections == 0, "the connection is gone")

    assert node.relay.connections == 0


def test_who_needs_no_ticket_takes_no_place_of_who_has_one(start: Start) -> None:
    node = start(serves_public=True, most_connections=4, most_connections_a_host=4)
    node.add(valid_bytes=300_000, is_public=True)
    with ExitStack() as stack:
        told = []
        for _ in range(4):
            sock = stack.enter_context(node.dial())
            sock.sendall(f"GET /v1/images/{DIGEST} HTTP/1.1\r\n\r\n".encode())
            told.append(sock.recv(12))
        status, _, _ = node.ask("HEAD", Authorization=ticket())

    assert told == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 503"] * 2
    assert status == 200


def test_who_has_shown_a_ticket_is_a_stranger_no_more(start: Start) -> None:
    node = start(stranger_s=0.3)
    file = node.add(valid_bytes=300_000)
    with node.dial() as sock:
        head = f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: {ticket()}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode())
        received = sock.recv(65_536)
        for _ in range(80):
            with suppress(OSError), node.dial() as other:
                other.sendall(b"x")
        with node.dial() as later:
            assert later.recv(1) == b"", "a stranger's time is over"
        file.write(DATA[300_000:])
        while more := sock.recv(65_536):
            received += more

    assert received.partition(b"\r\n\r\n")[2] == DATA


def test_strangers_and_their_refusals_are_told_by_address(start: Start) -> None:
    node = start(most_strangers=4, most_strangers_a_host=2)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(node.dial())

        def rows() -> list[tuple[str, int, int, int]]:
            told = [each for each in node.relay.places.shares() if each.user == "127.0.0.1"]
            return [(each.thing, each.held, each.most, each.refused) for each in told]

        # One goes, then the third has its place: between the two one place is free.
        expected = [("relay connections without a ticket", 2, 2, 1)]
        until(lambda: rows() == expected, "one had to go", rows)

        assert rows() == expected


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(4)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


def table(most: int = 2, most_of_host: int = 2) -> Strangers:
    return Strangers(
        "x", most=most, most_of_host=most_of_host, has_spoken=lambda sock: b"\n" in unread(sock, 100)
    )


def test_oldest_of_the_busiest_address_goes(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    (a, _), (b, _), (c, _), (d, _) = pairs
    strangers = table(most=3, most_of_host=3)
    for sock, host in ((a, "quiet"), (b, "busy"), (c, "busy")):
        strangers.enter(sock, host)

    assert strangers.enter(d, "new")
    assert [strangers.leave(each) for each in (a, b, c, d)] == [True, False, True, True]


def test_who_has_spoken_or_is_being_heard_does_not_go(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    (a, far), (b, _), (c, _), _ = pairs
    strangers = table()
    far.sendall(b"ticket\n")
    strangers.enter(a, "host")
    strangers.enter(b, "host")
    strangers.hear(b)

    assert not strangers.enter(c, "host")
    assert strangers.leave(a)
    assert strangers.leave(b)


def test_looking_at_what_is_unread_takes_nothing_and_does_not_wait(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    near, far = pairs[0]
    near.settimeout(20)
    before = unread(near, 10)
    far.sendall(b"abc")

    assert (before, unread(near, 2), near.recv(10)) == (b"", b"ab", b"abc")
