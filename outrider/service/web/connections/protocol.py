"""Connections: whose they are by the kernel's word, and how long they may take.

A unix socket's peer is asked for once, when the connection is made, and handed to the application
beside the request, where no header can put anything.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from cachemgr.base.shares import Share
from outrider.service.web.connections.doors import Doors, Welcome
from outrider.service.web.errors import HttpRefusal, refusal
from outrider.service.web.limits import Limits

_CREDENTIALS = struct.Struct("3i")
_NOBODY_KNOWS = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """The process at the other end when it connected."""

    pid: int
    uid: int
    gid: int


@dataclass(kw_only=True, slots=True)
class Line:
    """A connection as the application sees it. `peer` is None unless the kernel named one.

    `who` is a user's number, or a host's address where the user is not known yet. `is_closing`: the
    client has hung up, or the service stops, so that nothing should go on waiting.
    """

    peer: Peer | None
    who: int | str
    is_closing: bool = False
    is_for_probes: bool = False
    """Whether there was no place for it but one of those that are kept for probes."""


def peer_of(connection: socket.socket) -> Peer | None:
    """Whoever is at the other end of a unix socket; None for other sockets."""
    if connection.family != socket.AF_UNIX:
        return None
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = (number & _NOBODY_KNOWS for number in _CREDENTIALS.unpack(packed))
    return None if uid == _NOBODY_KNOWS else Peer(pid=pid, uid=uid, gid=gid)


class Reception:
    """Where connections come in: the doors for each kind of socket, and who has places of their own."""

    def __init__(self, limits: Limits, is_privileged: Callable[[int], bool] = lambda uid: uid == 0) -> None:
        self.is_privileged = is_privileged
        self._of_users = Doors(
            "connections of this machine",
            most=limits.connections,
            most_of_one=limits.connections_per_user,
            kept=min(limits.kept, limits.connections // 4),
            probes=limits.probes,
        )
        self._of_hosts = Doors(
            "connections of other machines",
            most=limits.remote_connections,
            most_of_one=limits.connections_per_host,
            kept=0,
            probes=limits.probes,
        )

    def doors(self, peer: Peer | None) -> Doors:
        return self._of_hosts if peer is None else self._of_users

    def shares(self) -> list[Share]:
        return [*self._of_users.shares(), *self._of_hosts.shares()]


def too_many() -> HttpRefusal:
    words = "too many connections are open, most of them yours: close some, and ask again"
    return refusal(503, words, code="busy", headers={"Retry-After": "1"})


class PeerProtocol(H11Protocol):
    """HTTP/1.1 with the peer's name on it, an end to waiting, and errors in JSON."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits,
        reception: Reception,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.line = Line(peer=None, who="")
        self._limits = limits
        self._reception = reception
        self._doors: Doors | None = None
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        connection = transport.get_extra_info("socket")
        self.line.peer = peer = peer_of(connection)
        self.line.who = peer.uid if peer else str((self.client or ("",))[0])
        # A dictionary of this connection's own: the one that was handed in is everybody's.
        self.app_state = {**self.app_state, "line": self.line}
        self._doors = self._reception.doors(peer)
        is_privileged = peer is not None and self._reception.is_privileged(peer.uid)
        welcome = self._doors.enter(self, self.line.who, is_privileged=is_privileged)
        self.line.is_for_probes = welcome is Welcome.PROBES
        self._watch_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.is_closing = True
        if self._doors is not None:
            self._doors.leave(self)
        for timer in (self._arrival, self._reading):
            if timer is not None:
                timer.cancel()
        self._arrival = self._reading = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_arrival()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_arrival()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self._limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def shutdown(self) -> None:
        self.line.is_closing = True
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or has too large a head."""
        most = self._limits.head_bytes
        self._refuse(refusal(400, f"this is not HTTP/1.1, or its head has more than {most} bytes"))

    @property
    def is_idle(self) -> bool:
        """Whether a request is awaited, or arrives, and none is being dealt with."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_complete

    def give_way(self) -> None:
        """Somebody who has fewer needs the place."""
        self.line.is_closing = True
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(too_many())
        else:
            self.transport.abort()

    def _refuse(self, refused: HttpRefusal) -> None:
        """Answer without the application, and close."""
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(refused.body))),
            ("connection", "close"),
            *refused.headers.items(),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=refused.status, headers=headers)
            for event in (head, h11.Data(data=refused.body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_arrival(self) -> None:
        """Let the clock run while a request is awaited or arrives, and at no other time."""
        if not self.is_idle or self.transport.is_closing():
            if self._arrival is not None:
                self._arrival.cancel()
                self._arrival = None
        elif self._arrival is None:
            self._arrival = self.loop.call_later(self._limits.arrival_s, self._drop)

    def _drop(self) -> None:
        self._arrival = None
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(refusal(408, f"no whole request came within {self._limits.arrival_s:g} s"))
        else:
            # The application is still reading: it sees the client go, and frees what it holds.
            self.transport.close()
