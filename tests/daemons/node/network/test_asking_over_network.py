"""Asking over the network: what the caller does not believe, and what it says if it gets no answer."""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import closing

import pytest

from cachemgr.base.errors import NoDaemon
from cachemgr.daemon.verbs import requests
from cachemgr.network import channel
from cachemgr.network.remote import RemoteClient
from tests.daemons.node.daemons import CLOCK

KEY = b"k" * 32


def line_of(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(1)
        if not data:
            return received
        received += data
    return received


def test_other_side_without_the_key_is_not_believed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        greeted = b"welcome " + b"0" * 64 + b"\n"

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(channel.greeting(bytes(32)))
                line_of(connection)
                connection.sendall(greeted)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(NoDaemon, match="cannot prove to have the site's key"):
            RemoteClient("127.0.0.1", listener.getsockname()[1], [KEY])
        thread.join()


def test_proof_of_the_caller_is_none_of_the_daemon() -> None:
    transcript = channel.Transcript("a" * 64, "b" * 64, "n1")
    echo = f"welcome {transcript.caller_proof(KEY)}\n".encode()

    assert channel.check_welcome(echo, transcript, KEY) == "proof"


def test_answer_that_is_meddled_with_is_not_believed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def meddle() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(channel.greeting(bytes(32)))
                transcript, _ = channel.read_introduction(line_of(connection), "00" * 32)
                connection.sendall(channel.welcome(transcript, KEY))
                line_of(connection)
                ours, _ = transcript.daemon_seals(KEY)
                good = ours.seal(requests.answer({"ok": True, "result": {"pid": 1}}))
                connection.sendall(good.replace(b'"pid":1', b'"pid":2'))

        thread = threading.Thread(target=meddle)
        thread.start()
        client = RemoteClient("127.0.0.1", listener.getsockname()[1], [KEY])
        with client, pytest.raises(NoDaemon, match="cannot be trusted"):
            client.ask("ping")
        thread.join()


def test_greeting_that_takes_too_long_is_given_up() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        begin_s = CLOCK.monotonic_s()
        with pytest.raises(NoDaemon, match="did not greet"):
            RemoteClient("127.0.0.1", listener.getsockname()[1], [KEY], connect_s=0.3)
        took_s = CLOCK.monotonic_s() - begin_s

    assert took_s < 10


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ECONNREFUSED, "nothing listens there: start cachemgr.service"),
        (errno.EHOSTUNREACH, "no route leads there"),
        (errno.ENETUNREACH, "look at this machine's network"),
        (errno.ETIMEDOUT, "behind a firewall"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_node_that_cannot_be_reached_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def fail(*arguments: object, **options: object) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "create_connection", fail)

    with pytest.raises(NoDaemon, match=said):
        RemoteClient("127.0.0.1", 7011, [KEY])


def test_name_without_an_address_is_said() -> None:
    with pytest.raises(NoDaemon, match="has no address"):
        RemoteClient("no-such-node.invalid", 7011, [KEY])
