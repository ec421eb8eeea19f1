"""Who may be connected to the relay: strangers, those with a ticket, and those who need none.

They are counted apart, so that nobody without a ticket takes a place of those who have one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.base.shares import Shares
from cachemgr.network.strangers import Strangers, unread

if TYPE_CHECKING:
    import socket

    from cachemgr.base.shares import Share

HEAD_END = b"\r\n\r\n"
PEEKED_BYTES = 8192


@dataclass(frozen=True)
class RelaySettings:
    """Where the relay listens, whom it admits, and its limits."""

    host: str = "0.0.0.0"
    port: int = 0
    keys: tuple[bytes, ...] = ()
    serves_public: bool = False
    # With a ticket; those who have public images without one get half as many.
    most_connections: int = 64
    most_connections_a_host: int = 16
    # Who has not shown yet what admits them.
    most_strangers: int = 64
    most_strangers_a_host: int = 48
    # So long they are waited for, in all.
    stranger_s: float = 5
    head_s: int = 10
    idle_s: int = 30
    starved_s: int = 120


def _has_asked(connection: socket.socket) -> bool:
    return HEAD_END in unread(connection, PEEKED_BYTES)


class RelayConnections:
    """The places of a relay's connections. Any thread may call."""

    def __init__(self, settings: RelaySettings) -> None:
        self.strangers = Strangers(
            "relay connections without a ticket",
            most=settings.most_strangers,
            most_of_host=settings.most_strangers_a_host,
            has_spoken=_has_asked,
        )
        most, of_host = settings.most_connections, settings.most_connections_a_host
        self._with_ticket = Shares("relay connections", most=most, most_of_one=of_host)
        self._public = Shares(
            "relay connections for public images", most=max(1, most // 2), most_of_one=max(1, of_host // 2)
        )
        self._guard = threading.Lock()
        self._let_in: dict[socket.socket, tuple[Shares, str]] = {}

    def let_in(self, connection: socket.socket, host: str, *, has_ticket: bool) -> bool:
        """From the strangers to the others; False if it had to go, or there is no place."""
        shares = self._with_ticket if has_ticket else self._public
        if not self.strangers.leave(connection) or not shares.take(host):
            return False
        with self._guard:
            self._let_in[connection] = (shares, host)
        return True

    def leave(self, connection: socket.socket) -> None:
        """It has ended."""
        self.strangers.leave(connection)
        with self._guard:
            shares, host = self._let_in.pop(connection, (None, ""))
        if shares is not None:
            shares.give(host)

    def shares(self) -> list[Share]:
        return [*self.strangers.shares(), *self._with_ticket.shares(), *self._public.shares()]

    def refused(self) -> dict[str, int]:
        each = (self.strangers, self._with_ticket, self._public)
        return {thing: count for one in each for thing, count in one.refused().items()}
