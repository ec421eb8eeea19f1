"""Images on other nodes of the cluster, which may still be receiving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Resolved
from cachemgr.fetch.sources.connect import dial
from cachemgr.fetch.sources.wire import ResponseBody, ResponseHead, exchange, number_in, request_bytes

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.fetch.sources.uris import Location

HAVE = "x-outrider-have"


class RelaySource:
    """A node that has the image or is receiving it. The ticket says that this image may be had."""

    is_relay = True

    def __init__(self, location: Location, ticket: str | None, clock: Clock) -> None:
        self.name = location.name
        self._location = location
        self._ticket = ticket
        self._clock = clock

    def resolve(self, timeout_s: float) -> Resolved:
        head, body = self._request("HEAD", 0, timeout_s)
        body.close()
        _refuse(head)
        size = head.length_bytes()
        if size is None:
            raise SourceFault("the node does not say how large the image is", is_final=True)
        return Resolved(size, self._location.digest, self._location.digest)

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> ResponseBody:
        head, body = self._request("GET", offset, timeout_s)
        try:
            _refuse(head)
            length = head.length_bytes()
            if length != size_bytes - offset:
                raise SourceFault(
                    f"the node offers {length} bytes from {offset}, of an image of {size_bytes}",
                    is_final=True,
                )
        except BaseException:
            body.close()
            raise
        body.start_bytes = offset
        return body

    def status(self, timeout_s: float) -> FetchStatus | None:
        try:
            head, body = self._request("HEAD", 0, timeout_s)
        except SourceFault:
            return None
        body.close()
        have, size = number_in(head.headers.get(HAVE, "")), head.length_bytes()
        if head.status != 200 or size is None or have is None:
            return None
        return FetchStatus(have, size)

    def _request(self, method: str, offset: int, timeout_s: float) -> tuple[ResponseHead, ResponseBody]:
        host = f"[{self._location.host}]" if ":" in self._location.host else self._location.host
        port = self._location.port or 0
        headers = {"Host": f"{host}:{port}", "Connection": "close"}
        if self._ticket is not None:
            headers["Authorization"] = f"Outrider {self._ticket}"
        if offset:
            headers["Range"] = f"bytes={offset}-"
        sock = dial(self._location.host, port, timeout_s, self._clock)
        try:
            request = request_bytes(method, f"/v1/images/{self._location.digest}", headers)
            head, rest = exchange(sock, request, timeout_s, self._clock)
        except BaseException:
            sock.close()
            raise
        return head, ResponseBody(sock, rest, 0 if method == "HEAD" else head.length_bytes(), 0)


def _refuse(head: ResponseHead) -> None:
    if head.status in (200, 206):
        return
    said = f"the node says {head.status} {head.reason[:80]}".rstrip()
    if head.status == 404:
        raise SourceFault(said, is_early=True)
    raise SourceFault(said, is_final=head.status in (400, 401, 403, 405))
