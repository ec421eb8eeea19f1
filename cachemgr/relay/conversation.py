"""One connection to the relay: requests read, admitted or refused, and answered."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.base.errors import CacheError
from cachemgr.base.steady import past_s
from cachemgr.relay.request import RelayRequest, RequestRefused, parse_request
from cachemgr.relay.sending import GaveUp, Sender
from cachemgr.relay.tickets import SCHEME, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.ports import Held, Holdings
    from cachemgr.relay.connections import RelayConnections, RelaySettings

MOST_HEAD_BYTES = 8192
# How a client begins that wants to speak TLS.
TLS = b"\x16\x03"
MOST_REQUESTS = 1000
REASONS = {
    200: "OK",
    206: "Partial Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    416: "Range Not Satisfiable",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True)
class RelayContext:
    """What all connections of a relay share."""

    holdings: Holdings
    settings: RelaySettings
    clock: Clock
    limit: RateLimit
    # Given a line, and the host that is to blame for it if that has shown no ticket.
    log: Callable[[str, str], None]
    is_stopped: Callable[[], bool]
    places: RelayConnections


class Conversation:
    """One connection: requests and answers, one after the other."""

    name = "relay"
    challenge = SCHEME

    def __init__(self, site: RelayContext, sock: socket.socket, host: str) -> None:
        self._site = site
        self._clock = site.clock
        self._settings = site.settings
        self._sock = sock
        self._host = host
        self._received = bytearray()
        self._stranger_until_s: float | None = site.clock.monotonic_s() + site.settings.stranger_s

    def carry_on(self) -> None:
        with contextlib.suppress(OSError):
            # The last part of an answer must not wait for an acknowledgement.
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(MOST_REQUESTS):
                if self._site.is_stopped() or not self._exchange():
                    return

    def _exchange(self) -> bool:
        """One request and its answer; whether another may follow."""
        begin_s = self._clock.monotonic_s()
        try:
            head = self._read_head()
            if head is None:
                return False
            request = parse_request(head)
        except RequestRefused as refused:
            self._refuse(refused, None, begin_s)
            return False
        try:
            held = self._find(request)
        except RequestRefused as refused:
            self._refuse(refused, request, begin_s)
            return not request.is_last
        try:
            return self._answer(request, held, begin_s) and not request.is_last
        except RequestRefused as refused:
            self._refuse(refused, request, begin_s, {"Content-Range": f"bytes */{held.size_bytes}"})
            return not request.is_last
        finally:
            held.close()

    def _read_head(self) -> bytes | None:
        """The next request's head; None if the client is done."""
        until_s = self._until_s(self._settings.head_s)
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > MOST_HEAD_BYTES:
                raise RequestRefused(431, f"the head of the request is longer than {MOST_HEAD_BYTES} bytes")
            left_s = until_s - self._clock.monotonic_s()
            try:
                self._sock.settimeout(max(0.001, left_s))
                more = self._sock.recv(4096) if left_s > 0 else b""
            except OSError:
                left_s, more = 0, b""
            if not more and self._received and left_s <= 0:
                raise RequestRefused(408, "the head of the request did not come in time")
            if not more:
                return None
            self._received += more
            if self._received.startswith(TLS):
                # Runtimes try that first, and would wait for an answer.
                raise RequestRefused(400, "TLS is not spoken here")
        if self._stranger_until_s is not None:
            self._site.places.strangers.hear(self._sock)
        head = bytes(self._received[:end])
        del self._received[: end + 4]
        return head

    def _find(self, request: RelayRequest) -> Held:
        """The image, if there is one and this client may have it."""
        digest = request.digest()
        authorization = request.headers.get("authorization", "")
        reason = refusal(self._settings.keys, digest, authorization, past_s(self._clock))
        if reason is not None and (authorization or not self._settings.serves_public):
            raise RequestRefused(401, reason)
        try:
            held = self._site.holdings.open(digest)
        except CacheError as error:
            raise RequestRefused(503, str(error)) from error
        if reason is not None and (held is None or not held.is_public):
            # Whether there is such an image is nobody's business without a ticket.
            if held is not None:
                held.close()
            raise RequestRefused(401, reason)
        try:
            self._let_in(has_ticket=reason is None)
        except RequestRefused:
            if held is not None:
                held.close()
            raise
        if held is None:
            raise RequestRefused(404, "this node neither holds nor receives the image")
        return held

    def _let_in(self, *, has_ticket: bool) -> None:
        """A place among those who have shown what admits them, instead of one among strangers."""
        if self._stranger_until_s is None:
            return
        if not self._site.places.let_in(self._sock, self._host, has_ticket=has_ticket):
            raise RequestRefused(503, "this node serves as many as it can: try again")
        self._stranger_until_s = None

    def _until_s(self, patience_s: float) -> float:
        until_s = self._clock.monotonic_s() + patience_s
        return until_s if self._stranger_until_s is None else min(until_s, self._stranger_until_s)

    def _answer(self, request: RelayRequest, held: Held, begin_s: float) -> bool:
        """Send the image or its head; whether it went well."""
        tag, described = self._described(request, held)
        span = request.span(held.size_bytes, tag)
        start, end = span or (0, held.size_bytes)
        try:
            have_bytes = held.valid_bytes()
        except CacheError as error:
            # It went the moment it was found.
            raise RequestRefused(404, str(error)) from error
        headers = {
            "Content-Length": str(end - start),
            "ETag": tag,
            "Accept-Ranges": "bytes",
            "X-Outrider-Have": str(have_bytes),
            **described,
        }
        if span is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{held.size_bytes}"
        if request.is_last:
            headers["Connection"] = "close"
        status = 200 if span is None else 206
        self._sock.settimeout(self._settings.idle_s)
        self._sock.sendall(head_of(status, headers))
        if request.method == "HEAD":
            self._note(request, status, begin_s)
            return True
        settings = self._settings
        sender = Sender(
            self._sock,
            self._site.limit,
            self._clock,
            self._site.is_stopped,
            settings.idle_s,
            settings.starved_s,
        )
        try:
            sender.send(held, start, end)
        except (GaveUp, CacheError) as error:
            self._note(request, status, begin_s, sender.sent_bytes, str(error))
            return False
        self._note(request, status, begin_s, sender.sent_bytes)
        return True

    def _described(self, request: RelayRequest, held: Held) -> tuple[str, dict[str, str]]:
        """What tells one content from another, and what else is said of it."""
        return f'"{request.digest()}"', {"Content-Type": "application/octet-stream"}

    def _refuse(
        self,
        refused: RequestRefused,
        request: RelayRequest | None,
        begin_s: float,
        more: dict[str, str] | None = None,
    ) -> None:
        text = b"" if request is not None and request.method == "HEAD" else f"{refused}\n".encode()
        headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(text))}
        if refused.status == 401:
            headers["WWW-Authenticate"] = self.challenge
        if refused.status == 405:
            headers["Allow"] = "GET, HEAD"
        if refused.status == 416:
            headers.update(more or {})
        if request is None or request.is_last:
            headers["Connection"] = "close"
        # A stranger who takes nothing gets no more time for that.
        self._sock.settimeout(max(0.01, self._until_s(self._settings.idle_s) - self._clock.monotonic_s()))
        self._sock.sendall(head_of(refused.status, headers) + text)
        self._note(request, refused.status, begin_s, 0, str(refused))

    def _note(
        self, request: RelayRequest | None, status: int, begin_s: float, sent_bytes: int = 0, reason: str = ""
    ) -> None:
        method, target = ("-", "-") if request is None else (request.method, request.target[:100])
        duration_ms = int((self._clock.monotonic_s() - begin_s) * 1000)
        line = f"{self.name} answered node={self._host} method={method} target={target!r} status={status}"
        line += f" sent_bytes={sent_bytes} duration_ms={duration_ms}"
        culprit = "" if self._stranger_until_s is None else self._host
        self._site.log(line + (f" reason={reason!r}" if reason else ""), culprit)


def head_of(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
