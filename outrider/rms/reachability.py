"""Whether a batch system's daemons on nodes can be connected to: the quickest sign that a node has died."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable, Mapping
from errno import EINPROGRESS

TIMEOUT_S = 2.0
"""Without any answer: a connection within a site takes milliseconds."""


class Reachability:
    """Connects to a port of nodes, and hangs up. Only of those that have answered once is said that they do
    not: a firewall between here and the nodes, or another port, must not make nodes look dead."""

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._answered: set[str] = set()

    def silent(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Those of these nodes that have answered before and do not now."""
        asked = tuple(dict.fromkeys(nodes))
        answered = reached(asked, self._port, self._timeout_s)
        self._answered |= answered
        return tuple(name for name in asked if name in self._answered and name not in answered)


def reached(hosts: Iterable[str], port: int, timeout_s: float = TIMEOUT_S) -> set[str]:
    """The hosts on which somebody accepts a connection to that port, all asked at the same time."""
    found: set[str] = set()
    with selectors.DefaultSelector() as selector:
        try:
            for host in hosts:
                connection = _begun(host, port)
                if connection is not None:
                    selector.register(connection, selectors.EVENT_WRITE, host)
            # Who has answered is taken out, so that this ends when nobody more does for so long.
            while selector.get_map() and (answers := selector.select(timeout_s)):
                for key, _ in answers:
                    answered = key.fileobj
                    assert isinstance(answered, socket.socket)
                    if answered.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        found.add(key.data)
                    selector.unregister(answered)
                    answered.close()
        finally:
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
    return found


def _begun(host: str, port: int) -> socket.socket | None:
    """A connection that is being made; None if there is no such host, or no way to it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
    except OSError:
        return None
    connection.setblocking(False)
    if connection.connect_ex(address) in (0, EINPROGRESS):
        return connection
    connection.close()
    return None


def port_of(variables: Mapping[str, str], variable: str, service: str, usual: int) -> int:
    """A daemon's port: what a variable says, or the system's list of services, or the usual one."""
    said = variables.get(variable, "")
    if said.isascii() and said.isdecimal() and 0 < int(said) < 65_536:
        return int(said)
    try:
        return socket.getservbyname(service, "tcp")
    except OSError:
        return usual
