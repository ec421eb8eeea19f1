"""Bytes between two processes of one user on two nodes: signed by a key that both have, and in order.

Who connects says a channel and a number that it has made up; the other answers with one of its own. Of the
key, the channel and both numbers each direction has a key of its own, so nothing that was recorded is heeded
in another connection. Each piece is

    length  payload  signature
    4       …        16

where the signature, BLAKE2b with a key, is over the piece's number and the payload. A piece of no bytes ends
a stream; one that ends otherwise was cut off. Nothing here is encrypted.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
from contextlib import suppress
from hashlib import blake2b

from cachemgr.base.errors import BadRequest, SourceFailed, WrongBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CONTROL, DISK, MEMORY = 1, 2, 3
CHANNELS = (CONTROL, DISK, MEMORY)
MAGIC = b"ORL1"
GREETING = struct.Struct("!4sB32s")
ANSWER_BYTES = 32
LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!Q")
SIGNATURE_BYTES = 16
PIECE_BYTES = 256 << 10
MOST_MESSAGE_BYTES = 32 << 20
CONNECT_S = 10.0
DEAD_MS = 30_000
"""A connection on which nothing has been acknowledged for so long is over."""
MORE, LAST = b"+", b"."


class SignedStream:
    """One connection, once both ends have made up their numbers."""

    def __init__(self, connection: socket.socket, sending: bytes, receiving: bytes) -> None:
        self._connection = connection
        self._sending, self._receiving = sending, receiving
        self._sent = self._received = 0

    def send(self, data: bytes) -> None:
        """One piece; of no bytes, the end."""
        if len(data) > PIECE_BYTES:
            raise ValueError(f"a piece of {len(data)} bytes")
        signature = _signature(self._sending, self._sent, data)
        self._sent += 1
        try:
            self._connection.sendall(b"".join((LENGTH.pack(len(data)), data, signature)))
        except OSError as error:
            raise SourceFailed(f"the other end of the migration is gone: {error}") from error

    def receive(self) -> bytes:
        """The next piece; nothing at the end. Raises SourceFailed if it was cut off, WrongBytes if the
        piece is not the other end's."""
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        if length > PIECE_BYTES:
            raise WrongBytes("what comes is not from the other end of the migration: use one key at both")
        data, signature = self._exactly(length), self._exactly(SIGNATURE_BYTES)
        if not hmac.compare_digest(signature, _signature(self._receiving, self._received, data)):
            raise WrongBytes("what comes is not from the other end of the migration: use one key at both")
        self._received += 1
        return data

    def say(self, message: Mapping[str, object]) -> None:
        """One message, in as many pieces as it takes."""
        data = json.dumps(message).encode()
        most = PIECE_BYTES - 1
        for at in range(0, len(data), most):
            piece = data[at : at + most]
            self.send((MORE if at + most < len(data) else LAST) + piece)

    def hear(self) -> dict[str, Any]:
        found = bytearray()
        while True:
            piece = self.receive()
            found += piece[1:]
            if len(found) > MOST_MESSAGE_BYTES:
                raise BadRequest("the other end of the migration says too much at once")
            if piece[:1] != MORE:
                break
        try:
            message = json.loads(found)
        except ValueError as error:
            raise BadRequest("what the other end of the migration says is not JSON") from error
        if not isinstance(message, dict):
            raise BadRequest("what the other end of the migration says is not an object")
        return message

    def wait_at_most(self, wait_s: float | None) -> None:
        self._connection.settimeout(wait_s)

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _exactly(self, count: int) -> bytes:
        found = bytearray(count)
        view, at = memoryview(found), 0
        while at < count:
            try:
                got = self._connection.recv_into(view[at:])
            except OSError as error:
                raise SourceFailed(f"the other end of the migration is gone: {error}") from error
            if not got:
                raise SourceFailed("the other end of the migration is gone")
            at += got
        return bytes(found)


def connected(address: tuple[str, int], key: bytes, channel: int) -> SignedStream:
    """A stream to who waits there. Until the other end has said a piece it may be anybody."""
    try:
        connection = socket.create_connection(address, timeout=CONNECT_S)
    except OSError as error:
        raise SourceFailed(f"nobody waits for a machine at {address[0]}:{address[1]}: {error}") from error
    try:
        _prepare(connection)
        own = secrets.token_bytes(ANSWER_BYTES)
        connection.sendall(GREETING.pack(MAGIC, channel, own))
        other = _some(connection, ANSWER_BYTES)
        stream = SignedStream(connection, *_keys(key, channel, own, other))
        # It proves that it has the key before anything else is said to it.
        stream.receive()
        stream.wait_at_most(None)
    except OSError as error:
        connection.close()
        raise SourceFailed(f"{address[0]}:{address[1]} does not answer: {error}") from error
    except BaseException:
        connection.close()
        raise
    return stream


def accepted(connection: socket.socket, key: bytes) -> tuple[int, SignedStream]:
    """The channel and the stream of who has connected. It has proved nothing until it has said a piece."""
    connection.settimeout(CONNECT_S)
    _prepare(connection)
    magic, channel, other = GREETING.unpack(_some(connection, GREETING.size))
    if magic != MAGIC or channel not in CHANNELS:
        raise BadRequest("who has connected brings no machine")
    own = secrets.token_bytes(ANSWER_BYTES)
    connection.sendall(own)
    receiving, sending = _keys(key, channel, other, own)
    stream = SignedStream(connection, sending, receiving)
    stream.send(LAST)
    return channel, stream


def _prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_MS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connection.setsockopt(socket.IPPROTO_TCP, option, DEAD_MS // 3000)


def _some(connection: socket.socket, count: int) -> bytes:
    return SignedStream(connection, b"", b"")._exactly(count)


def _keys(key: bytes, channel: int, client: bytes, server: bytes) -> tuple[bytes, bytes]:
    """Of who has connected, and of the other one."""
    said = bytes([channel]) + client + server
    to_server, to_client = (blake2b(way + said, key=key, digest_size=32).digest() for way in (b">", b"<"))
    return to_server, to_client


def _signature(key: bytes, number: int, data: bytes) -> bytes:
    made = blake2b(NUMBER.pack(number), key=key, digest_size=SIGNATURE_BYTES)
    made.update(data)
    return made.digest()
