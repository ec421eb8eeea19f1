"""One connection as lines: requests come in, answers go out, within limits of size and time."""

from __future__ import annotations

import array
import os
import select
import socket

from cachemgr.base.errors import BadRequest
from cachemgr.base.message import plain
from cachemgr.daemon.verbs.requests import MOST_BYTES, Listener, answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.protocol import CopyProgress, TransferProgress

REQUEST_S = 10.0
IDLE_S = 300.0
ANSWER_S = 10.0
MOST_DESCRIPTORS = 1
RECEIVED_BYTES = 16 << 10


class Gone(Exception):
    """The other side has closed the connection, or is too slow to be waited for."""


class LineConnection(Listener):
    """One connection: requests come in, answers go out, each as one line."""

    most_bytes = MOST_BYTES

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._rest = b""
        self._descriptors: list[int] = []

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next line with the descriptors that came along; None at the end.

        Who has begun a line has a bounded time to end it.
        """
        until_s: float | None = self._clock.monotonic_s() + REQUEST_S if self._rest else None
        while b"\n" not in self._rest:
            if len(self._rest) > self.most_bytes:
                raise BadRequest(f"a request has at most {MOST_BYTES} bytes")
            left_s = IDLE_S if until_s is None else until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise BadRequest(f"the request was not complete within {REQUEST_S:g} s")
            try:
                data = self._receive_some(left_s)
            except socket.timeout:
                if until_s is None:
                    return None
                continue
            if not data:
                return None
            if until_s is None:
                until_s = self._clock.monotonic_s() + REQUEST_S
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > self.most_bytes:
            raise BadRequest(f"a request has at most {MOST_BYTES} bytes")
        descriptors, self._descriptors = self._descriptors, []
        return line, descriptors

    def send(self, fields: dict[str, object]) -> None:
        self._send_bytes(answer(fields))

    def progress(self, message: TransferProgress | CopyProgress) -> None:
        """Tell how far it is; `Gone` if nobody listens any more."""
        self.send({"progress": plain(message)})
        self.check_is_heard()

    def check_is_heard(self) -> None:
        """`Gone` if nobody listens any more."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN | getattr(select, "POLLRDHUP", 0))
        for _, events in poll.poll(0):
            if events & ~select.POLLIN:
                raise Gone

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        self._connection.close()

    def _send_bytes(self, data: bytes) -> None:
        self._connection.settimeout(ANSWER_S)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise Gone from error

    def _receive_some(self, timeout_s: float) -> bytes:
        self._connection.settimeout(timeout_s)
        room = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
        data, controls, flags, _ = self._connection.recvmsg(RECEIVED_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in controls:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._descriptors += found
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > MOST_DESCRIPTORS:
            raise BadRequest(f"a request comes with at most {MOST_DESCRIPTORS} open file")
        return data
