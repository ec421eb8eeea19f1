"""Control over the network: who proves to have the site's key counts as the pool's own user.

The conversation and what it protects from are in `cachemgr.network.channel`. Who has not proved anything
yet is given little: a place among a few, a second's worth of bytes, and some seconds.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

from cachemgr.base.errors import BadRequest, NotAllowed
from cachemgr.base.shares import Shares
from cachemgr.daemon.network.line import Gone, LineConnection
from cachemgr.daemon.network.peer import NodeCaller
from cachemgr.daemon.network.server import BACKLOG, ConnectionGuest
from cachemgr.daemon.verbs.requests import MOST_BYTES, answer
from cachemgr.network import channel
from cachemgr.network.strangers import Strangers, unread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.clock import Clock
    from cachemgr.daemon.log import DaemonLog

MOST_CONNECTIONS = 128
# A caller that has vanished without a word is noticed after half a minute.
KEEPALIVE_S = 10
KEEPALIVE_PROBES = 3


def listen(address: str) -> socket.socket:
    """A socket at HOST:PORT; `BadRequest` if it cannot be had."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BadRequest(
            f"control cannot listen at {address}: {error.strerror}; set another control_listen"
        ) from error


class NetworkEntrance:
    """Other machines, which prove to have one of the site's keys."""

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        node: str,
        service_uid: int,
        clock: Clock,
        log: DaemonLog,
        strangers: int = 64,
        handshake_s: float = 5,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self._keys = tuple(keys)
        self._node = node
        self._service_uid = service_uid
        self._clock = clock
        self._log = log
        self._handshake_s = handshake_s
        # Strangers are among them until they have proved something.
        self.places = Shares("control connections", most=most + strangers, most_of_one=most)
        # One address leaves some to others at any time.
        of_host = max(1, strangers * 3 // 4)
        self.strangers = Strangers(
            "control connections without a proof",
            most=strangers,
            most_of_host=of_host,
            has_spoken=lambda connection: b"\n" in unread(connection, channel.MOST_GREETING_BYTES),
        )

    def guest(self, connection: socket.socket) -> ConnectionGuest:
        host = str(connection.getpeername()[0])
        if not self.strangers.enter(connection, host):
            raise OSError("too many connections that have proved nothing yet")
        return ConnectionGuest(host, is_privileged=True)

    def let_in(self, connection: socket.socket, guest: ConnectionGuest) -> tuple[LineConnection, NodeCaller]:
        try:
            line = self._sealed(connection, guest)
        finally:
            was_there = self.strangers.leave(connection)
        if not was_there:
            raise Gone
        uid = self._service_uid
        return line, NodeCaller(uid=uid, real_uid=uid, pid=0, is_privileged=True)

    def turn_away(self, connection: socket.socket, guest: ConnectionGuest) -> None:
        self.strangers.leave(connection)
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(channel.refused("room"))

    def _sealed(self, connection: socket.socket, guest: ConnectionGuest) -> LineConnection:
        make_lively(connection)
        stranger = _Stranger(connection, self._clock.monotonic_s() + self._handshake_s, self._clock)
        nonce = secrets.token_bytes(channel.NONCE_BYTES)
        stranger.send(channel.greeting(nonce))
        transcript, proof = channel.read_introduction(self._heard(connection, stranger), nonce.hex())
        key = transcript.key_among(self._keys, proof)
        if key is None:
            self._log.warning(
                "caller refused",
                culprit=guest.key,
                host=guest.key,
                reason="it has another key than this node",
            )
            stranger.send(channel.refused("key"))
            raise NotAllowed("the caller has another key than this node")
        if self._node and transcript.node not in (channel.ANYBODY, self._node):
            self._log.warning(
                "caller refused", culprit=guest.key, host=guest.key, meant=transcript.node, node=self._node
            )
            stranger.send(channel.refused("node"))
            raise NotAllowed(f"the caller means {transcript.node}, and this is {self._node}")
        stranger.send(channel.welcome(transcript, key))
        ours, theirs = transcript.daemon_seals(key)
        return SealedLine(connection, self._clock, ours, theirs, self._log)

    def _heard(self, connection: socket.socket, stranger: _Stranger) -> bytes:
        said = stranger.receive()
        self.strangers.hear(connection)
        return said


class SealedLine(LineConnection):
    """A connection on which each line is signed. No open files come along."""

    most_bytes = MOST_BYTES + channel.MAC_LETTERS + 1

    def __init__(
        self,
        connection: socket.socket,
        clock: Clock,
        ours: channel.Seal,
        theirs: channel.Seal,
        log: DaemonLog,
    ) -> None:
        super().__init__(connection, clock)
        self._ours = ours
        self._theirs = theirs
        self._log = log

    def receive(self) -> tuple[bytes, list[int]] | None:
        received = super().receive()
        if received is None:
            return None
        try:
            return self._theirs.opened(received[0]), []
        except channel.Forged as error:
            self._log.warning("connection given up", reason=error)
            raise Gone from error

    def send(self, fields: dict[str, object]) -> None:
        self._send_bytes(self._ours.seal(answer(fields)))

    def _receive_some(self, timeout_s: float) -> bytes:
        self._connection.settimeout(timeout_s)
        return self._connection.recv(65_536)


class _Stranger:
    """A connection until it is known who is there: few bytes, and a bounded time for all of it."""

    def __init__(self, connection: socket.socket, until_s: float, clock: Clock) -> None:
        self._connection = connection
        self._until_s = until_s
        self._clock = clock

    def send(self, data: bytes) -> None:
        self._connection.settimeout(max(0.01, self._until_s - self._clock.monotonic_s()))
        self._connection.sendall(data)

    def receive(self) -> bytes:
        """One line, and nothing after it: the caller waits for what is said to it."""
        received = b""
        while not received.endswith(b"\n"):
            left_s = self._until_s - self._clock.monotonic_s()
            if left_s <= 0 or len(received) > channel.MOST_GREETING_BYTES:
                raise Gone
            self._connection.settimeout(left_s)
            data = self._connection.recv(channel.MOST_GREETING_BYTES)
            if not data:
                raise Gone
            received += data
        return received


def make_lively(connection: socket.socket) -> None:
    """Small lines go at once, and a side that is gone is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
