"""A guest's memory, which QEMU and this process share: a file without a name, gone when both have closed it.

So QEMU need not carry it through one thread, page by page, when a machine is saved or resumed: it is copied
here, by several, and what QEMU itself says of the machine is small. It is charged to the group of whoever
touches a page first; both are the job's.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from contextlib import suppress

from cachemgr.base.errors import Unsuitable
from cachemgr.machines.qemu.pieces import HUGE_BYTES, write_all
from cachemgr.machines.qemu.process import LOCK, holders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = "outrider-memory"
BLOCK_BYTES = 1 << 16
"""Of so much it is known whether there is anything in it."""
MOST_HUGE = 16
"""So many at once are in this process' address space, where a batch system counts them a second time."""
SPARE_S, SAVED_S = 0.02, 0.0005
"""Of a processor: what it may take at first, and what a piece of 2 MiB saves of the time to fill it."""
HEAD = bytes(64)
EMPTY = bytes(BLOCK_BYTES)
MAP_FIXED, MAP_POPULATE, MADV_COLLAPSE = 0x10, 0x8000, 25
"""Which Python, or that of 3.9, does not offer; the last is Linux' from 6.1 on."""


class GuestMemory:
    """The memory of one guest, open here."""

    __slots__ = ("fd", "size_bytes")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size_bytes = os.fstat(fd).st_size

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def touched(self) -> list[tuple[int, int]]:
        """Ranges of whole blocks in which there are pages. To look for them takes the kernel a while."""
        return list(self._touched())

    def used(self, touched: Iterable[tuple[int, int]]) -> Iterator[int]:
        """Blocks in these ranges that hold anything but zeros. Nobody writes to it meanwhile."""
        for start, end in touched:
            for offset in range(start, end, BLOCK_BYTES):
                if os.pread(self.fd, len(HEAD), offset) != HEAD or (
                    os.pread(self.fd, BLOCK_BYTES, offset) != EMPTY
                ):
                    yield offset // BLOCK_BYTES

    def read(self, ranges: Iterable[tuple[int, int]], view: memoryview) -> int:
        """What is in these ranges, one after the other; how much that is."""
        at = 0
        for place, length in ranges:
            at += os.preadv(self.fd, [view[at : at + length]], place)
        return at

    def window(self, place: int, length: int) -> memoryview:
        """That range itself, for as long as somebody has this: nothing is copied, and nobody waits while
        another thread writes elsewhere. What is to be filled should be there already, by large pages: small
        ones are cheaper to fill by `write`."""
        return memoryview(mmap.mmap(self.fd, length, flags=mmap.MAP_SHARED | MAP_POPULATE, offset=place))

    def write(self, ranges: Iterable[tuple[int, int]], view: memoryview) -> None:
        """Put into these ranges what is there one after the other."""
        at = 0
        for place, length in ranges:
            write_all(self.fd, view[at : at + length], place)
            at += length

    def _touched(self) -> Iterator[tuple[int, int]]:
        end = 0
        while end < self.size_bytes:
            try:
                at = os.lseek(self.fd, end, os.SEEK_DATA)
            except OSError:
                return
            start = at - at % BLOCK_BYTES
            hole = os.lseek(self.fd, at, os.SEEK_HOLE)
            end = min(hole + -hole % BLOCK_BYTES, self.size_bytes)
            yield start, end

    def made_huge(self, blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Take memory for these blocks by 2 MiB, where the kernel can: then they are filled with a third of
        the processor's time, and the guest reaches them as fast as memory of QEMU's own.

        Only where at least half will be filled; said is each range that is done, from where to where. Where
        the kernel has to move other memory together first, small pages are cheaper: it ends when it has taken
        more than it saves.
        """
        counts: dict[int, int] = {}
        for block in blocks:
            number = block * BLOCK_BYTES // HUGE_BYTES
            counts[number] = counts.get(number, 0) + 1
        counts.pop(self.size_bytes // HUGE_BYTES, None)
        numbers = [each for each in sorted(counts) if counts[each] * BLOCK_BYTES * 2 >= HUGE_BYTES]
        left_s = SPARE_S + time.thread_time()
        for first, count in runs_of(numbers, MOST_HUGE):
            for number in range(first, first + count):
                # The kernel makes nothing of a range in which there is no page.
                os.posix_fallocate(self.fd, number * HUGE_BYTES, mmap.PAGESIZE)
            if not self._collapse(first, count):
                return
            yield first * HUGE_BYTES, (first + count) * HUGE_BYTES
            left_s += count * SAVED_S
            if time.thread_time() > left_s:
                return

    def _collapse(self, first: int, count: int) -> bool:
        """Whether the kernel does so at all."""
        import ctypes  # takes milliseconds, and is needed here alone

        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        size_bytes = count * HUGE_BYTES
        # A page of this size begins at such an address: more is taken than needed, to find one.
        whole = libc.mmap(None, size_bytes + HUGE_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if whole == ctypes.c_void_p(-1).value:
            return False
        try:
            at = whole + -whole % HUGE_BYTES
            kind = mmap.MAP_SHARED | MAP_FIXED
            access = mmap.PROT_READ | mmap.PROT_WRITE
            there = libc.mmap(at, size_bytes, access, kind, self.fd, first * HUGE_BYTES)
            return there == at and int(libc.madvise(at, size_bytes, MADV_COLLAPSE)) == 0
        finally:
            libc.munmap(whole, size_bytes + HUGE_BYTES)


def runs_of(numbers: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    """Numbers that follow one another, at most so many together: the first, and how many."""
    first = count = 0
    for number in numbers:
        if count and (number != first + count or count == most):
            yield first, count
            count = 0
        first, count = (first if count else number), count + 1
    if count:
        yield first, count


def make_memory(size_bytes: int) -> GuestMemory:
    """Memory of a new guest, which nobody can make shorter: who reads beyond its end is killed."""
    fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return GuestMemory(fd)
    except OSError as error:
        os.close(fd)
        raise Unsuitable(
            f"no memory of {size_bytes >> 20} MiB can be made for a guest: {error.strerror}; it counts as a "
            "file, so a limit on their size (ulimit -f) has to be above it"
        ) from error


def memory_of(folder: str) -> GuestMemory | None:
    """That of the QEMU that runs there; None if it was begun by a version that left it to QEMU."""
    for pid in holders(f"{folder}/{LOCK}"):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                with suppress(FileNotFoundError):
                    if os.readlink(path).startswith(f"/memfd:{NAME}"):
                        return GuestMemory(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    return None
