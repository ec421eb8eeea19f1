"""What the keepers of a job's machines tell each other: a JSON object on each line of a pipe."""

from __future__ import annotations

import json
import os
import select

from cachemgr.base.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CHUNK_BYTES = 65_536
MOST_LINE_BYTES = 1 << 20


class LinesIn:
    """Objects as they come in; whoever asks never waits for longer than said."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._data = b""
        self.is_closed = False

    def read(self, wait_s: float = 0) -> list[dict[str, object]]:
        """Those that are there by now."""
        while not self.is_closed and select.select([self._fd], [], [], wait_s)[0]:
            wait_s = 0
            found = os.read(self._fd, CHUNK_BYTES)
            self.is_closed = not found
            self._data += found
            if len(self._data) > MOST_LINE_BYTES:
                raise CacheError("what the other machines' keepers say has no end")
        *lines, self._data = self._data.split(b"\n")
        return [plain for line in lines if (plain := _object(line)) is not None]


def _object(line: bytes) -> dict[str, object] | None:
    """What is none is a batch system's own word."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def write_line(fd: int, plain: Mapping[str, object]) -> None:
    data = json.dumps(plain).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
