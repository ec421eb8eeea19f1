"""A saved state that goes into a new QEMU: its memory is filled and digested while QEMU starts.

QEMU checks next to nothing when it reads a state: a flipped bit loads without a complaint, and the guest runs
on with it. The digest decides, before QEMU is given anything.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from queue import SimpleQueue

from cachemgr.machines.qemu.digests import (
    DIFFERS,
    PieceDigests,
    check_length,
    digest_whole,
    kind_of,
    wrong,
)
from cachemgr.machines.qemu.layout import laid_out, read_layout
from cachemgr.machines.qemu.memory import make_memory
from cachemgr.machines.qemu.pieces import PIECE_BYTES, PieceWorkers, direct, read_piece
from cachemgr.machines.qemu.saving import DESCRIPTOR, SETTLED, STALL_S, check_completed, share_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.base.disk import Disk, Handle
    from cachemgr.machines.qemu.layout import Ranges, StateLayout
    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.record import SavedFile

WHOLE = 1 << 62


class SavedMemory:
    """A state that is about to be read into a new QEMU; `memory` is what that is started with."""

    def __init__(self, disk: Disk, path: str, saved: SavedFile, memory_bytes: int) -> None:
        self._path, self._saved = path, saved
        self._digest = ""
        self._is_shared = self._is_left = False
        with ExitStack() as opened:
            try:
                self._handle: Handle = opened.enter_context(closing(disk.open(path)))
            except FileNotFoundError as error:
                raise wrong(path, "it is missing") from error
            check_length(self._handle.size(), path, saved)
            self.memory = opened.enter_context(closing(make_memory(memory_bytes)))
            if kind_of(saved):
                layout = read_layout(self._handle.fileno(), saved.size_bytes, memory_bytes)
                if layout is None:
                    raise wrong(path, "it does not end as such a file does")
                self._is_shared = layout.memory_bytes > 0
                self._workers = self._filling(opened, disk, layout)
            else:
                self._workers = PieceWorkers([self._handle.fileno()], self._read_whole)
            opened.callback(self._leave)
            self._opened = opened.pop_all()

    def load(self, monitor: QemuMonitor) -> None:
        """Let QEMU, whose guest does not run yet, have it; after any error that QEMU is to end."""
        self._workers.wait()
        if kind_of(self._saved):
            self._digest = self._digests.of_file(self._saved.size_bytes).digest
        if self._digest != self._saved.digest:
            raise wrong(self._path, DIFFERS)
        share_memory(monitor, is_shared=self._is_shared)
        # The file was read without moving the place where QEMU begins.
        monitor.command("getfd", {"fdname": DESCRIPTOR}, fd=self._handle.fileno())
        monitor.command("migrate-incoming", {"uri": f"fd:{DESCRIPTOR}"})
        check_completed(monitor.wait_for_migration(SETTLED, STALL_S), "read its state")

    def close(self) -> None:
        self._opened.close()

    def _leave(self) -> None:
        self._is_left = True
        self._workers.leave()

    def _filling(self, opened: ExitStack, disk: Disk, layout: StateLayout) -> PieceWorkers:
        self._digests = PieceDigests(kind_of(self._saved))
        fd = opened.enter_context(direct(disk, self._path))
        made: SimpleQueue[tuple[int, int]] = SimpleQueue()

        def make_room() -> None:
            try:
                for each in self.memory.made_huge(layout.blocks()):
                    made.put(each)
                    if self._is_left:
                        break
            finally:
                made.put((WHOLE, WHOLE))

        def pieces() -> Iterator[tuple[int, Ranges, bool]]:
            """Where each is, what it fills, and whether that is there already."""
            yield from ((at, [], False) for at in range(0, layout.start, PIECE_BYTES))
            start = end = 0
            for at, ranges in laid_out(layout.start, layout.blocks()):
                while end < sum(ranges[-1]):
                    start, end = made.get()
                yield at, ranges, start <= ranges[0][0] and ranges[0][1] == PIECE_BYTES
            behind = layout.start + layout.piece_count * PIECE_BYTES
            yield from ((at, [], False) for at in range(behind, self._saved.size_bytes, PIECE_BYTES))

        def work(piece: tuple[int, Ranges, bool], buffer: memoryview) -> None:
            at, ranges, is_there = piece
            view = self.memory.window(*ranges[0]) if is_there else buffer
            self._digests.take(at, read_piece(fd, view, at))
            if not is_there:
                self.memory.write(ranges, view)

        maker = threading.Thread(target=make_room, name="memory")
        maker.start()
        opened.callback(maker.join)
        return PieceWorkers(pieces(), work)

    def _read_whole(self, fd: int, view: memoryview) -> None:
        """A file of an older version, with all memory among QEMU's words."""
        self._digest = digest_whole(fd, view)
