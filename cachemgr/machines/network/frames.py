"""Packets between switches: each is signed with its job's key, and heeded once.

    version  kind  sender  start of the sender  number  payload  signature
    1        1     2       8                    8       …        16          bytes

The signature is BLAKE2b with a key, over all that stands before it. A packet that was recorded and sent
once more is known by its number: of each sender the last WINDOW numbers are remembered, and what is older is
dropped; a sender that has started anew says so by a later start. Nothing here is encrypted.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2b

VERSION = 1
FRAME, HELLO, TABLE = 1, 2, 3
KEY_BYTES, SIGNATURE_BYTES = 32, 16
HEADER = struct.Struct("!BBHQQ")
WINDOW = 1024
MOST_PAYLOAD_BYTES = 60_000


@dataclass(frozen=True)
class OpenedPacket:
    """A packet that is from whom it says, and new."""

    kind: int
    sender: int
    payload: bytes
    is_newest: bool
    """Of all that its sender has sent, so far: the address that it comes from is the sender's now."""


class PacketSealer:
    """Signs what one instance sends."""

    def __init__(self, key: bytes, sender: int, start: int) -> None:
        self._key, self._sender, self._start = key, sender, start
        self._number = 0

    def seal(self, kind: int, payload: bytes) -> bytes:
        self._number += 1
        signed = HEADER.pack(VERSION, kind, self._sender, self._start, self._number) + payload
        return signed + blake2b(signed, key=self._key, digest_size=SIGNATURE_BYTES).digest()


class _Seen:
    """Which numbers of a sender have come: the highest, and a bit for each of those just below."""

    __slots__ = ("bits", "highest", "start")

    def __init__(self) -> None:
        self.start = self.highest = self.bits = 0


class PacketOpener:
    """Opens what the other instances of a job send."""

    def __init__(self, key: bytes, own: int, count: int) -> None:
        self._key, self._own = key, own
        self._seen = [_Seen() for _ in range(count)]

    def open(self, packet: bytes) -> OpenedPacket | None:
        """The packet; None if it is none of this job's, or was there before."""
        if not HEADER.size + SIGNATURE_BYTES <= len(packet) <= MOST_PAYLOAD_BYTES:
            return None
        version, kind, sender, start, number = HEADER.unpack_from(packet)
        if version != VERSION or sender == self._own or sender >= len(self._seen):
            return None
        signed, signature = packet[:-SIGNATURE_BYTES], packet[-SIGNATURE_BYTES:]
        own = blake2b(signed, key=self._key, digest_size=SIGNATURE_BYTES).digest()
        if not hmac.compare_digest(own, signature):
            return None
        seen = self._seen[sender]
        if not self._is_new(seen, start, number):
            return None
        return OpenedPacket(kind, sender, signed[HEADER.size :], is_newest=seen.highest == number)

    @staticmethod
    def _is_new(seen: _Seen, start: int, number: int) -> bool:
        if start < seen.start or number == 0:
            return False
        if start > seen.start:
            seen.start, seen.highest, seen.bits = start, number, 1
            return True
        ahead = number - seen.highest
        if ahead > 0:
            seen.bits = (seen.bits << ahead | 1) & ((1 << WINDOW) - 1) if ahead < WINDOW else 1
            seen.highest = number
            return True
        if -ahead >= WINDOW or seen.bits >> -ahead & 1:
            return False
        seen.bits |= 1 << -ahead
        return True
