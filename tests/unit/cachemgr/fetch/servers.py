"""A web server on the loopback that answers just as a test says, in raw bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[["Asked", socket.socket], None]


class Asked:
    """A request that came in."""

    def __init__(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }

    def start(self) -> int:
        """The first byte of the range that is asked for."""
        return int(self.headers.get("range", "bytes=0-").partition("=")[2].partition("-")[0])


class Server:
    """One thread a connection, one request a connection."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[Asked] = []
        self.answer = answer
        self.is_closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def uri(self, path: str = "/image.qcow2") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self.is_closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _accept(self) -> None:
        while not self.is_closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        # A client may leave in the middle; that is its right.
        with sock, contextlib.suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                more = sock.recv(65_536)
                if not more:
                    return
                data += more
            asked = Asked(data.partition(b"\r\n\r\n")[0].decode("latin-1"))
            self.asked.append(asked)
            self.answer(asked, sock)


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


def head(status: str, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def file_server(data: bytes, *, etag: str = '"one"', knows_ranges: bool = True) -> Answer:
    """What a good server does with a file."""

    def answer(asked: Asked, sock: socket.socket) -> None:
        start = asked.start() if knows_ranges else 0
        if knows_ranges and "range" in asked.headers and asked.headers.get("if-range", etag) == etag:
            content_range = f"bytes {start}-{len(data) - 1}/{len(data)}"
            sock.sendall(
                head(
                    "206 Partial Content",
                    Content_Length=str(len(data) - start),
                    Content_Range=content_range,
                    ETag=etag,
                )
            )
            sock.sendall(data[start:])
            return
        sock.sendall(head("200 OK", Content_Length=str(len(data)), ETag=etag))
        if asked.method == "GET":
            sock.sendall(data)

    return answer
