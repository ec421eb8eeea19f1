"""A little HTTP server on a unix socket that answers what it is told and remembers what it was asked."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from outrider.cli.output import plain


@dataclass(kw_only=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: object


@dataclass(kw_only=True)
class Reply:
    """An answer: a frozen value or plain data, or raw bytes. `hangs_up`: nothing is sent at all."""

    value: object = None
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hangs_up: bool = False

    @property
    def content(self) -> bytes:
        return json.dumps(plain(self.value)).encode() if self.raw is None else self.raw


Answer = Callable[[Asked], Reply]


class Service:
    """Routes to replies. A route with several replies gives one after the other, the last one forever."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[Asked] = []
        self._replies: dict[tuple[str, str], list[Reply | Answer]] = {}

    def on(self, method: str, path: str, *replies: object) -> None:
        self._replies[method, path] = [
            each if isinstance(each, Reply) or callable(each) else Reply(value=each) for each in replies
        ]

    def reply_to(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        replies = self._replies.get((asked.method, asked.path))
        if not replies:
            trouble = {"code": "not-found", "message": f"no {asked.method} {asked.path}", "problems": []}
            return Reply(status=404, value=trouble)
        found = replies.pop(0) if len(replies) > 1 else replies[0]
        return found if isinstance(found, Reply) else found(asked)

    def last(self, method: str) -> Asked:
        return [each for each in self.asked if each.method == method][-1]


class _Handler(BaseHTTPRequestHandler):
    service: Service

    def _answer(self) -> None:
        split = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        asked = Asked(
            method=self.command,
            path=split.path,
            query={name: values[0] for name, values in parse_qs(split.query).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=json.loads(content) if content else None,
        )
        reply = self.service.reply_to(asked)
        if reply.hangs_up:
            return
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.content)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        """Tests look at what was asked instead."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of what is tested."""


@contextmanager
def serving(path: Path) -> Iterator[Service]:
    """The service, on a socket, until the block ends."""
    service = Service(path)
    handler = type("Handler", (_Handler,), {"service": service})
    with _Server(str(path), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
    path.unlink(missing_ok=True)
