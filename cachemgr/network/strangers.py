"""Connections that have shown nothing yet: few, for a short time, and none of them keeps another out.

Whoever opens many of them comes from an address from which honest callers may come as well, such as
a job on a node from which that node's own daemon calls. So no address is refused for what others do
there: for a newcomer somebody goes, the oldest of the address that has most. An honest caller says
at once what admits it, and nobody goes who has said something that was not heard yet.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from cachemgr.base.shares import Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.shares import Share


class Strangers:
    """The connections of one listening place that have shown nothing yet. Any thread may call.

    `has_spoken` says whether what lies unread in a connection may be all that is waited for.
    """

    def __init__(
        self, thing: str, *, most: int, most_of_host: int, has_spoken: Callable[[socket.socket], bool]
    ) -> None:
        self._shares = Shares(thing, most=most, most_of_one=most_of_host)
        self._has_spoken = has_spoken
        self._guard = threading.Lock()
        # In the order of their coming.
        self._hosts: dict[socket.socket, str] = {}
        self._heard: set[socket.socket] = set()

    def enter(self, connection: socket.socket, host: str) -> bool:
        """Whether there is a place, if need be that of another, whose connection ends."""
        with self._guard:
            of_host = self._shares.held_by(host)
            if of_host >= self._shares.most_of_one:
                has_place = self._drop_one(host)
            elif self._shares.in_all >= self._shares.most:
                has_place = self._drop_one(self._busiest())
            else:
                has_place = True
            if not has_place or not self._shares.take(host):
                self._shares.refuse(host)
                return False
            self._hosts[connection] = host
            return True

    def hear(self, connection: socket.socket) -> None:
        """What admits it may have been read, and is being looked at."""
        with self._guard:
            self._heard.add(connection)

    def leave(self, connection: socket.socket) -> bool:
        """It has shown what admits it, or has ended; whether it was still there."""
        with self._guard:
            self._heard.discard(connection)
            host = self._hosts.pop(connection, None)
            if host is not None:
                self._shares.give(host)
            return host is not None

    def shares(self) -> list[Share]:
        return self._shares.shares()

    def refused(self) -> dict[str, int]:
        return self._shares.refused()

    def _busiest(self) -> str:
        hosts = sorted(set(self._hosts.values()))
        return max(hosts, key=self._shares.held_by)

    def _drop_one(self, host: str) -> bool:
        """End the oldest of that host that has said nothing which is still to be heard."""
        mine = (each for each, other in self._hosts.items() if other == host)
        oldest = next((each for each in mine if each not in self._heard and not self._has_spoken(each)), None)
        if oldest is None:
            return False
        del self._hosts[oldest]
        self._shares.give(host)
        self._shares.refuse(host)
        with suppress(OSError):
            # Its thread hears of that, and ends.
            oldest.shutdown(socket.SHUT_RDWR)
        return True


def unread(connection: socket.socket, most: int) -> bytes:
    """What lies in a connection and was not read yet, without taking it or waiting."""
    try:
        # Another object without a time limit, for which Python would wait before it asks the kernel.
        with socket.socket(fileno=os.dup(connection.fileno())) as peeking:
            return peeking.recv(most, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return b""
