"""The service's page for a browser, as a WSGI application that asks the service in its own user's name.

Whoever starts the application is who asks: the kernel or MUNGE says so to the service, and nothing that a
browser sends. So it is for one user: started by themselves (`outrider page`), or by a portal that runs a
process for each of its users, as Open OnDemand does.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from typing import Any, Callable
from urllib.parse import quote

from outrider_client.doors import LEADER_HEADER, Door, NotThere, Stranger
from outrider_client.errors import OutriderError

MOST_BODY_BYTES = 2**20
MOST_ANSWER_BYTES = 64 * 2**20
TIMEOUT_S = 70.0
METHODS = frozenset({"GET", "POST", "DELETE"})
PATHS = (
    "/page/",
    "/v1/images",
    "/v1/jobs",
    "/v1/nodes",
    "/v1/offers/",
    "/v1/overview",
    "/v1/plans",
    "/v1/reservations",
    "/v1/status",
    "/v1/transfers",
)
"""What the page asks for. The rest of the API is not reached from a browser."""
_PASSED_ON = {
    "HTTP_ACCEPT": "Accept",
    "HTTP_ACCEPT_ENCODING": "Accept-Encoding",
    "HTTP_HOST": "Host",
    "HTTP_IDEMPOTENCY_KEY": "Idempotency-Key",
    "HTTP_IF_NONE_MATCH": "If-None-Match",
    "HTTP_ORIGIN": "Origin",
    "HTTP_SEC_FETCH_SITE": "Sec-Fetch-Site",
    "CONTENT_TYPE": "Content-Type",
}
"""By Origin and Sec-Fetch-Site the service knows what pages of other sites ask for, and refuses it."""
_OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "keep-alive", "transfer-encoding", "date", "server"}
)
_REASONS = http.client.responses
Environment = dict[str, Any]
StartResponse = Callable[..., object]


class Portal:
    """The application. Several threads may call it."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        path = str(environment.get("PATH_INFO", ""))
        if path in ("", "/"):
            start_response("303 See Other", [("Location", f"{environment.get('SCRIPT_NAME', '')}/page/")])
            return [b""]
        status, headers, body = self._answer(environment, path)
        start_response(
            f"{status} {_REASONS.get(status, 'Answered')}", [*headers, ("Content-Length", str(len(body)))]
        )
        return [b"" if status == 304 else body]

    def _answer(self, environment: Environment, path: str) -> tuple[int, list[tuple[str, str]], bytes]:
        method = str(environment.get("REQUEST_METHOD", ""))
        if method not in METHODS or not path.startswith(PATHS) or ".." in path:
            return _trouble(404, "not-found", "there is no such path: open the page at page/")
        length = str(environment.get("CONTENT_LENGTH") or "0")
        if not (length.isascii() and length.isdigit() and len(length) < 10) or int(length) > MOST_BODY_BYTES:
            return _trouble(413, "invalid", f"the body is larger than {MOST_BODY_BYTES} bytes")
        body: bytes = environment["wsgi.input"].read(int(length)) if int(length) else b""
        target = quote(path.encode("latin-1"), safe="/~!$&'()*+,;=:@")
        if environment.get("QUERY_STRING"):
            target += f"?{environment['QUERY_STRING']}"
        headers = {name: str(environment[key]) for key, name in _PASSED_ON.items() if environment.get(key)}
        try:
            return self._asked(method, target, headers, body)
        except NotThere as error:
            return _trouble(503, "unavailable", f"outriderd is not running: {error}")
        except (OutriderError, Stranger, OSError, http.client.HTTPException) as error:
            return _trouble(503, "unavailable", f"outriderd does not answer: {error}")

    def _asked(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the service answers. One that stands by names who leads, and that one is asked once."""
        for _ in range(2):
            connection = self._door.connect(TIMEOUT_S)
            try:
                key = headers.get("Idempotency-Key", "")
                vouching = self._door.vouch(method, target, key, body, TIMEOUT_S)
                connection.request(
                    method, target, body=body or None, headers={**headers, **vouching, "Connection": "close"}
                )
                response = connection.getresponse()
                content = response.read(MOST_ANSWER_BYTES + 1)
            finally:
                connection.close()
            leader = response.headers.get(LEADER_HEADER, "")
            if response.status != 503 or not leader:
                break
            self._door.pass_on(leader)
        if len(content) > MOST_ANSWER_BYTES:
            return _trouble(503, "unavailable", f"the answer is larger than {MOST_ANSWER_BYTES} bytes")
        kept = [
            (name, value) for name, value in response.getheaders() if name.lower() not in _OF_THE_CONNECTION
        ]
        return response.status, kept, content


def _trouble(status: int, code: str, message: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """An error as the service itself would write it."""
    answer = json.dumps({"code": code, "message": message, "problems": []}).encode()
    return status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")], answer
