"""Files by pieces: several threads take one after the other, and a disk is read and written without the
kernel's own copy of what it holds, which took most of the time."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from contextlib import closing, contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from cachemgr.base.disk import Disk

PIECE_BYTES = 1 << 20
HUGE_BYTES = 2 << 20
WORKERS = 4
"""Two processors digest so many without waiting for a disk that has two to do."""


class PieceWorkers:
    """Threads that take one thing after the other, each with a buffer, until all are done or one fails."""

    def __init__(self, things: Iterable[Any], work: Callable[[Any, memoryview], None]) -> None:
        self._things = iter(things)
        self._work = work
        self._turn = threading.Lock()
        self._is_over = False
        self._trouble: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, name="pieces") for _ in range(WORKERS)]
        for each in self._threads:
            each.start()

    def wait(self) -> None:
        """Until all is done; the first error is raised."""
        for each in self._threads:
            each.join()
        if self._trouble is not None:
            raise self._trouble

    def leave(self) -> None:
        """Nothing more is begun; when this returns nothing is being done."""
        self._is_over = True
        for each in self._threads:
            each.join()

    def _run(self) -> None:
        buffer = piece_buffer()
        try:
            while not self._is_over:
                with self._turn:
                    thing = next(self._things, None)
                if thing is None:
                    return
                self._work(thing, buffer)
        except BaseException as error:  # noqa: BLE001 - it is whoever waits who hears of it
            self._trouble = self._trouble or error
            self._is_over = True


def piece_buffer() -> memoryview:
    """Room for a piece, of whole pages, since a disk reads and writes nothing else; of one large page, where
    the kernel has such: a disk takes 256 small ones as so many parts, and often as more than one request."""
    pages = mmap.mmap(-1, HUGE_BYTES)
    with suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)[:PIECE_BYTES]


@contextmanager
def direct(disk: Disk, path: str, *, for_writing: bool = False) -> Iterator[int]:
    """A file, past the kernel's copy of it where its file system can do that. Whole pages alone are read and
    written, but for the last one that is read."""
    with closing(disk.open(path, for_writing=for_writing)) as handle:
        fd = handle.fileno()
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
        yield fd


def read_piece(fd: int, view: memoryview, offset: int) -> memoryview:
    """As much as there is from there on, at most a piece."""
    count = 0
    while count < len(view):
        more = os.preadv(fd, [view[count:]], offset + count)
        count += more
        # The end of a file is no page's end, from which a disk could be asked for more.
        if more == 0 or count % mmap.PAGESIZE:
            break
    return view[:count]


def write_all(fd: int, view: memoryview, offset: int) -> None:
    while len(view):
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
