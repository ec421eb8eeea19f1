"""What a client asks of the relay: reading a request's head strictly, without touching a socket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_HEADERS = 64
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
IMAGE = re.compile(r"/v1/images/(sha256:[0-9a-f]{64})")
# Headers that may come in several lines. Nothing here heeds them.
LISTS = ("accept",)
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class RequestRefused(Exception):
    """The request is answered with this status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class RelayRequest:
    """A request's head. Names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    is_last: bool

    def digest(self) -> str:
        """The image that is asked for."""
        if self.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "only GET and HEAD are known")
        found = IMAGE.fullmatch(self.target)
        if found is None:
            raise RequestRefused(404, "there are only /v1/images/sha256:<64 hexadecimal digits>")
        return found[1]

    def span(self, size_bytes: int, tag: str) -> tuple[int, int] | None:
        """The part `[start, end)` that is asked for; None for the whole.

        A range of several parts, or one under a condition that does not hold, is not
        honoured, as the standard allows; one outside of the image is refused.
        """
        found = RANGE.fullmatch(self.headers.get("range", ""))
        if found is None or found[0] == "bytes=-" or self.headers.get("if-range", tag) != tag:
            return None
        if not found[1]:
            start, end = max(0, size_bytes - int(found[2])), size_bytes
        else:
            start = int(found[1])
            end = min(size_bytes, int(found[2]) + 1) if found[2] else size_bytes
            if found[2] and int(found[2]) < start:
                return None
        if start >= end:
            raise RequestRefused(416, f"the image has {size_bytes} bytes")
        return start, end


def parse_request(head: bytes) -> RelayRequest:
    """The request in these bytes, up to and without the empty line."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not TOKEN.fullmatch(words[0]) or not words[1].startswith("/"):
        raise RequestRefused(400, "the first line is not METHOD /path HTTP/1.1")
    if words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise RequestRefused(505, "only HTTP/1.0 and HTTP/1.1 are spoken")
    if len(lines) - 1 > MOST_HEADERS:
        raise RequestRefused(431, f"there are more than {MOST_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not TOKEN.fullmatch(name) or any(letter in value for letter in "\r\n\0"):
            raise RequestRefused(400, "a header is malformed")
        if name.lower() in headers and name.lower() not in LISTS:
            raise RequestRefused(400, f"the header {name} is given twice")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise RequestRefused(400, "a request has no body here")
    connection = headers.get("connection", "").lower()
    is_last = connection == "close" or (words[2] == "HTTP/1.0" and connection != "keep-alive")
    return RelayRequest(words[0], words[1], headers, is_last)
