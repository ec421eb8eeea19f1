"""Other machines, over ssh: Fabric makes the connection, and `placing` is run at its other end.

Only this module imports Fabric. Nothing is sent to a machine whose host key is not known: the site's
key goes to each node, and whoever has it controls all of them.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outrider.cli.errors import MissingPartError
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.shipped import package_file

if TYPE_CHECKING:
    from fabric import Connection  # type: ignore[import-untyped]

CONNECT_S = 15
SILENT_S = 150
"""More than the longest command that `placing` runs, with what comes before and after it."""
MOST_ANSWER_BYTES = 1 << 20
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
_LAST_WORDS = 500
_RUN = "/usr/bin/python3 -I -S -c 'import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))' {size}"


class RemoteError(Exception):
    """A machine could not be used; says why, and what to do."""


class Remote(Protocol):
    """Has `placing` carry out a request on a machine."""

    def call(self, node: str, request: Json) -> Json: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """How machines are reached; what is not said is as ~/.ssh/config says."""

    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    is_sudo: bool = False


class SshRemote:
    """Each call is a connection of its own, and its program ends with it."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._program = package_file("outrider.cli.installing.common", "placing.py")
        require_fabric()

    def call(self, node: str, request: Json) -> Json:
        import paramiko  # type: ignore[import-untyped]

        try:
            connection = self._connection(node)
            try:
                connection.open()
                return self._converse(connection, request)
            finally:
                connection.close()
        except paramiko.BadHostKeyException as error:
            raise RemoteError(
                f"{node} has another host key than the known one: find out why before anything is sent there"
            ) from error
        except paramiko.AuthenticationException as error:
            raise RemoteError(f"{node} lets nobody in with the keys at hand: try ssh {node} true") from error
        except socket.gaierror as error:
            raise RemoteError(f"{node} has no address: add it to the host table") from error
        except TimeoutError as error:
            raise RemoteError(f"{node} is silent: is it switched off?") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise RemoteError(f"{node}: {_reason(error, node)}") from error

    def _connection(self, node: str) -> Connection:
        import fabric
        import paramiko

        keys = {"key_filename": self._login.identity} if self._login.identity else {}
        connection = fabric.Connection(
            node, user=self._login.user, port=self._login.port, connect_timeout=CONNECT_S,
            connect_kwargs={"banner_timeout": CONNECT_S, "auth_timeout": CONNECT_S, **keys},
        )  # fmt: skip
        client = connection.client
        # Fabric would take whoever answers first for the node.
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        if self._login.known_hosts:
            client.load_system_host_keys(self._login.known_hosts)
        else:
            client.load_system_host_keys()
            if os.path.exists(SYSTEM_KNOWN_HOSTS):
                client.load_system_host_keys(SYSTEM_KNOWN_HOSTS)
        return connection

    def _converse(self, connection: Connection, request: Json) -> Json:
        """Program and request in, one line of JSON out."""
        command = _RUN.format(size=len(self._program))
        channel = connection.transport.open_session(timeout=CONNECT_S)
        channel.settimeout(SILENT_S)
        channel.exec_command(f"sudo -n {command}" if self._login.is_sudo else command)
        channel.sendall(self._program + json.dumps(request).encode())
        channel.shutdown_write()
        said = b""
        while part := channel.recv(65_536):
            said += part
            if len(said) > MOST_ANSWER_BYTES:
                raise RemoteError(f"{connection.host} answers with more than {MOST_ANSWER_BYTES} bytes")
        errors = channel.makefile_stderr("rb").read(MOST_ANSWER_BYTES).decode("utf-8", "replace")
        try:
            # A login shell of somebody's may greet before.
            answer = json.loads(said.decode("utf-8", "replace").strip().splitlines()[-1])
        except (ValueError, IndexError) as error:
            words = " ".join(errors.split())[-_LAST_WORDS:] or "no message"
            raise RemoteError(f"{connection.host}: Python there ended with: {words}") from error
        if not isinstance(answer, dict):
            raise RemoteError(f"{connection.host} answers with something that is not an object")
        if "error" in answer:
            raise RemoteError(f"{connection.host}: {answer['error']}")
        return answer


def require_fabric() -> None:
    """Say what is missing before the first node is spoken to."""
    try:
        import fabric  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            f"{error.name} is not installed: in a clone of Outrider, pip install '.[deploy]', or copy the "
            "files yourself as docs/tutorial/install-slurm.md says"
        ) from error


def _reason(error: Exception, node: str) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "not found in known_hosts" in text:
        return f"its host key is not known: look at it with ssh {node}, or name a file with --known-hosts"
    if "No authentication methods" in text:
        return "no key to log in with: name one with --ssh-identity, or in ~/.ssh/config"
    return f"{text}: try ssh {node} true"
