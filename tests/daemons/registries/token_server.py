"""A server of tokens for docker-registry: whoever asks may pull, as at registries with anonymous access."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import urllib.parse
from pathlib import Path

from cachemgr.base.clock import SystemClock
from tests.unit.cachemgr.fetch.servers import Asked, head

ISSUER, SERVICE = "test-issuer", "test-registry"


class TokenServer:
    """Answers for `tests.fetch.servers.serving`. `allows` says whether it gives tokens."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._key = key
        text = certificate.read_text().split("-----")[2]
        self._chain = "".join(text.split())
        self.allows = True
        self.asked: list[Asked] = []

    def section(self, port: int, certificate: Path) -> dict[str, object]:
        """What a registry's configuration says of it."""
        token = {"realm": f"http://127.0.0.1:{port}/token", "service": SERVICE, "issuer": ISSUER}
        return {"auth": {"token": {**token, "rootcertbundle": str(certificate)}}}

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        self.asked.append(asked)
        if not self.allows:
            sock.sendall(head("401 Unauthorized", Content_Length="0"))
            return
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(asked.target).query)
        kind, name, actions = query["scope"][0].split(":")
        body = json.dumps({"token": self._token(kind, name, actions.split(","))}).encode()
        sock.sendall(head("200 OK", Content_Length=str(len(body))) + body)

    def _token(self, kind: str, name: str, actions: list[str]) -> str:
        now_s = SystemClock().now_s()
        first = {"typ": "JWT", "alg": "RS256", "x5c": [self._chain]}
        claims = {
            "iss": ISSUER,
            "sub": "",
            "aud": SERVICE,
            "jti": "1",
            "iat": now_s - 5,
            "nbf": now_s - 5,
            "exp": now_s + 300,
            "access": [{"type": kind, "name": name, "actions": actions}],
        }
        signed = f"{_packed(json.dumps(first).encode())}.{_packed(json.dumps(claims).encode())}"
        argv = ["openssl", "dgst", "-sha256", "-sign", str(self._key)]
        done = subprocess.run(argv, input=signed.encode(), capture_output=True, check=True, timeout=240)
        return f"{signed}.{_packed(done.stdout)}"


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
