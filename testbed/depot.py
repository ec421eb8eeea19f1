"""An image in one file, without a pool's promises: what a transfer writes to and a relay reads from."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

from cachemgr.base.errors import NotInPool

if TYPE_CHECKING:
    from pathlib import Path


class DepotFile:
    """An image that is there, or arriving: the sink of a transfer."""

    def __init__(self, path: Path, size_bytes: int, *, have_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.is_public = False
        self.has_failed = False
        self._offset = have_bytes
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._changed = threading.Condition()
        self._hash = hashlib.sha256()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def offset(self) -> int:
        return self._offset

    def write(self, data: bytes | memoryview) -> None:
        os.pwrite(self._descriptor, data, self._offset)
        with self._changed:
            self._offset += len(data)
            self._changed.notify_all()
        # After the others were told, so that they send while this is computed.
        self._hash.update(data)

    def give_up(self) -> None:
        with self._changed:
            self.has_failed = True
            self._changed.notify_all()

    def wait(self, offset: int, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self.has_failed or self._offset > offset, timeout_s)
            if self.has_failed:
                raise NotInPool("the image stopped arriving on this node: ask another one")
            return self._offset

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class DepotHeld:
    """A reader's view of an image."""

    def __init__(self, file: DepotFile, *, allows_sendfile: bool = True) -> None:
        self.size_bytes = file.size_bytes
        self.is_public = file.is_public
        self._file = file
        self._allows_sendfile = allows_sendfile

    def valid_bytes(self) -> int:
        return self._file.offset

    def wait(self, offset: int, timeout_s: float) -> int:
        return self._file.wait(offset, timeout_s)

    def read(self, offset: int, most: int) -> bytes:
        return os.pread(self._file.fileno(), min(most, self._file.offset - offset), offset)

    def fileno(self) -> int | None:
        return self._file.fileno() if self._allows_sendfile else None

    def close(self) -> None:
        """The file belongs to the depot."""


class Depot:
    """The images of one node by digest."""

    def __init__(self, *, allows_sendfile: bool = True) -> None:
        self.files: dict[str, DepotFile] = {}
        self._allows_sendfile = allows_sendfile

    def open(self, digest: str) -> DepotHeld | None:
        file = self.files.get(digest)
        return None if file is None else DepotHeld(file, allows_sendfile=self._allows_sendfile)

    def close(self) -> None:
        for file in self.files.values():
            file.close()
