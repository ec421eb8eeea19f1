"""Requests to object stores, signed for S3 (AWS Signature Version 4): by headers, or in an address.

A signed address is a right to read one object until it expires; the secret cannot be found from it.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANT = "%Y%m%dT%H%M%SZ"
ALGORITHM = "AWS4-HMAC-SHA256"
# The bytes of a request's body are not part of the signature: there are none.
PAYLOAD = "UNSIGNED-PAYLOAD"
# No store takes a signed address for longer.
LONGEST_S = 7 * 86_400


@dataclass(frozen=True)
class SigningKey:
    """A key of the site. `token` comes with one that was lent for a time, and `expires_s` says until when."""

    name: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires_s: int | None = None


@dataclass(frozen=True)
class Signer:
    """Signs requests to one host in one region."""

    key: SigningKey
    region: str
    host: str

    def headers(self, method: str, path: str, at_s: int, extra: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request that show the right to make it now; `extra` ones are part of it."""
        found = {name.lower(): value for name, value in extra.items()}
        found.update({"host": self.host, "x-amz-content-sha256": PAYLOAD, "x-amz-date": _instant(at_s)})
        if self.key.token:
            found["x-amz-security-token"] = self.key.token
        signature = self._signature(method, path, "", found, at_s)
        credential = f"Credential={self.key.name}/{self._scope(at_s)}"
        found["Authorization"] = (
            f"{ALGORITHM} {credential}, SignedHeaders={_names(found)}, Signature={signature}"
        )
        # Whoever sends the request says to whom it goes.
        del found["host"]
        return found

    def target(self, method: str, path: str, at_s: int, valid_s: int) -> str:
        """The path with a query that shows the right to this one request for so long."""
        query = {
            "X-Amz-Algorithm": ALGORITHM,
            "X-Amz-Credential": f"{self.key.name}/{self._scope(at_s)}",
            "X-Amz-Date": _instant(at_s),
            "X-Amz-Expires": str(valid_s),
            "X-Amz-SignedHeaders": "host",
        }
        if self.key.token:
            query["X-Amz-Security-Token"] = self.key.token
        text = "&".join(f"{encoded(name)}={encoded(query[name])}" for name in sorted(query))
        signature = self._signature(method, path, text, {"host": self.host}, at_s)
        return f"{path}?{text}&X-Amz-Signature={signature}"

    def _scope(self, at_s: int) -> str:
        return f"{_instant(at_s)[:8]}/{self.region}/s3/aws4_request"

    def _signature(self, method: str, path: str, query: str, headers: Mapping[str, str], at_s: int) -> str:
        lines = [f"{name}:{headers[name].strip()}\n" for name in sorted(headers)]
        request = "\n".join((method, path, query, "".join(lines), _names(headers), PAYLOAD))
        hashed = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join((ALGORITHM, _instant(at_s), self._scope(at_s), hashed))
        secret = f"AWS4{self.key.secret}".encode()
        for part in self._scope(at_s).split("/"):
            secret = _keyed(secret, part)
        return _keyed(secret, text).hex()


def encoded(text: str, also: str = "") -> str:
    """As signatures have it: everything but letters, digits and -_.~ as %XX."""
    return quote(text, safe=f"-_.~{also}")


def object_path(bucket: str, path: str) -> str:
    """What a store is asked for an object whose key is this path without its first slash."""
    return f"/{bucket}{encoded(path, '/')}"


def expiry_of(query: str) -> int | None:
    """When an address that somebody has signed expires, by its query; None if that does not say so."""
    found = {name.lower(): values[-1] for name, values in parse_qs(query).items()}
    for prefix in ("x-amz", "x-goog"):
        at, valid = found.get(f"{prefix}-date", ""), found.get(f"{prefix}-expires", "")
        if at and valid.isascii() and valid.isdigit() and len(valid) < 10:
            try:
                return calendar.timegm(time.strptime(at, INSTANT)) + int(valid)
            except ValueError:
                return None
    return None


def _instant(at_s: int) -> str:
    return time.strftime(INSTANT, time.gmtime(at_s))


def _names(headers: Mapping[str, str]) -> str:
    return ";".join(sorted(headers))


def _keyed(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
