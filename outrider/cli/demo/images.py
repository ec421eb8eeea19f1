"""Images made on the spot, and a web server that gives them to the nodes.

A server, because a file that lies on the pools' own file system may be shared block by block:
nothing would be moved, and nothing could be seen.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CLUSTER_BYTES = 65_536
HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
USED = 1 << 63
"""The mark of a cluster that nothing else refers to."""
PIECE_BYTES = 1 << 20


def write_image(path: Path, content_bytes: int) -> None:
    """A qcow2 disk that is full of random bytes, and its digest beside it, as `sha256sum` writes it.

    Clusters: header, table of counts, counts, level 1, level 2, and then the content. One table of
    each kind does for half a gibibyte.
    """
    count = -(-content_bytes // CLUSTER_BYTES)
    header = HEADER.pack(
        b"QFI\xfb", 2, 0, 0, 16, count * CLUSTER_BYTES, 0, 1, 3 * CLUSTER_BYTES, CLUSTER_BYTES, 1, 0, 0
    )
    tables = (
        header,
        struct.pack(">Q", 2 * CLUSTER_BYTES),
        struct.pack(f">{5 + count}H", *[1] * (5 + count)),
        struct.pack(">Q", USED | 4 * CLUSTER_BYTES),
        struct.pack(f">{count}Q", *[USED | (5 + number) * CLUSTER_BYTES for number in range(count)]),
    )
    content = b"".join(table.ljust(CLUSTER_BYTES, b"\0") for table in tables)
    digest = hashlib.sha256(content)
    left = count * CLUSTER_BYTES
    with path.open("wb") as file:
        file.write(content)
        while left:
            piece = os.urandom(min(left, PIECE_BYTES))
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
    path.with_name(f"{path.name}.sha256").write_text(f"{digest.hexdigest()}  {path.name}\n")


class DemoImageServer:
    """A folder's files on a port of the loopback that is free."""

    def __init__(self, folder: Path) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="images", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def handle(self) -> None:
        """A node that hangs up in the midst has its reasons."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True
