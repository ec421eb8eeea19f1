"""Images on web servers: http:// and https://."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.faults import SourceFault, Unauthorized
from cachemgr.fetch.ports import FetchStatus, Resolved
from cachemgr.fetch.sources.connect import (
    Terms,
    WebSettings,
    address_of,
    authorization,
    connect,
    proxy_authorization,
    via_http_proxy,
)
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.fetch.sources.wire import (
    ChunkedBody,
    ResponseBody,
    ResponseHead,
    exchange,
    number_in,
    request_bytes,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock

    AnyBody = ResponseBody | ChunkedBody

MOST_REDIRECTS = 5
MOST_RETRY_AFTER_S = 300
REDIRECTS = (301, 302, 303, 307, 308)
# After these the same question may be answered differently.
PASSING = (408, 425, 429, 500, 502, 503, 504)
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
AGENT = "outrider-cachemgr"


class WebSource:
    """A file on a web server, from any offset on if the server knows ranges."""

    is_relay = False

    def __init__(
        self,
        location: Location,
        settings: WebSettings,
        clock: Clock,
        validator: str | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.name = location.name
        self._location = location
        self._settings = settings
        self._clock = clock
        self._validator = validator
        self._terms = terms

    def resolve(self, timeout_s: float) -> Resolved:
        head, size = self.look_up(timeout_s)
        self._validator = _validator_of(head)
        return Resolved(size, self._location.path.rpartition("/")[2], self._validator)

    def look_up(self, timeout_s: float, headers: Mapping[str, str] | None = None) -> tuple[ResponseHead, int]:
        """What the server says of the file, and its size.

        By HEAD, or by a range of one byte where HEAD is refused or says nothing of the size.
        """
        asked, until_s = dict(headers or {}), self._clock.monotonic_s() + timeout_s
        head, body = self.request("HEAD", asked, timeout_s)
        body.close()
        size = head.length_bytes() if head.status == 200 else None
        if size is None:
            # Both requests together have the time that was given.
            left_s = until_s - self._clock.monotonic_s()
            head, body = self.request("GET", {**asked, "Range": "bytes=0-0"}, left_s)
            body.close()
            refuse(head)
            _, size = _content_range(head) if head.status == 206 else (0, head.length_bytes())
        if size is None:
            raise SourceFault(f"{self.name} does not say how large it is", is_final=True)
        _refuse_encoding(head)
        return head, size

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> AnyBody:
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if self._validator is not None and not self._validator.startswith("W/"):
                headers["If-Range"] = self._validator
        head, body = self.request("GET", headers, timeout_s)
        try:
            self._check(head, offset, size_bytes)
            body.start_bytes = offset if head.status == 206 else 0
        except BaseException:
            body.close()
            raise
        return body

    def status(self, timeout_s: float) -> FetchStatus | None:
        return None

    def _check(self, head: ResponseHead, offset: int, size_bytes: int) -> None:
        """Whether the answer is about the file that was resolved, and the part that was asked for."""
        if head.status == 416:
            raise SourceFault(f"the file has changed: it ends before byte {offset}", is_final=True)
        refuse(head)
        _refuse_encoding(head)
        size = head.length_bytes()
        if head.status == 206:
            start, size = _content_range(head)
            if start != offset:
                raise SourceFault(f"asked for bytes from {offset}, the server sends those from {start}")
        validator = _validator_of(head)
        if size is not None and size != size_bytes:
            raise SourceFault(
                f"the file has changed: it has {size} bytes instead of {size_bytes}", is_final=True
            )
        if self._validator is not None and validator is not None and validator != self._validator:
            raise SourceFault(
                f"the file has changed: its validator is {validator} and was {self._validator}",
                is_final=True,
            )
        self._validator = self._validator or validator

    def request(self, method: str, headers: dict[str, str], timeout_s: float) -> tuple[ResponseHead, AnyBody]:
        """Ask, and follow redirects: never from https to http; the password is for the first host only."""
        until_s = self._clock.monotonic_s() + timeout_s
        location, terms = self._location, self._terms
        secret = authorization(location, self._settings) if terms is None else terms.secret
        for _ in range(MOST_REDIRECTS + 1):
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise SourceFault(f"no answer within {timeout_s:g} s")
            if terms is not None and not terms.may_ask(location):
                raise SourceFault(
                    f"{address_of(location)} would be asked without TLS, which the site does not allow: use "
                    "https, or ask the administrators to name it in plain_http",
                    is_final=True,
                )
            allowed = secret if _origin(location) == _origin(self._location) else {}
            sock = connect(location, self._settings, left_s, self._clock)
            try:
                left_s = until_s - self._clock.monotonic_s()
                head, rest = self._ask(sock, method, location, {**headers, **allowed}, left_s)
            except BaseException:
                sock.close()
                raise
            if terms is not None and head.status == 401 and _origin(location) == _origin(self._location):
                sock.close()
                raise Unauthorized(head.headers.get("www-authenticate", ""))
            if head.status not in REDIRECTS:
                return head, _body_of(sock, method, head, rest)
            sock.close()
            location = _redirected(location, head)
        raise SourceFault(f"more than {MOST_REDIRECTS} redirects", is_final=True)

    def _ask(
        self, sock: socket.socket, method: str, location: Location, headers: dict[str, str], timeout_s: float
    ) -> tuple[ResponseHead, bytes]:
        host = address_of(location)
        target, extra = location.target, {}
        proxy = via_http_proxy(location, self._settings)
        if proxy is not None:
            target, extra = f"http://{host}{target}", proxy_authorization(proxy)
        fixed = {"Host": host, "User-Agent": AGENT, "Accept-Encoding": "identity", "Connection": "close"}
        request = request_bytes(method, target, {**fixed, **headers, **extra})
        return exchange(sock, request, timeout_s, self._clock)


def _origin(location: Location) -> tuple[str, str, int | None]:
    return location.scheme, location.host, location.port


def _redirected(location: Location, head: ResponseHead) -> Location:
    target = head.headers.get("location", "")
    if not target:
        # S3 says so of a bucket in another region.
        region = head.headers.get("x-amz-bucket-region", "")[:40]
        where = f"; the bucket is in the region {region}" if region else ""
        raise SourceFault(f"the server says {head.status} and no other address{where}", is_final=True)
    base = f"{location.scheme}://{f'[{location.host}]' if ':' in location.host else location.host}"
    base += location.target if location.port is None else f":{location.port}{location.target}"
    try:
        following = parse(urljoin(base, target).partition("#")[0])
    except (BadRequest, ValueError) as error:
        raise SourceFault(
            f"redirected to something that is not a usable URI: {target[:200]!r}", is_final=True
        ) from error
    if following.scheme not in ("http", "https") or (location.scheme, following.scheme) == ("https", "http"):
        raise SourceFault(
            f"redirected from {location.scheme} to {following.scheme}, which is not followed", is_final=True
        )
    return replace(following, user=None, password=None)


def _body_of(sock: socket.socket, method: str, head: ResponseHead, rest: bytes) -> AnyBody:
    is_chunked = head.headers.get("transfer-encoding", "").lower() == "chunked"
    length = 0 if method == "HEAD" else None if is_chunked else head.length_bytes()
    body = ResponseBody(sock, rest, length, 0)
    return ChunkedBody(body) if is_chunked and method != "HEAD" else body


def refuse(head: ResponseHead) -> None:
    """Raise what an answer says that is not about the file's bytes."""
    if head.status in (200, 206):
        return
    said = f"the server says {head.status} {head.reason[:80]}".rstrip()
    if head.status in PASSING:
        wait_s = number_in(head.headers.get("retry-after", ""))
        wait_s = None if wait_s is None else min(wait_s, MOST_RETRY_AFTER_S)
        raise SourceFault(said, retry_after_s=wait_s, status=head.status)
    if head.status in (401, 403, 407):
        raise SourceFault(f"{said}: the service may not read it", is_final=True, status=head.status)
    raise SourceFault(said, is_final=True, status=head.status)


def _refuse_encoding(head: ResponseHead) -> None:
    encoding = head.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", ""):
        raise SourceFault(
            f"the server sends the file encoded as {encoding[:40]}, so that its bytes differ", is_final=True
        )


def _content_range(head: ResponseHead) -> tuple[int, int | None]:
    found = CONTENT_RANGE.fullmatch(head.headers.get("content-range", ""))
    if found is None:
        raise SourceFault("the server sends a part without saying which", is_final=True)
    return int(found[1]), None if found[3] == "*" else int(found[3])


def _validator_of(head: ResponseHead) -> str | None:
    return head.headers.get("etag") or head.headers.get("last-modified")
