"""An S3 store on the loopback: moto keeps the objects, botocore judges the signatures, as a store would.

moto alone lets everybody read everything, and knows no expiry of a signed address.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client

from cachemgr.base.clock import SystemClock

REGION = "eu-test-1"
KEY_NAME, SECRET = "AKIDOFTHESITE", "secret/of+the/site"
# What moto takes for the store of all regions.
KNOWN = "AWS4-HMAC-SHA256 Credential=judged/20260101/us-east-1/s3/aws4_request"
MOTO = "s3.amazonaws.com"
INSTANT = "%Y%m%dT%H%M%SZ"
Environ = dict[str, Any]
Answered = Iterable[bytes]


@dataclass
class Store:
    """`private` are buckets that want a signature; `ahead_s` is how far the store's clock is ahead."""

    app: Any
    port: int = 0
    private: set[str] = field(default_factory=set)
    ahead_s: int = 0
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path and status of each answer."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bucket(self, name: str, *, is_private: bool = True) -> None:
        self._put(f"/{name}", b"", {})
        if is_private:
            self.private.add(name)

    def put(self, bucket: str, key: str, data: bytes, *, has_checksum: bool = True) -> None:
        found = base64.b64encode(hashlib.sha256(data).digest()).decode()
        told = {"x-amz-checksum-sha256": found, "x-amz-sdk-checksum-algorithm": "SHA256"}
        self._put(f"/{bucket}/{key}", data, told if has_checksum else {})

    def _put(self, path: str, data: bytes, headers: dict[str, str]) -> None:
        answer = Client(self.app).put(
            path,
            data=data,
            headers={"Authorization": KNOWN, **headers},
            base_url=f"http://{MOTO}",
            content_type="binary/octet-stream",
        )
        assert answer.status_code == 200, answer.text

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Answered:
        method, path = str(environ["REQUEST_METHOD"]), str(environ["PATH_INFO"])
        bucket = path.split("/")[1]
        fault = self._fault(environ) if bucket in self.private else ""
        if fault:
            self.asked.append((method, path, 403))
            body = f"<Error><Code>{fault}</Code></Error>".encode()
            start("403 Forbidden", [("Content-Length", str(len(body)))])
            return [] if method == "HEAD" else [body]

        def noted(status: str, *rest: Any) -> Any:
            self.asked.append((method, path, int(status.split()[0])))
            return start(status, *rest)

        environ["QUERY_STRING"] = ""
        environ["HTTP_HOST"] = MOTO
        environ["HTTP_AUTHORIZATION"] = KNOWN
        answer: Answered = self.app(environ, noted)
        return answer

    def _fault(self, environ: Environ) -> str:
        query = dict(parse_qsl(str(environ["QUERY_STRING"]), keep_blank_values=True))
        given = query.pop("X-Amz-Signature", "")
        if given:
            return self._fault_of_address(environ, query, given)
        header = str(environ.get("HTTP_AUTHORIZATION", ""))
        if not header:
            return "AccessDenied"
        fields = dict(part.strip().split("=", 1) for part in header.partition(" ")[2].split(","))
        at = str(environ["HTTP_X_AMZ_DATE"])
        if abs(self._now_s() - _seconds(at)) > 900:
            return "RequestTimeTooSkewed"
        names = fields["SignedHeaders"].split(";")
        unsigned = {name for name in _headers(environ) if name.startswith("x-amz-")} - set(names)
        if unsigned:
            return "AccessDenied"
        return self._compare(environ, S3SigV4Auth, names, at, fields["Signature"], {})

    def _fault_of_address(self, environ: Environ, query: dict[str, str], given: str) -> str:
        at = query["X-Amz-Date"]
        if int(query["X-Amz-Expires"]) > 604_800:
            return "AuthorizationQueryParametersError"
        if self._now_s() > _seconds(at) + int(query["X-Amz-Expires"]):
            return "AccessDenied"
        return self._compare(environ, S3SigV4QueryAuth, ["host"], at, given, query)

    def _compare(
        self, environ: Environ, kind: Any, names: list[str], at: str, given: str, query: dict[str, str]
    ) -> str:
        raw = str(environ["REQUEST_URI"]).partition("?")[0]
        request = AWSRequest(
            method=environ["REQUEST_METHOD"],
            url=f"{self.endpoint}{raw}",
            params=query,
            headers={name: value for name, value in _headers(environ).items() if name in names},
        )
        request.context["timestamp"] = at
        judge = kind(Credentials(KEY_NAME, SECRET), "s3", REGION)
        canonical = judge.canonical_request(request)
        if query:
            canonical = f"{canonical.rpartition(chr(10))[0]}\nUNSIGNED-PAYLOAD"
        signature = judge.signature(judge.string_to_sign(request, canonical), request)
        return "" if signature == given else "SignatureDoesNotMatch"

    def _now_s(self) -> int:
        return SystemClock().now_s() + self.ahead_s


def _headers(environ: Environ) -> dict[str, str]:
    return {
        name[5:].replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }


def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, INSTANT))


@contextmanager
def running() -> Iterator[Store]:
    store = Store(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, store, threaded=True)
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
