"""What a process that is started again knows of the time: by how much the two clocks of this machine differed
when they were believed last. Only as long as the machine runs, since the second clock begins anew with it.
"""

from __future__ import annotations

import json
from contextlib import suppress

from cachemgr.base.disk import RealDisk, replace_file

VERSION = 1
MOST_BYTES = 1000


class StoredOffset:
    """One small file. What cannot be read or written costs a process the memory, and nothing else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._disk = RealDisk()

    def read(self) -> float | None:
        """The wall time minus the running clock's, if that is known of this boot."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(self._disk.read(self._path, MOST_BYTES))
            if found["version"] == VERSION and found["boot_id"] == self._disk.boot_id():
                return float(found["offset_s"])
        return None

    def write(self, offset_s: float) -> None:
        with suppress(OSError):
            fields = {"version": VERSION, "boot_id": self._disk.boot_id(), "offset_s": round(offset_s, 3)}
            data = json.dumps(fields).encode() + b"\n"
            replace_file(self._disk, self._path, data, is_durable=False)
