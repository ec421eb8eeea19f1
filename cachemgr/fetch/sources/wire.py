"""HTTP/1.1 as a client: one request, the head of its answer, and its body on a socket.

Written on sockets because a transfer needs what the standard client hides: a deadline for
the whole head, reading a body with a time limit that can be met again and again, and waking
up once for many packets.
"""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock

MOST_HEAD_BYTES = 65_536
MOST_INTERIM_ANSWERS = 8
MOST_DIGITS = 18
# For each byte in chunks of one byte stand five around it.
MOST_FRAMING = 16
# Waking up for each packet costs a node its processor; this much at a time delays a chain
# of nodes by a few milliseconds at each of them.
BATCH_BYTES = 131_072
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True)
class ResponseHead:
    """The head of an answer. Names of headers are in lower case; repeated ones are joined by commas."""

    status: int
    reason: str
    headers: Mapping[str, str]

    def length_bytes(self) -> int | None:
        return number_in(self.headers.get("content-length", ""))


def number_in(text: str) -> int | None:
    """A number in a header; None for anything else, and for digits without end."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def request_bytes(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A request's head. What comes from outside must not add lines to it."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise SourceFault(f"a header of the request has a line break: {line!r}", is_final=True)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def exchange(
    sock: socket.socket, request: bytes, timeout_s: float, clock: Clock
) -> tuple[ResponseHead, bytes]:
    """Send a request and read the head of its answer: the head, and what came of the body with it."""
    until_s = clock.monotonic_s() + timeout_s
    try:
        sock.settimeout(max(0.001, timeout_s))
        sock.sendall(request)
        rest = b""
        for _ in range(MOST_INTERIM_ANSWERS):
            head, rest = _read_head(sock, rest, until_s, clock)
            if head.status >= 200 or head.status == 101:
                return head, rest
    except OSError as error:
        if is_timeout(error):
            raise SourceFault(f"no answer within {timeout_s:g} s") from error
        raise SourceFault(f"the connection broke before an answer: {reason_of(error)}") from error
    raise SourceFault("only interim answers: not a usable HTTP server")


def _read_head(sock: socket.socket, rest: bytes, until_s: float, clock: Clock) -> tuple[ResponseHead, bytes]:
    data = bytearray(rest)
    while (end := data.find(HEAD_END)) < 0:
        if len(data) > MOST_HEAD_BYTES:
            raise SourceFault(f"the head of the answer is longer than {MOST_HEAD_BYTES} bytes")
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the head is not complete")
        sock.settimeout(left_s)
        more = sock.recv(16_384)
        if not more:
            raise SourceFault("the connection was closed before an answer", is_early=not data)
        data += more
    return parse_head(bytes(data[:end])), bytes(data[end + len(HEAD_END) :])


def parse_head(data: bytes) -> ResponseHead:
    first, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    number, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (number.isascii() and number.isdigit() and len(number) == 3):
        raise SourceFault(f"the answer is not HTTP: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise SourceFault(f"the answer has a malformed header: {line[:80]!r}")
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return ResponseHead(int(number), reason, headers)


def is_timeout(error: OSError) -> bool:
    """Before Python 3.10 a socket's timeout is not a `TimeoutError`."""
    return isinstance(error, (socket.timeout, TimeoutError))


def reason_of(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class ResponseBody:
    """The bytes of an answer as they come, at most as many as it announced."""

    def __init__(self, sock: socket.socket, rest: bytes, length_bytes: int | None, start_bytes: int) -> None:
        self.start_bytes = start_bytes
        self._sock = sock
        self._rest = memoryview(rest)
        self._left_bytes = length_bytes
        self._timeout_s = -1.0
        self._batch_bytes = 1
        # A blocking socket with a time limit of its own: one system call a read instead of two.
        sock.settimeout(None)

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        if self._left_bytes is not None:
            buffer = buffer[: self._left_bytes]
            if not buffer:
                return 0
        count = self._from_rest(buffer) or self._from_socket(buffer, timeout_s)
        if count and self._left_bytes is not None:
            self._left_bytes -= count
        return count

    def close(self) -> None:
        self._sock.close()

    def _from_rest(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _from_socket(self, buffer: memoryview, timeout_s: float) -> int | None:
        try:
            self._prepare(len(buffer), timeout_s)
            return self._sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            raise SourceFault(f"the connection broke: {reason_of(error)}") from error

    def _prepare(self, room_bytes: int, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            whole = int(timeout_s)
            limit = struct.pack("ll", whole, max(1, int((timeout_s - whole) * 1e6)))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._timeout_s = timeout_s
        batch = min(room_bytes, BATCH_BYTES)
        if batch != self._batch_bytes and not isinstance(self._sock, ssl.SSLSocket):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, batch)
            self._batch_bytes = batch


class ChunkedBody:
    """The bytes of an answer in chunks, for servers that do not know a length beforehand."""

    def __init__(self, inner: ResponseBody) -> None:
        self.start_bytes = inner.start_bytes
        self._inner = inner
        self._raw = bytearray()
        self._left_bytes = 0
        self._content_bytes = self._framing_bytes = 0
        self._is_first = True
        self._is_over = False
        self._room = memoryview(bytearray(65_536))

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        """What stands between chunks is no content: who sends nothing else is silent."""
        has_read = False
        while not self._is_over:
            if self._left_bytes and self._raw:
                count = min(len(buffer), self._left_bytes, len(self._raw))
                buffer[:count] = self._raw[:count]
                del self._raw[:count]
                self._left_bytes -= count
                self._content_bytes += count
                return count
            if not self._left_bytes and self._next_chunk():
                continue
            if has_read:
                return None
            count_or_none = self._inner.read_into(self._room, timeout_s)
            if not count_or_none:
                return count_or_none
            self._raw += self._room[:count_or_none]
            has_read = True
        return 0

    def close(self) -> None:
        self._inner.close()

    def _next_chunk(self) -> bool:
        """Read the line before a chunk, if it is there completely."""
        begin = 0 if self._is_first else 2
        end = self._raw.find(b"\r\n", begin)
        if end < 0:
            if len(self._raw) > MOST_HEAD_BYTES:
                raise SourceFault("the answer's chunks are malformed")
            return False
        line = bytes(self._raw[begin:end]).partition(b";")[0].strip()
        if (
            not line
            or len(line) > 15
            or line.strip(b"0123456789abcdefABCDEF")
            or (begin and self._raw[:2] != b"\r\n")
        ):
            raise SourceFault("the answer's chunks are malformed")
        self._left_bytes = int(line, 16)
        self._is_over = self._left_bytes == 0
        self._is_first = False
        self._framing_bytes += end + 2
        if self._framing_bytes > MOST_HEAD_BYTES + MOST_FRAMING * self._content_bytes:
            raise SourceFault("the answer's chunks have more around them than in them", is_final=True)
        del self._raw[: end + 2]
        return True
