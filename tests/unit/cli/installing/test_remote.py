"""What becomes of each way in which ssh to a node can fail; Fabric's connection is a mock here."""

from __future__ import annotations

import json
import socket
from typing import Any
from unittest.mock import MagicMock

import paramiko  # type: ignore[import-untyped]
import pytest
from pytest_mock import MockerFixture

from outrider.cli.installing.common.remote import MOST_ANSWER_BYTES, Login, RemoteError, SshRemote

KEY = paramiko.RSAKey.generate(1024)


@pytest.fixture
def connection(mocker: MockerFixture) -> MagicMock:
    """What every connection is; its channel answers nothing unless a test says what."""
    made: MagicMock = mocker.patch("fabric.Connection").return_value
    made.host = "n7"
    answer(made, b"")
    return made


def answer(connection: MagicMock, said: bytes, errors: bytes = b"") -> MagicMock:
    channel: MagicMock = connection.transport.open_session.return_value
    channel.recv.side_effect = [said, b""]
    channel.makefile_stderr.return_value.read.return_value = errors
    return channel


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (paramiko.BadHostKeyException("n7", KEY, KEY), "n7 has another host key than the known one"),
        (paramiko.AuthenticationException("no"), "n7 lets nobody in with the keys at hand"),
        (socket.gaierror(-2, "unknown"), "n7 has no address"),
        (TimeoutError("timed out"), "n7 is silent"),
        (EOFError(), "n7: EOFError: try ssh n7 true"),
        (paramiko.SSHException("Server 'n7' not found in known_hosts"), "n7: its host key is not known"),
        (paramiko.SSHException("No authentication methods available"), "n7: no key to log in with"),
    ],
)
def test_connection_that_cannot_be_made_is_said_with_a_remedy_and_closed(
    connection: MagicMock, error: Exception, words: str
) -> None:
    connection.open.side_effect = error

    with pytest.raises(RemoteError, match=words):
        SshRemote(Login()).call("n7", {"do": "look"})
    connection.close.assert_called_once_with()


def test_host_that_is_not_known_is_rejected_before_anything_is_sent(connection: MagicMock) -> None:
    answer(connection, b"{}")

    SshRemote(Login()).call("n7", {"do": "look"})

    (policy,) = connection.client.set_missing_host_key_policy.call_args.args
    assert isinstance(policy, paramiko.RejectPolicy)
    names = [call[0] for call in connection.mock_calls]
    assert names.index("client.set_missing_host_key_policy") < names.index("open")


def test_request_follows_the_program_and_a_greeting_before_the_answer_is_no_answer(
    connection: MagicMock,
) -> None:
    channel = answer(connection, b'Welcome to n7!\n{"files": {}}\n')

    found = SshRemote(Login(is_sudo=True)).call("n7", {"do": "look"})

    (sent,) = channel.sendall.call_args.args
    assert found == {"files": {}}
    assert sent.endswith(json.dumps({"do": "look"}).encode())
    assert channel.exec_command.call_args.args[0].startswith("sudo -n /usr/bin/python3 -I -S ")


@pytest.mark.parametrize(
    ("said", "errors", "words"),
    [
        (b"", b"python3: not found", "n7: Python there ended with: python3: not found"),
        (b"[]", b"", "n7 answers with something that is not an object"),
        (b'{"error": "no room"}', b"", "n7: no room"),
        (b"x" * (MOST_ANSWER_BYTES + 1), b"", "n7 answers with more than"),
    ],
)
def test_answer_that_is_none_is_an_error_with_the_nodes_name(
    connection: MagicMock, said: bytes, errors: bytes, words: str
) -> None:
    answer(connection, said, errors)

    with pytest.raises(RemoteError, match=words):
        SshRemote(Login()).call("n7", {"do": "look"})
    connection.close.assert_called_once_with()


def test_login_that_is_said_reaches_the_connection(mocker: MockerFixture) -> None:
    made: Any = mocker.patch("fabric.Connection")
    answer(made.return_value, b"{}")

    SshRemote(Login(user="admin", port=2222, identity="/k", known_hosts="/h")).call("n7", {"do": "look"})

    assert made.call_args.kwargs["user"] == "admin"
    assert made.call_args.kwargs["port"] == 2222
    assert made.call_args.kwargs["connect_kwargs"]["key_filename"] == "/k"
    made.return_value.client.load_system_host_keys.assert_called_once_with("/h")
