"""Where the service is asked: its socket on this machine, or an address on another.

On the socket the kernel says who asks. Over the network MUNGE does: each attempt to send a request
has a credential of its own, since one serves once.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from outrider_client.errors import InputError, NotAllowedError, UnreachableError

SOCKET = "/run/outrider/outriderd.sock"
SOCKET_VARIABLE = "OUTRIDER_SOCKET"
SERVER_VARIABLE = "OUTRIDER_SERVER"
LEADER_HEADER = "Outrider-Leader"
"""By this a head that stands by says at which address the one is that leads."""
MOST_HEADS = 8
ANSWER_S = 10.0
"""So long one of several heads has for an answer, before another one is asked the same."""
CONNECT_S = 3.0
"""So long a connection to one of several heads may take: another one is asked then."""
MOST_PATH_BYTES = 107
"""What the system takes as a socket's path."""
MOST_HOST_CHARACTERS = 253
MOST_PORT = 65_535
_STRANGE = (errno.ENOTSOCK, errno.EPROTOTYPE, errno.ENOTDIR)
_HOST_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")
_ADDRESS_SIGNS = frozenset("0123456789ABCDEFabcdef:.")


class NotThere(Exception):
    """Nothing was sent, because nobody listens."""


class Stranger(Exception):
    """What is there is nothing that could be the service."""


class Door(Protocol):
    """One place where a service may be asked."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def remedy(self) -> str:
        """What to do when nobody listens."""

    @property
    def way(self) -> str:
        """How another one is named."""

    @property
    def answer_s(self) -> float | None:
        """How long to wait for an answer before another head is asked; None if there is no other."""

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that stands. Raises NotThere, Stranger, OutriderError or another OSError."""

    def pass_on(self, leader: str) -> None:
        """Whoever was asked cannot help now. It names who leads, or nobody."""

    def vouch(self, method: str, target: str, key: str, body: bytes, timeout_s: float) -> dict[str, str]:
        """Headers that say who asks, for one attempt to send this. Raises OutriderError."""


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class SocketDoor:
    """The service on this machine."""

    remedy = "Start it with systemctl start outriderd, or name its socket with --socket or OUTRIDER_SOCKET"
    way = "name the right socket with --socket or OUTRIDER_SOCKET"
    answer_s = None

    def __init__(self, path: str) -> None:
        if len(os.fsencode(path)) > MOST_PATH_BYTES:
            raise InputError(
                f"--socket {path}: longer than the {MOST_PATH_BYTES} bytes a socket's path may have"
            )
        self.name = path

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = _SocketConnection(self.name, timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            if isinstance(error, PermissionError):
                raise NotAllowedError(
                    f"you may not connect to {self.name}: ask the administrator for access to the socket "
                    "and its folder"
                ) from error
            if isinstance(error, (FileNotFoundError, ConnectionRefusedError, BlockingIOError)):
                raise NotThere(error.strerror or str(error)) from error
            if error.errno in _STRANGE:
                raise Stranger from error
            raise
        return connection

    def pass_on(self, leader: str) -> None:
        """There is one socket."""

    def vouch(self, method: str, target: str, key: str, body: bytes, timeout_s: float) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class ServerDoor:
    """The service on another machine, which trusts what this machine's MUNGE says of who asks."""

    host: str
    port: int
    name: str
    answer_s = None

    @property
    def remedy(self) -> str:
        return (
            "See that it runs there and that its tcp.listen is this address, or name another one with "
            "--server or OUTRIDER_SERVER"
        )

    @property
    def way(self) -> str:
        return "name the right address with --server or OUTRIDER_SERVER"

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unconnected(error, timeout_s) from error
        return connection

    def vouch(self, method: str, target: str, key: str, body: bytes, timeout_s: float) -> dict[str, str]:
        from outrider_client.munge import authorisation

        return {"Authorization": authorisation(method, target, key, body, timeout_s=timeout_s)}

    def pass_on(self, leader: str) -> None:
        """There is one address."""

    def _unconnected(self, error: OSError, timeout_s: float) -> Exception:
        if isinstance(error, ConnectionRefusedError):
            return NotThere(error.strerror or str(error))
        if isinstance(error, socket.gaierror):
            reason = f"no machine is known by that name ({error.strerror})"
        elif isinstance(error, TimeoutError):
            reason = f"nothing came back within {timeout_s:.0f} s, as when a firewall is between"
        else:
            reason = error.strerror or str(error)
        return UnreachableError(
            f"{self.name} cannot be reached: {reason}; see that machine and the network, or {self.way}"
        )


class HeadDoors:
    """The service of several heads: the one that leads is asked, and found again when another one does.

    `home` are those that were named. One that stands by names who leads: that one is asked next, and if it
    cannot help either, those of `home` in turn.
    """

    def __init__(self, home: Sequence[Door], answer_s: float | None = ANSWER_S) -> None:
        self._home = tuple(home)
        self._answer_s = answer_s
        self._turn = 0
        self._leader: ServerDoor | None = None
        self._asked: Door = self._home[0]

    @property
    def name(self) -> str:
        return ",".join(each.name for each in self._home)

    @property
    def remedy(self) -> str:
        if len(self._home) == 1:
            return self._home[0].remedy
        return "See that one of them runs, or name others with --server or OUTRIDER_SERVER"

    @property
    def way(self) -> str:
        return self._home[0].way

    @property
    def answer_s(self) -> float | None:
        return self._answer_s if len(self._home) > 1 or self._leader is not None else None

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """One that answers the knock; NotThere if none does."""
        if len(self._home) == 1 and self._leader is None:
            return self._home[0].connect(timeout_s)
        reasons = []
        for door in self._in_turn():
            try:
                connection = door.connect(min(timeout_s, CONNECT_S))
            except (NotThere, UnreachableError) as error:
                reasons.append(str(error))
                self.pass_on("")
                continue
            # Not the answer has to come so soon, but whoever takes the call.
            connection.sock.settimeout(timeout_s)
            self._asked = door
            return connection
        raise NotThere("; ".join(reasons))

    def pass_on(self, leader: str) -> None:
        if self._leader is None and leader:
            with suppress(InputError):
                self._leader = server_door(leader)
                return
        self._leader = None
        self._turn = (self._turn + 1) % len(self._home)

    def vouch(self, method: str, target: str, key: str, body: bytes, timeout_s: float) -> dict[str, str]:
        return self._asked.vouch(method, target, key, body, timeout_s)

    def _in_turn(self) -> Iterator[Door]:
        """Who is thought to lead, then each of those that were named."""
        if self._leader is not None:
            yield self._leader
        for _ in self._home:
            yield self._home[self._turn]


def server_door(address: str) -> ServerDoor:
    """The door at HOST:PORT, or [ADDRESS]:PORT for IPv6. Raises InputError."""
    host, _, port = address.rpartition(":")
    bare, signs = host, _HOST_SIGNS
    if host.startswith("[") and host.endswith("]"):
        bare, signs = host[1:-1], _ADDRESS_SIGNS
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(MOST_PORT))
    if (
        not (is_number and 0 < int(port) <= MOST_PORT)
        or not 0 < len(bare) <= MOST_HOST_CHARACTERS
        or not signs.issuperset(bare)
    ):
        raise InputError(
            f"--server {address}: not HOST:PORT; write head:7707, or [2001:db8::1]:7707 for an IPv6 address"
        )
    return ServerDoor(host=bare, port=int(port), name=address)


def door_of(path: str | None, address: str | None, environment: Mapping[str, str]) -> Door:
    """Where the service is asked. What an option says counts more than any variable."""
    if path and address:
        raise InputError("--socket and --server both say where the service is: give one of the two")
    if not (path or address):
        path, address = environment.get(SOCKET_VARIABLE), environment.get(SERVER_VARIABLE)
        if path and address:
            raise InputError(
                f"{SOCKET_VARIABLE} and {SERVER_VARIABLE} both say where the service is: unset one of the "
                "two, or give --socket or --server"
            )
    if not address:
        return HeadDoors([SocketDoor(path or SOCKET)])
    heads = [each.strip() for each in address.split(",")]
    if len(heads) > MOST_HEADS:
        raise InputError(f"--server {address}: {len(heads)} addresses; give {MOST_HEADS} at most")
    return HeadDoors([server_door(each) for each in heads])
