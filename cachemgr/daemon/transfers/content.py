"""Bytes that are read and not put into the pool."""

from __future__ import annotations

import hashlib


class Content:
    """Where they go: into a digest and, unless that is all that is wanted, into memory."""

    def __init__(self, size_bytes: int, *, keeps: bool = True) -> None:
        self.size_bytes = size_bytes
        self.offset = 0
        self.data = bytearray()
        self._keeps = keeps
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self.offset += len(data)
        if self._keeps:
            self.data += data
