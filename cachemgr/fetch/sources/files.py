"""Images in files of this host, for instance on a shared file system."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Resolved

if TYPE_CHECKING:
    from cachemgr.fetch.sources.uris import Location


class FileSource:
    """A regular file. Whether somebody may read it is asked before, by whoever knows the user."""

    is_relay = False

    def __init__(self, location: Location, validator: str | None = None) -> None:
        self.name = location.name
        self._path = location.path
        self._validator = validator

    def resolve(self, timeout_s: float) -> Resolved:
        descriptor, found = self._opened()
        os.close(descriptor)
        self._validator = _validator_of(found)
        return Resolved(found.st_size, os.path.basename(self._path), self._validator)

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> FileStream:
        descriptor, found = self._opened()
        changed = self._validator not in (None, _validator_of(found)) or found.st_size != size_bytes
        if changed:
            os.close(descriptor)
            raise SourceFault(f"the file has changed: it has {found.st_size} bytes now", is_final=True)
        self._validator = _validator_of(found)
        return FileStream(descriptor, offset)

    def status(self, timeout_s: float) -> FetchStatus | None:
        return None

    def _opened(self) -> tuple[int, os.stat_result]:
        # Without waiting, so that a named pipe is noticed instead of waited for.
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise SourceFault(f"the file cannot be opened: {text}", is_final=True) from error
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise SourceFault("it is not a regular file", is_final=True)
        return descriptor, found


class FileStream:
    """A file's bytes from an offset on."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self.start_bytes = offset
        self._descriptor = descriptor
        self._at = offset

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        try:
            count = os.preadv(self._descriptor, [buffer], self._at)
        except OSError as error:
            raise SourceFault(f"the file cannot be read: {error.strerror}") from error
        self._at += count
        return count

    def close(self) -> None:
        os.close(self._descriptor)


def _validator_of(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
