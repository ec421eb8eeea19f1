"""QEMU's own sockets and the network: bytes passed on in both directions until one end is over."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from cachemgr.base.errors import CacheError
from cachemgr.machines.live.streams import PIECE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.machines.live.streams import SignedStream


def joined(inside: socket.socket, stream: SignedStream) -> None:
    """Pass on until both directions have ended, or one was cut off."""
    outgoing = threading.Thread(target=_to_network, args=(inside, stream), daemon=True)
    outgoing.start()
    try:
        while True:
            data = stream.receive()
            if not data:
                break
            inside.sendall(data)
        inside.shutdown(socket.SHUT_WR)
        outgoing.join()
    except (CacheError, OSError):
        # Cut off, or not from the other end: QEMU sees that its peer has gone.
        pass
    finally:
        with suppress(OSError):
            inside.shutdown(socket.SHUT_RDWR)
        inside.close()
        stream.close()


def _to_network(inside: socket.socket, stream: SignedStream) -> None:
    try:
        while True:
            data = inside.recv(PIECE_BYTES)
            stream.send(data)
            if not data:
                return
    except (CacheError, OSError):
        # The other direction notices.
        stream.close()
