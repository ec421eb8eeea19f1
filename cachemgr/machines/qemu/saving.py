"""A machine's memory as a file: written beside, digested on the way, synced, renamed; read the same way.

QEMU writes and reads the file itself, while this process digests it: a pipe between the two was seen to take
ten times as long on a busy node. QEMU checks next to nothing when it reads a state: a flipped bit
loads without a complaint, and the guest runs on with it. The digest decides, before the guest runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from contextlib import closing, suppress

from cachemgr.base.errors import CacheError, NoRoom, WrongBytes
from cachemgr.machines.qemu.monitor import QemuGone
from cachemgr.machines.record import SavedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk, Handle
    from cachemgr.machines.qemu.monitor import Answer, QemuMonitor

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 64 << 20
"""So much is written before it is sent to the disk, while QEMU writes on."""
STALL_S = 120.0
"""QEMU writes or reads something in that time, or hangs."""
LOOK_S = 0.005
NO_LIMIT_BYTES_PER_S = 1 << 42
DESCRIPTOR = "state"
SETTLED = ("completed", "failed", "cancelled")
FULL = "No space left"


def save_memory(monitor: QemuMonitor, disk: Disk, clock: Clock, path: str) -> SavedFile:
    """Write the memory of a stopped guest; the file is whole and on the disk when this returns.

    After any trouble there is no file of that name.
    """
    beside = f"{path}.new"
    with suppress(FileNotFoundError):
        disk.remove(beside)
    monitor.command("migrate-set-parameters", {"max-bandwidth": NO_LIMIT_BYTES_PER_S})
    try:
        with closing(disk.create(beside, 0o600)) as handle:
            monitor.command("getfd", {"fdname": DESCRIPTOR}, fd=handle.fileno())
            monitor.command("migrate", {"uri": f"fd:{DESCRIPTOR}"})
            saved, found = _followed(monitor, clock, handle)
            # QEMU does not always say why; a file that was cut short has left no room.
            is_full = disk.free_bytes(path.rpartition("/")[0]) < CHUNK_BYTES
            _check_completed(found, "save", is_full=is_full)
            handle.sync()
        disk.rename(beside, path)
        disk.sync_folder(path.rpartition("/")[0])
    except BaseException:
        with suppress(OSError):
            disk.remove(beside)
        raise
    return saved


def _followed(monitor: QemuMonitor, clock: Clock, handle: Handle) -> tuple[SavedFile, Answer]:
    """Digest a file while QEMU writes it, and send it on to the disk meanwhile."""
    digest, at, synced_bytes = hashlib.sha256(), 0, 0
    syncing: threading.Thread | None = None
    stalled_s = clock.monotonic_s() + STALL_S
    try:
        while True:
            # Asked first: what was written before QEMU says that it is done is read after it.
            found = monitor.migration()
            data = handle.read_at(at, CHUNK_BYTES)
            if data:
                stalled_s = clock.monotonic_s() + STALL_S
            elif found.get("status") in SETTLED:
                break
            elif clock.monotonic_s() >= stalled_s:
                raise QemuGone("QEMU hangs while it saves")
            else:
                clock.sleep(LOOK_S)
            while data:
                digest.update(data)
                at += len(data)
                if at - synced_bytes >= SYNC_BYTES and (syncing is None or not syncing.is_alive()):
                    synced_bytes = at
                    syncing = threading.Thread(target=_sync, args=(handle,), name="state-writer")
                    syncing.start()
                data = handle.read_at(at, CHUNK_BYTES)
    finally:
        if syncing is not None:
            syncing.join()
    return SavedFile(at, digest.hexdigest()), found


def _sync(handle: Handle) -> None:
    # What the disk refuses, the last sync tells.
    with suppress(OSError):
        handle.sync()


def load_memory(monitor: QemuMonitor, disk: Disk, path: str, saved: SavedFile) -> None:
    """Read a state into a new QEMU, whose guest does not run yet; after any error that QEMU is to end."""
    try:
        opened = disk.open(path)
    except FileNotFoundError as error:
        raise wrong(path, "it is missing") from error
    with closing(opened) as handle:
        if handle.size() != saved.size_bytes:
            raise wrong(path, f"it has {handle.size()} bytes and had {saved.size_bytes}")
        # The digest is made with reads of its own, which leave the place alone where QEMU reads.
        monitor.command("getfd", {"fdname": DESCRIPTOR}, fd=handle.fileno())
        monitor.command("migrate-incoming", {"uri": f"fd:{DESCRIPTOR}"})
        if _digest(handle).digest != saved.digest:
            raise wrong(path, "its digest differs from that of what was saved")
        _check_completed(monitor.wait_for_migration(SETTLED, STALL_S), "read its state")


def digest_file(disk: Disk, path: str) -> SavedFile:
    """The length and digest of a file that nobody writes to."""
    with closing(disk.open(path)) as handle:
        return _digest(handle)


def _digest(handle: Handle) -> SavedFile:
    digest, at = hashlib.sha256(), 0
    while True:
        data = handle.read_at(at, CHUNK_BYTES)
        if not data:
            return SavedFile(at, digest.hexdigest())
        digest.update(data)
        at += len(data)


def _check_completed(found: Answer, what: str, *, is_full: bool = False) -> None:
    if found.get("status") == "completed":
        return
    reason = str(found.get("error-desc") or found.get("status"))
    if FULL in reason or is_full:
        raise NoRoom(f"QEMU could not {what}: {os.strerror(errno.ENOSPC)}; make room and try again")
    raise CacheError(f"QEMU could not {what}: {reason}")


def check_files(disk: Disk, folder: str, saved: Mapping[str, SavedFile]) -> None:
    """Compare files with what was written down of them; WrongBytes names the first that differs."""
    for name in sorted(saved):
        path = f"{folder}/{name}"
        try:
            size_bytes = disk.size(path)
            if size_bytes != saved[name].size_bytes:
                raise wrong(path, f"it has {size_bytes} bytes and had {saved[name].size_bytes}")
            if digest_file(disk, path).digest != saved[name].digest:
                raise wrong(path, "its digest differs from that of what was saved")
        except FileNotFoundError as error:
            raise wrong(path, "it is missing") from error


def wrong(path: str, why: str) -> WrongBytes:
    return WrongBytes(
        f"the saved machine cannot go on: {path} is not what was saved, {why}; bring that file back from a "
        "copy, or start the job again"
    )
