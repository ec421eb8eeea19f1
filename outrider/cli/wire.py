"""One HTTP/1.1 request and its answer over a socket that is closed afterwards.

The standard library's `http.client` does this as well, and much more: to import it takes a third
of the time of a short command, since it reads headers as those of mail.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

MOST_HEAD_BYTES = 64 * 1024
_PIECE_BYTES = 256 * 1024
_HEAD_END = b"\r\n\r\n"


class Strange(Exception):
    """What came is no answer in HTTP."""


class CutOff(Exception):
    """The connection ended before the answer did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Headers have their names in lower case. Of a body that is too long only the beginning is there."""

    status: int
    headers: dict[str, str]
    body: bytes


def exchange(
    connection: socket.socket,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None,
    most_bytes: int,
) -> Reply:
    """Send a request, and take the answer's body up to so many bytes.

    OSError if the connection fails; ConnectionResetError if it ends without a byte of an answer.
    """
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if content is not None:
        lines.append(f"Content-Length: {len(content)}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + (content or b""))
    head, rest = _head(connection)
    status, found = _understood(head)
    return Reply(status=status, headers=found, body=_body(connection, found, rest, most_bytes))


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    """The answer's head, and what came of the body with it."""
    taken = b""
    while (end := taken.find(_HEAD_END)) < 0:
        if len(taken) > MOST_HEAD_BYTES or (len(taken) >= 5 and not taken.startswith(b"HTTP/")):
            raise Strange("it does not begin as an answer in HTTP does")
        piece = connection.recv(_PIECE_BYTES)
        if not piece:
            if taken:
                raise CutOff("the answer is cut off")
            raise ConnectionResetError("it hung up without an answer")
        taken += piece
    return taken[:end], taken[end + len(_HEAD_END) :]


def _understood(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, after = first.partition(" ")
    status = after[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
        raise Strange("its first line is not that of an answer in HTTP")
    pairs = [line.partition(":") for line in lines]
    return int(status), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _body(connection: socket.socket, headers: Mapping[str, str], began: bytes, most_bytes: int) -> bytes:
    """As long as is announced, or else until the connection ends."""
    announced = headers.get("content-length", "")
    if headers.get("transfer-encoding") or (announced and not (announced.isascii() and announced.isdigit())):
        raise Strange("its length is not told in a way that is known")
    wanted = int(announced[:18]) if announced else most_bytes
    wanted = min(wanted, most_bytes)
    pieces, left = [began], wanted - len(began)
    while left > 0:
        piece = connection.recv(min(left, _PIECE_BYTES))
        if not piece:
            if announced:
                raise CutOff("the answer is cut off")
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)[:wanted]
