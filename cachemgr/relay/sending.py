"""Sending an image's bytes as they become valid, at the cost of a system call per quarter megabyte."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import TYPE_CHECKING

from cachemgr.fetch.ports import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit

CHUNK_BYTES = 256 * 1024
# So often is a client looked after that waits for an image to go on arriving.
LOOK_S = 1.0


class GaveUp(Exception):
    """The rest is not sent: the client sees a connection that ends too early."""


class Sender:
    """One answer's body."""

    def __init__(
        self,
        sock: socket.socket,
        limit: RateLimit,
        clock: Clock,
        is_stopped: Callable[[], bool],
        idle_s: int,
        starved_s: int,
    ) -> None:
        self.sent_bytes = 0
        self._sock = sock
        self._limit = limit
        self._clock = clock
        self._is_stopped = is_stopped
        self._idle_s = idle_s
        self._starved_s = starved_s

    def send(self, held: Held, start: int, end: int) -> None:
        """Send bytes `[start, end)`. Raises `GaveUp`, and what reading the image raises."""
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", self._idle_s, 0))
        at = start
        while at < end:
            valid = held.valid_bytes()
            if valid <= at:
                valid = self._await(held, at)
            upto = min(end, valid, at + self._limit.step_bytes(CHUNK_BYTES))
            self._limit.take(upto - at, self._is_stopped)
            while at < upto:
                if self._is_stopped():
                    raise GaveUp("the relay is shutting down")
                at += self._push(held, at, upto - at)

    def _push(self, held: Held, at: int, most: int) -> int:
        source = held.fileno()
        try:
            if source is not None:
                count = os.sendfile(self._sock.fileno(), source, at, most)
            else:
                data = held.read(at, most)
                count = self._sock.send(data) if data else 0
        except BlockingIOError as error:
            raise GaveUp(f"the client took nothing for {self._idle_s} s") from error
        except OSError as error:
            raise GaveUp(f"the connection or the file broke: {error.strerror}") from error
        if count == 0:
            raise GaveUp(f"the file ends at {at}, before what is said to be valid")
        self.sent_bytes += count
        return count

    def _await(self, held: Held, at: int) -> int:
        """Wait until there is more, within bounds, and as long as the client is there."""
        until_s = self._clock.monotonic_s() + self._starved_s
        while (left_s := until_s - self._clock.monotonic_s()) > 0 and not self._is_stopped():
            valid = held.wait(at, min(left_s, LOOK_S))
            if valid > at:
                return valid
            if self._has_left():
                raise GaveUp("the client has gone")
        raise GaveUp(f"nothing arrived for {self._starved_s} s")

    def _has_left(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return bool(poll.poll(0))
