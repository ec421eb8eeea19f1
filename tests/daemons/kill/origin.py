"""Where images come from: files, and a web server that is slow and counts every byte it sends."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.daemons.kill.victim import CLOCK

BLOCK = 32 << 10
BUFFER = 128 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An image as its users name it."""

    uri: str
    digest: str
    size_bytes: int
    is_solo: bool = False
    """For one reservation on one node: then nothing but a repair explains a byte sent twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One answer: from where on, and how much of it the connection took."""

    path: str
    first: int
    count: int


@dataclass
class Origin:
    """One thread a connection. `rate_bytes_per_s` is of each connection."""

    folder: Path
    rate_bytes_per_s: int
    sent: list[Sent] = field(default_factory=list)
    images: dict[str, bytes] = field(default_factory=dict)
    solo: set[str] = field(default_factory=set)
    held_at: int | None = None
    """No first answer goes on beyond that many bytes before `let_go`: whoever is to be killed is not done."""

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._listener.getsockname()[1])
        self._is_closing = threading.Event()
        self._let_go = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def served(self, name: str, size_bytes: int, *, is_solo: bool = False) -> Source:
        """A new image on the web server."""
        data = Random(name).randbytes(size_bytes)
        self.images[f"/{name}"] = data
        if is_solo:
            self.solo.add(f"/{name}")
        return replace(self._source(f"http://127.0.0.1:{self._port}/{name}", data), is_solo=is_solo)

    def filed(self, name: str, size_bytes: int) -> Source:
        """A new image as a file."""
        data = Random(name).randbytes(size_bytes)
        path = self.folder / name
        path.write_bytes(data)
        return self._source(f"file://{path}", data)

    def let_go(self) -> None:
        self._let_go.set()

    def close(self) -> None:
        self._is_closing.set()
        self._let_go.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _source(self, uri: str, data: bytes) -> Source:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        return Source(uri=uri, digest=digest, size_bytes=len(data))

    def _accept(self) -> None:
        while not self._is_closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.settimeout(10)
            # What lies in buffers when the other end dies would count as sent, and never arrives.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            request = b""
            while b"\r\n\r\n" not in request:
                more = sock.recv(65_536)
                if not more:
                    return
                request += more
            self._answer(sock, request.decode("latin-1"))

    def _answer(self, sock: socket.socket, request: str) -> None:
        method, path, _ = request.partition("\r\n")[0].split(" ")
        data = self.images.get(path)
        if data is None:
            sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        lines = dict(line.lower().split(": ", 1) for line in request.split("\r\n")[1:] if ": " in line)
        first = int(lines.get("range", "bytes=0-").partition("=")[2].partition("-")[0])
        status = "200 OK" if first == 0 else "206 Partial Content"
        sock.sendall(
            (
                f"HTTP/1.1 {status}\r\nContent-Length: {len(data) - first}\r\nConnection: close\r\n"
                f"Content-Range: bytes {first}-{len(data) - 1}/{len(data)}\r\n"
                f'ETag: "{len(data)}"\r\nAccept-Ranges: bytes\r\n\r\n'
            ).encode()
        )
        if method == "GET":
            self._send(sock, path, data, first)

    def _send(self, sock: socket.socket, path: str, data: bytes, first: int) -> None:
        began_s, at = CLOCK.monotonic_s(), first
        try:
            while at < len(data) and not self._is_closing.is_set():
                due_s = began_s + (at - first) / self.rate_bytes_per_s
                CLOCK.sleep(max(0.0, due_s - CLOCK.monotonic_s()))
                if self.held_at is not None and first == 0 and at >= self.held_at:
                    self._let_go.wait()
                at += sock.send(data[at : at + BLOCK])
        finally:
            self.sent.append(Sent(path=path, first=first, count=at - first))


@contextmanager
def origin(folder: Path, *, rate_bytes_per_s: int) -> Iterator[Origin]:
    folder.mkdir()
    folder.chmod(0o755)
    found = Origin(folder, rate_bytes_per_s)
    try:
        yield found
    finally:
        found.close()
