"""A machine's memory as a file: written beside, digested on the way, synced, renamed; read the same way.

QEMU writes into a pipe and this process into the file. So the digest is of what QEMU said and
not of what the disk gave back, a full disk is an error here and never a file without its end, and
whoever kills this process makes QEMU's saving fail. QEMU checks next to nothing when it reads a
state: a flipped bit loads without a complaint, and the guest runs on with it. The digest decides.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import select
import threading
from contextlib import closing, suppress

from cachemgr.base.errors import CacheError, WrongBytes
from cachemgr.machines.qemu.monitor import QemuGone
from cachemgr.machines.record import SavedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cachemgr.base.disk import Disk, Handle
    from cachemgr.machines.qemu.monitor import QemuMonitor

CHUNK_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
MOST_WAITING = 8
STALL_S = 120.0
"""QEMU writes or reads something in that time, or hangs."""
NO_LIMIT_BYTES_PER_S = 1 << 42
F_SETPIPE_SZ = 1031
DESCRIPTOR = "state"
SETTLED = ("completed", "failed", "cancelled")


def save_memory(monitor: QemuMonitor, disk: Disk, path: str) -> SavedFile:
    """Write the memory of a stopped guest; the file is whole and on the disk when this returns.

    After any trouble there is no file of that name.
    """
    beside = f"{path}.new"
    with suppress(FileNotFoundError):
        disk.remove(beside)
    monitor.ask("migrate-set-parameters", {"max-bandwidth": NO_LIMIT_BYTES_PER_S})
    try:
        with closing(disk.create(beside, 0o600)) as handle:
            size_bytes, digest = _receive(monitor, handle)
            found = monitor.wait_for_migration(SETTLED, STALL_S)
            if found.get("status") != "completed":
                raise CacheError(f"QEMU did not save: {found.get('error-desc') or found.get('status')}")
            handle.sync()
        disk.rename(beside, path)
        disk.sync_folder(path.rpartition("/")[0])
    except BaseException:
        with suppress(OSError):
            disk.remove(beside)
        raise
    return SavedFile(size_bytes, digest)


def _receive(monitor: QemuMonitor, handle: Handle) -> tuple[int, str]:
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.fcntl(read_fd, F_SETPIPE_SZ, PIPE_BYTES)
        try:
            monitor.ask("getfd", {"fdname": DESCRIPTOR}, fd=write_fd)
            monitor.ask("migrate", {"uri": f"fd:{DESCRIPTOR}"})
        finally:
            os.close(write_fd)
        return _digested(lambda: _read(read_fd), handle.write_at)
    finally:
        os.close(read_fd)


def _read(fd: int) -> bytes:
    if not _is_ready(fd, select.POLLIN):
        raise QemuGone("QEMU hangs while it saves")
    return os.read(fd, CHUNK_BYTES)


def _is_ready(fd: int, event: int) -> bool:
    waiting = select.poll()
    waiting.register(fd, event)
    return bool(waiting.poll(STALL_S * 1000))


def load_memory(monitor: QemuMonitor, disk: Disk, path: str, saved: SavedFile) -> None:
    """Read a state into a new QEMU, whose guest does not run yet. WrongBytes: end that QEMU.

    QEMU is given the bytes while they are digested, so that they are read once.
    """
    try:
        opened = disk.open(path)
    except FileNotFoundError as error:
        raise wrong(path, "it is missing") from error
    with closing(opened) as handle:
        if handle.size() != saved.size_bytes:
            raise wrong(path, f"it has {handle.size()} bytes and had {saved.size_bytes}")
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        with suppress(OSError):
            fcntl.fcntl(write_fd, F_SETPIPE_SZ, PIPE_BYTES)
        try:
            try:
                monitor.ask("getfd", {"fdname": DESCRIPTOR}, fd=read_fd)
                monitor.ask("migrate-incoming", {"uri": f"fd:{DESCRIPTOR}"})
            finally:
                os.close(read_fd)
            _send(handle, write_fd, path, saved)
        finally:
            os.close(write_fd)
    found = monitor.wait_for_migration(SETTLED, STALL_S)
    if found.get("status") != "completed":
        raise CacheError(f"QEMU did not read {path}: {found.get('error-desc') or found.get('status')}")


def _send(handle: Handle, fd: int, path: str, saved: SavedFile) -> None:
    digest = hashlib.sha256()
    at, is_read = 0, True
    while at < saved.size_bytes:
        data = handle.read_at(at, CHUNK_BYTES)
        if not data:
            break
        at += len(data)
        digest.update(data)
        try:
            # What QEMU does not want any more is digested all the same: the cause is here or there.
            if is_read:
                _write(fd, data)
        except BrokenPipeError:
            is_read = False
    if digest.hexdigest() != saved.digest:
        raise wrong(path, "its digest differs from that of what was saved")


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        if not _is_ready(fd, select.POLLOUT):
            raise QemuGone("QEMU hangs while it reads a state")
        view = view[os.write(fd, view) :]


def digest_file(disk: Disk, path: str) -> SavedFile:
    """The length and digest of a file that nobody writes to."""
    with closing(disk.open(path)) as handle:
        size_bytes = handle.size()
        at = 0

        def following() -> bytes:
            nonlocal at
            data = handle.read_at(at, CHUNK_BYTES)
            at += len(data)
            return data

        return (
            SavedFile(*_digested(following, None))
            if size_bytes
            else SavedFile(0, hashlib.sha256().hexdigest())
        )


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
        "copy, or start the job anew"
    )


def _digested(
    following: Callable[[], bytes], write_at: Callable[[int, bytes], None] | None
) -> tuple[int, str]:
    """Length and digest of all that comes; it is written by a second thread, if it is to be written.

    Digesting and writing take about as long as each other, and both let other threads run.
    """
    digest = hashlib.sha256()
    size_bytes = 0
    waiting: queue.Queue[tuple[int, bytes] | None] = queue.Queue(MOST_WAITING)
    failures: list[OSError] = []

    def write() -> None:
        while True:
            each = waiting.get()
            if each is None:
                return
            try:
                if write_at is not None and not failures:
                    write_at(*each)
            except OSError as error:
                failures.append(error)

    writer = threading.Thread(target=write, name="state-writer")
    if write_at is not None:
        writer.start()
    try:
        while True:
            data = following()
            if not data:
                break
            if write_at is not None:
                waiting.put((size_bytes, data))
            digest.update(data)
            size_bytes += len(data)
            if failures:
                break
    finally:
        if write_at is not None:
            waiting.put(None)
            writer.join()
    if failures:
        raise failures[0]
    return size_bytes, digest.hexdigest()
