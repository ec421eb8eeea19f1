"""A web server on the loopback that knows ranges."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.sources.served import CONTENT, Served
from tests.unit.cachemgr.fetch.servers import Asked, serving


@contextmanager
def _web(_folder: Path) -> Iterator[Served]:
    content = [CONTENT]

    def answer(asked: Asked, sock: socket.socket) -> None:
        image, start = content[0], asked.start()
        ranged = f"Content-Range: bytes {start}-{len(image) - 1}/{len(image)}\r\n" if start else ""
        head = (
            f"HTTP/1.1 {206 if start else 200} OK\r\nContent-Length: {len(image) - start}\r\n{ranged}"
            f'ETag: "{len(image)}"\r\nAccept-Ranges: bytes\r\nConnection: close\r\n\r\n'
        )
        sock.sendall(head.encode() + (b"" if asked.method == "HEAD" else image[start:]))

    def change() -> None:
        content[0] = CONTENT[1:]

    with serving(answer) as server:
        yield Served(uri=server.uri(), change=change)


SOURCES = {"http": _web}
