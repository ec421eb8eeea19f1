"""The pool as the relay reads it: images that are here, and those that are still arriving."""

from __future__ import annotations

from cachemgr.base.errors import NotInPool
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cachemgr.base.disk import Handle
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage

    class Arriving(Protocol):
        """Who writes an ingest."""

        @property
        def offset(self) -> int: ...

        def wait_beyond(self, offset: int, timeout_s: float) -> None: ...


# What arrives in another process is looked at so often; that is what it may lag behind.
LOOK_S = 0.02
# A writer may end without a word; so often is looked whether it did.
MOST_WAIT_S = 1.0


class PoolHoldings:
    """The images of one pool.

    `writer_of` gives who writes an ingest in this process, by its key, and None of others:
    what those note on the disk is coarser, and a chain of nodes would wait for it at each.
    """

    def __init__(self, pool: ImagePool, writer_of: Callable[[str], Arriving | None]) -> None:
        self._pool = pool
        self._writer_of = writer_of

    def open(self, digest: str) -> HeldImage | None:
        key = digest_of(digest)
        if key is None:
            return None
        held = HeldImage(self._pool, key, self._writer_of)
        return held if held.find() else None


class HeldImage:
    """An image of the pool, open for reading until it is closed, whatever becomes of it."""

    def __init__(self, pool: ImagePool, digest: str, writer_of: Callable[[str], Arriving | None]) -> None:
        self._pool = pool
        self._digest = digest
        self._writer_of = writer_of
        self._data: Handle | None = None
        self._image: PoolImage | None = None
        self._is_whole = False

    def find(self) -> bool:
        """Open it where it lies now; whether it is here."""
        with disk_errors(f"opening image {self._digest[:12]}"):
            # Arriving, then here: asked in this order, it cannot be missed as it moves.
            for is_whole in (False, True):
                path = self._pool.layout.image(self._digest)
                image = self._pool.image(self._digest)
                if not is_whole:
                    path = self._pool.layout.ingest(self._digest)
                    ingest = self._pool.ingest(self._digest)
                    image = ingest.image if ingest else None
                if image is None:
                    continue
                try:
                    data = self._pool.disk.open(f"{path}/data")
                except FileNotFoundError:
                    continue
                self.close()
                self._data, self._image, self._is_whole = data, image, is_whole
                return True
        return False

    @property
    def size_bytes(self) -> int:
        return self._found().size_bytes

    @property
    def is_public(self) -> bool:
        return self._found().readers.is_public

    def valid_bytes(self) -> int:
        if self._is_whole:
            return self.size_bytes
        writer = self._writer_of(self._digest)
        offset = None if writer is None else writer.offset
        if offset is not None and offset < self.size_bytes:
            return offset
        ingest = self._pool.ingest(self._digest)
        if ingest is not None and offset is None:
            return ingest.arrived_bytes()
        # All of it is here or it is gone; another file may have taken the place of what was open.
        if not self.find():
            raise NotInPool(f"image {self._digest[:12]} is not arriving any more")
        return self.size_bytes if self._is_whole or offset is not None else 0

    def wait(self, offset: int, timeout_s: float) -> int:
        clock = self._pool.clock
        until_s = clock.monotonic_s() + timeout_s
        while True:
            valid = self.valid_bytes()
            left_s = until_s - clock.monotonic_s()
            if valid > offset or left_s <= 0:
                return valid
            writer = self._writer_of(self._digest)
            if writer is None or valid >= self.size_bytes or writer.offset > offset:
                clock.sleep(min(LOOK_S, left_s))
            else:
                writer.wait_beyond(offset, min(MOST_WAIT_S, left_s))

    def read(self, offset: int, most: int) -> bytes:
        if self._data is None:
            raise NotInPool(f"image {self._digest[:12]} was closed")
        with disk_errors(f"reading image {self._digest[:12]}"):
            return self._data.read_at(offset, most)

    def fileno(self) -> int | None:
        return None if self._data is None else self._data.fileno()

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None

    def _found(self) -> PoolImage:
        if self._image is None:
            raise NotInPool(f"image {self._digest[:12]} is not here")
        return self._image
