"""A server of images over HTTP: a folder's files, whole or from a byte on. Runs on a host by itself.

What a downloader may ask: GET and HEAD, one range, and If-None-Match against a tag of the
file's size and time. It serves each request in a thread and lets the kernel send the bytes.
While there is a file NAME.held beside NAME, only the first half of what is asked for is sent.
"""

from __future__ import annotations

import http.server
import os
import re
import sys
import time
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

RANGE = re.compile(r"bytes=(\d*)-(\d*)")
TIMEOUT_S = 60
HELD_S = 0.05


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a downloader."""

    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        name = os.path.normpath("/" + urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)).lstrip("/")
        # A name relative to the server's folder: it cannot lead out of there, links may.
        if not os.path.isfile(name):
            self._refuse(404)
            return
        with open(name, "rb") as file:
            self._send(file, with_body=with_body)

    def _send(self, file: BinaryIO, *, with_body: bool) -> None:
        found = os.fstat(file.fileno())
        tag = f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(304)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        wanted = self._range(found.st_size, tag)
        if wanted is None:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{found.st_size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin, end, is_part = wanted
        self.send_response(206 if is_part else 200)
        if is_part:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{found.st_size}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", tag)
        self.end_headers()
        if with_body:
            self.wfile.flush()
            half = (end - begin) // 2 if _is_held(file) else 0
            sent = self.connection.sendfile(file, begin, half) if half else 0
            while _is_held(file):
                time.sleep(HELD_S)
            sent += self.connection.sendfile(file, begin + sent, end - begin - sent)
            self.log_message("%s", f"sent bytes={sent} path={self.path}")

    def _range(self, size: int, tag: str) -> tuple[int, int, bool] | None:
        """Begin, end, and whether it is a part; None if there is no such part."""
        match = RANGE.fullmatch(self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        if match is None or match[0] == "bytes=-" or (condition is not None and condition != tag):
            return 0, size, False
        if match[1] == "":
            begin, end = max(0, size - int(match[2])), size
        else:
            begin = int(match[1])
            end = min(size, int(match[2]) + 1) if match[2] else size
        return (begin, end, True) if begin < end else None

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _is_held(file: BinaryIO) -> bool:
    return os.path.exists(f"{file.name}.held")


class ImageServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    folder, port = sys.argv[1], int(sys.argv[2])
    os.chdir(folder)
    ImageServer(("", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
