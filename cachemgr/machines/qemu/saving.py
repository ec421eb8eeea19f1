"""A machine's memory as a file: written beside, digested on the way, synced, renamed.

QEMU says what its devices hold; the memory itself, which it shares, is copied here. Where that is not shared,
with a QEMU that an older version has begun, QEMU writes all of it.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress

from cachemgr.base.disk import UNSUPPORTED
from cachemgr.base.errors import CacheError, NoRoom
from cachemgr.machines.qemu.digests import PieceDigests, digest_rest, digest_until
from cachemgr.machines.qemu.layout import StateLayout, bits_of, laid_out, memory_start, noted
from cachemgr.machines.qemu.monitor import QemuGone
from cachemgr.machines.qemu.pieces import PIECE_BYTES, PieceWorkers, direct, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk, Handle
    from cachemgr.machines.qemu.layout import Ranges
    from cachemgr.machines.qemu.memory import GuestMemory
    from cachemgr.machines.qemu.monitor import Answer, QemuMonitor
    from cachemgr.machines.record import SavedFile

STALL_S = 120.0
"""QEMU writes or reads something in that time, or hangs."""
LOOK_S = 0.001
NO_LIMIT_BYTES_PER_S = 1 << 42
DESCRIPTOR = "state"
SETTLED = ("completed", "failed", "cancelled")
FULL = "No space left"


def save_memory(
    monitor: QemuMonitor,
    memory: GuestMemory | None,
    disk: Disk,
    clock: Clock,
    path: str,
    meanwhile: Callable[[], None],
) -> SavedFile:
    """Write the memory of a stopped guest; the file is whole and on the disk when this returns, its name once
    its folder is synced.

    `meanwhile` is called when QEMU has said all, and writes to nothing any more. After any trouble there is
    no file of that name.
    """
    beside = f"{path}.new"
    with suppress(FileNotFoundError):
        disk.remove(beside)
    try:
        with closing(disk.create(beside, 0o600)) as handle:
            share_memory(monitor, is_shared=memory is not None)
            monitor.command("migrate-set-parameters", {"max-bandwidth": NO_LIMIT_BYTES_PER_S})
            monitor.command("getfd", {"fdname": DESCRIPTOR}, fd=handle.fileno())
            monitor.command("migrate", {"uri": f"fd:{DESCRIPTOR}"})
            found = _settled(monitor, clock, handle)
            # QEMU does not always say why; a file that was cut short has left no room.
            is_full = disk.free_bytes(path.rpartition("/")[0]) < PIECE_BYTES
            check_completed(found, "save", is_full=is_full)
            digests = PieceDigests()
            # Devices may write to memory until QEMU has said what they hold, and not after it.
            _write_memory(disk, beside, handle, memory, digests, meanwhile)
            saved = digest_rest(handle.fileno(), handle.size(), digests)
            handle.sync()
        disk.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            disk.remove(beside)
        raise
    return saved


def share_memory(monitor: QemuMonitor, *, is_shared: bool) -> None:
    """Whether QEMU leaves memory out of what it writes and reads, since that is carried here."""
    capability = {"capability": "x-ignore-shared", "state": is_shared}
    monitor.command("migrate-set-capabilities", {"capabilities": [capability]})


def _settled(monitor: QemuMonitor, clock: Clock, handle: Handle) -> Answer:
    """What QEMU says when it has written."""
    size_bytes, stalled_s = 0, clock.monotonic_s() + STALL_S
    while True:
        found = monitor.migration()
        if found.get("status") in SETTLED:
            return found
        if handle.size() > size_bytes:
            size_bytes, stalled_s = handle.size(), clock.monotonic_s() + STALL_S
        elif clock.monotonic_s() >= stalled_s:
            raise QemuGone("QEMU hangs while it saves")
        clock.sleep(LOOK_S)


def _write_memory(
    disk: Disk,
    path: str,
    handle: Handle,
    memory: GuestMemory | None,
    digests: PieceDigests,
    meanwhile: Callable[[], None],
) -> None:
    """What comes behind QEMU's words."""
    device_bytes = handle.size()
    if memory is None:
        meanwhile()
        handle.write_at(device_bytes, StateLayout(device_bytes, 0, b"").encode())
        return
    start = memory_start(device_bytes)
    bits = bits_of(memory.size_bytes)
    touched = memory.touched()
    most_bytes = sum(end - begin for begin, end in touched)
    _take_room(handle, start + most_bytes + PIECE_BYTES + len(bits))
    ends = [start]
    with direct(disk, path, for_writing=True) as fd:

        def work(piece: tuple[int, Ranges], buffer: memoryview) -> None:
            offset, ranges = piece
            data = buffer[: memory.read(ranges, buffer)]
            if len(data) == PIECE_BYTES:
                digests.take(offset, data)
            write_all(fd, data, offset)
            ends.append(offset + len(data))

        workers = PieceWorkers(laid_out(start, noted(memory.used(touched), bits)), work)
        try:
            digest_until(handle.fileno(), start, digests)
            meanwhile()
        except BaseException:
            workers.leave()
            raise
        workers.wait()
    end = max(ends)
    os.ftruncate(handle.fileno(), end)
    handle.write_at(end, StateLayout(device_bytes, memory.size_bytes, bytes(bits)).encode())


def _take_room(handle: Handle, size_bytes: int) -> None:
    """Room for all of it, or an error at once; a file that is long enough already is written by several."""
    try:
        handle.reserve(size_bytes)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    os.ftruncate(handle.fileno(), size_bytes)


def check_completed(found: Answer, what: str, *, is_full: bool = False) -> None:
    if found.get("status") == "completed":
        return
    reason = str(found.get("error-desc") or found.get("status"))
    if FULL in reason or is_full:
        raise NoRoom(f"QEMU could not {what}: {os.strerror(errno.ENOSPC)}; make room and try again")
    raise CacheError(f"QEMU could not {what}: {reason}")
