"""sha256 of a stream, beside the writing of it: hashing a block and writing it use two cores."""

from __future__ import annotations

import hashlib
import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Hasher(Protocol):
        def update(self, data: bytes | memoryview) -> None: ...

        def hexdigest(self) -> str: ...

        def close(self) -> None: ...


# Blocks that may wait for their hash. More would only take memory.
MOST_WAITING = 8
# Below this a thread costs more than it brings.
SMALL_BYTES = 64 * 1024


class InlineHasher:
    """Hashes when told to."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        self._sha256.update(data)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()

    def close(self) -> None:
        """Nothing is open."""


class ThreadedHasher:
    """Hashes in a thread of its own, at most a few blocks behind.

    A view may be of a buffer that its owner is going to fill again, hence it is hashed
    at once, after what waits.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def update(self, data: bytes | memoryview) -> None:
        if isinstance(data, memoryview) or len(data) < SMALL_BYTES:
            self._waiting.join()
            self._sha256.update(data)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sha256", daemon=True)
            self._thread.start()
        self._waiting.put(data)

    def hexdigest(self) -> str:
        self._waiting.join()
        return self._sha256.hexdigest()

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            data = self._waiting.get()
            if data is not None:
                self._sha256.update(data)
            self._waiting.task_done()
            if data is None:
                return
