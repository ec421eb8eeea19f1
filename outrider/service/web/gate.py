"""What every request passes before and after its route: limits, the caller, JSON, and the last resort.

It is an ASGI application around the API's own. The body is read here, whole and bounded, since
MUNGE vouches for a request with its body; behind it nothing waits for a client any more.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from cachemgr.base.shares import BYTES, Share, Shares
from outrider.service.front import Busy
from outrider.service.meter import Log, Meter
from outrider.service.requests import Caller
from outrider.service.web.connections.munge import Munge, NotVouched
from outrider.service.web.connections.protocol import Line, Reception, too_many
from outrider.service.web.errors import HttpRefusal, RefusedRequest, of_busy, refusal, refused
from outrider.service.web.identity import Users
from outrider.service.web.limits import Limits, WebThreads
from outrider.service.web.requests.strictjson import JsonError, parse_json
from outrider_client.munge import MOST_CHARACTERS, SCHEME, hash_request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_HEADERS = 64
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json"})
"""What anybody may read who can connect: monitoring has no credentials."""

PROBES = frozenset({"/healthz", "/readyz"})
"""What is answered to anybody at any time."""
MOST_REQUESTS = 4_096
"""Under way at once; there are fewer connections than that."""

_KEY = re.compile(r"[!-~]{0,128}")
_ONCE = ("authorization", "content-length", "content-type", "idempotency-key")


class _Gone(Exception):
    """The client has hung up."""


class Gate:
    """The API's application, for callers that are known and requests that are small enough."""

    def __init__(
        self,
        app: App,
        *,
        users: Users,
        munge: Munge | None,
        limits: Limits,
        meter: Meter,
        log: Log,
        behind: Callable[[], list[Share]] = list,
    ) -> None:
        self._app = app
        self._users = users
        self._munge = munge
        self._limits = limits
        self._meter = meter
        self._log = log
        self.reception = Reception(limits, users.is_privileged)
        self._of_users = Shares(
            "requests of users",
            most=MOST_REQUESTS,
            most_of_one=limits.requests_per_user,
            kept=limits.kept,
        )
        self._of_hosts = Shares(
            "requests of other machines", most=MOST_REQUESTS, most_of_one=limits.requests_per_host
        )
        self._bodies = Shares(
            "bodies of requests",
            most=limits.bodies_bytes,
            most_of_one=max(limits.body_bytes, limits.bodies_bytes // 8),
            kept=limits.bodies_bytes // 8,
            unit=BYTES,
        )
        # Of whoever asks from another machine nothing is known yet but the machine.
        self._threads = WebThreads("credentials to be decoded", threads=4, of_one=2)
        self._behind = behind

    def close(self) -> None:
        self._threads.close()

    def shares(self) -> list[Share]:
        """Who has how much of what the API has to give."""
        return [
            *self.reception.shares(),
            *self._of_users.shares(),
            *self._of_hosts.shares(),
            *self._bodies.shares(),
            *self._threads.shares(),
            *self._users.shares(),
            *self._behind(),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        line: Line = scope["state"]["line"]
        answer = _Answer(send)
        began_s = asyncio.get_running_loop().time()
        request = _Taken()
        try:
            await self._pass(scope, receive, answer, line, request)
        finally:
            if request.body_bytes:
                self._bodies.give(line.who, request.body_bytes)
            for shares, who in request.slots:
                shares.give(who)
        self._measure(scope, answer.status, asyncio.get_running_loop().time() - began_s)

    async def _pass(self, scope: Scope, receive: Receive, answer: _Answer, line: Line, taken: _Taken) -> None:
        limits = self._limits
        try:
            if scope["path"] in PROBES:
                # Whoever watches over the service has to learn how it is, whatever others do.
                _headers(scope, limits.head_bytes)
                scope["state"]["caller"] = None
                await self._app(scope, _again(b"", receive), answer.send)
                return
            if line.is_for_probes:
                raise RefusedRequest(too_many())
            self._take(self._of_users if line.peer else self._of_hosts, line.who, line, taken)
            headers = _headers(scope, limits.head_bytes)
            _check_origin(scope["method"], headers)
            body = await self._body(headers, receive, line, taken)
            scope["state"]["caller"] = caller = await self._caller(scope, headers, body, line)
            if caller is not None and line.peer is None:
                self._take(self._of_users, caller.uid, line, taken)
            _check_json(headers, body)
            await self._app(scope, _again(body, receive), answer.send)
        except _Gone:
            return
        except RefusedRequest as error:
            await answer.refuse(error.refusal)
        except Busy as error:
            await answer.refuse(of_busy(error).refusal)
        # The outermost loop of a request: whatever it is, the client gets JSON and the log the traceback.
        except Exception:  # noqa: BLE001 - the log gets the whole of it
            self._log.error("request failed", path=scope["path"], trace=traceback.format_exc())
            if answer.status:
                # ServerErrorMiddleware has answered before it raised again.
                return
            await answer.refuse(fault())

    def _is_privileged(self, line: Line) -> bool:
        return line.peer is not None and self._users.is_privileged(line.peer.uid)

    def _take(self, shares: Shares, who: int | str, line: Line, taken: _Taken) -> None:
        """A place for a request of theirs. Raises Busy."""
        held = shares.held_by(who)
        if held >= shares.most_of_one:
            shares.refuse(who)
            whose = f"uid {who}" if isinstance(who, int) else f"host {who}"
            raise Busy(f"{held} requests of {whose} are under way: wait for one of them")
        if not shares.take(who, is_privileged=self._is_privileged(line)):
            raise Busy("too many requests are under way: ask again in a moment")
        taken.slots.append((shares, who))

    async def _body(self, headers: dict[str, str], receive: Receive, line: Line, taken: _Taken) -> bytes:
        most = self._limits.body_bytes
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 18 or int(announced) > most:
            raise _too_large(most)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            body += part
            if len(body) > most:
                raise _too_large(most)
            if part and not self._bodies.take(line.who, len(part), is_privileged=self._is_privileged(line)):
                raise Busy("too much is being sent to the service at once: ask again in a moment")
            taken.body_bytes += len(part)
            if not message.get("more_body", False):
                return bytes(body)

    async def _caller(self, scope: Scope, headers: dict[str, str], body: bytes, line: Line) -> Caller | None:
        if line.peer is not None:
            return await self._users.caller(line.peer.uid, line.peer.gid)
        if scope["path"] in OPEN_PATHS:
            return None
        if self._munge is None:
            words = "who asks cannot be known here: use the unix socket on the service's machine"
            raise refused(403, words, code="not-allowed")
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.upper() != SCHEME:
            raise RefusedRequest(_unauthorised("send Authorization: MUNGE and a credential for this request"))
        if len(credential) > MOST_CHARACTERS:
            raise RefusedRequest(_unauthorised(f"a credential has at most {MOST_CHARACTERS} characters"))
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        wanted = hash_request(
            scope["method"], target.decode("latin-1"), headers.get("idempotency-key", ""), body
        )
        munge = self._munge
        try:
            vouched = await self._threads.do(lambda: munge.vouch(credential.strip(), wanted), line.who)
        except NotVouched as error:
            if error.is_own_fault:
                self._log.error("credential not decoded", reason=error)
                raise refused(503, f"{error}: tell the administrators", code="unavailable") from error
            raise RefusedRequest(_unauthorised(str(error))) from error
        return await self._users.caller(vouched.uid, vouched.gid)

    def _measure(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._meter.count("outrider_requests_total", route, str(status or 499))
        self._meter.observe("outrider_request_seconds", seconds, route)


@dataclass(kw_only=True, slots=True)
class _Taken:
    """What a request holds until it is over."""

    slots: list[tuple[Shares, int | str]] = field(default_factory=list)
    body_bytes: int = 0


class _Answer:
    """Notes how the request was answered, and adds what every answer says. 0: not yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
            given = [each for each in message.get("headers", []) if each[0].lower() != b"cache-control"]
            message = {**message, "headers": [*given, *own]}
        await self._send(message)

    async def refuse(self, refused: HttpRefusal) -> None:
        # The body may not have been read: what follows on this connection means nothing then.
        headers = {"content-type": "application/json", "connection": "close", **refused.headers}
        headers["content-length"] = str(len(refused.body))
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": refused.body})


def fault() -> HttpRefusal:
    words = "the service met a fault of its own: tell the administrators, its log has more"
    return refusal(500, words, code="unavailable")


def _headers(scope: Scope, most_bytes: int) -> dict[str, str]:
    """The headers by their names in lower case. One that must not differ from itself stands once."""
    raw = scope["headers"]
    if len(raw) > MOST_HEADERS:
        raise refused(431, f"a request has at most {MOST_HEADERS} headers")
    # A head that comes in one piece is not measured where requests are taken apart.
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(map(len, itertools.chain(*raw)))
    if size > most_bytes:
        raise refused(431, f"the head of a request has at most {most_bytes} bytes")
    found: dict[str, str] = {}
    for name_bytes, value in raw:
        name = name_bytes.decode("latin-1").lower()
        if name in found and name in _ONCE:
            raise refused(400, f"the header {name} is sent twice: send it once")
        found[name] = value.decode("latin-1")
    if not _KEY.fullmatch(found.get("idempotency-key", "")):
        raise refused(400, "an Idempotency-Key has at most 128 visible ASCII characters, and no space")
    return found


def _check_origin(method: str, headers: dict[str, str]) -> None:
    """A browser changes something for a page of this service alone, whoever it asks for. It says so itself:
    by Sec-Fetch-Site over TLS and on its own machine, and by Origin elsewhere. Programs say neither."""
    if method in ("GET", "HEAD"):
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    is_own = (
        site == "same-origin" if site is not None else _host_of(origin) == headers.get("host", "").lower()
    )
    if not is_own and (site, origin) != (None, None):
        words = "a page of another site asked for this: use the page that the service has"
        raise refused(403, words, code="not-allowed")


def _host_of(origin: str | None) -> str:
    """HOST:PORT of an origin, as the header Host has it; a slash for what is none, which no host is."""
    scheme, _, host = (origin or "").lower().partition("://")
    return host if scheme in ("http", "https") and host else "/"


def _check_json(headers: dict[str, str], body: bytes) -> None:
    if not body:
        return
    kind, _, parameter = headers.get("content-type", "").lower().partition(";")
    if kind.strip() != "application/json" or parameter.strip() not in ("", "charset=utf-8"):
        raise refused(415, "a body is JSON in UTF-8 here: send Content-Type: application/json")
    try:
        parse_json(body)
    except JsonError as error:
        raise refused(400, str(error)) from error


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that has been read, once, and then what the client does."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


def _too_large(most: int) -> RefusedRequest:
    return refused(413, f"the body is larger than {most} bytes: a workspace is much smaller than that")


def _unauthorised(words: str) -> HttpRefusal:
    return refusal(401, words, code="not-allowed", headers={"WWW-Authenticate": SCHEME})
