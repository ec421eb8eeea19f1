"""The seam: every operation of the pool on files and folders goes through here.

One method is one step that either happens or not, so that a test can stop the process, cut
the power or fill the disk at each of them. What belongs together (write beside, sync,
rename, sync the folder) is composed of these steps by `replace_file`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import subprocess
import threading
from contextlib import closing, suppress

from cachemgr.base.errors import DiskFailed, Unsuitable
from cachemgr.instances.tree import READ_FOLDER, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Handle(Protocol):
        """An open file."""

        def read_at(self, offset: int, most: int) -> bytes: ...

        def write_at(self, offset: int, data: bytes | memoryview) -> None: ...

        def allocate(self, size_bytes: int) -> None:
            """Make the file this long with room on the disk for all of it, or fail."""

        def reserve(self, size_bytes: int) -> None:
            """Room on the disk for so much of the file, whose length stays as it is, or fail."""

        def size(self) -> int: ...

        def set_mode(self, mode: int) -> None: ...

        def sync(self) -> None: ...

        def fileno(self) -> int: ...

        def close(self) -> None: ...

    class Lock(Protocol):
        """A lock on a file or folder, held until it is released or its holder dies."""

        def is_of(self, path: str) -> bool:
            """Whether what is locked is what now stands at that path."""

        def release(self) -> None: ...

    class Disk(Protocol):
        """What the pool needs of a file system. Paths are absolute."""

        def create(self, path: str, mode: int) -> Handle: ...

        def open(self, path: str, *, for_writing: bool = False) -> Handle: ...

        def read(self, path: str, most: int) -> bytes: ...

        def exists(self, path: str) -> bool: ...

        def size(self, path: str) -> int: ...

        def names(self, path: str) -> list[str]: ...

        def make_folder(self, path: str, mode: int) -> None: ...

        def remove_folder(self, path: str) -> None: ...

        def rename(self, source: str, target: str) -> None: ...

        def remove(self, path: str) -> None: ...

        def remove_all(self, path: str) -> None:
            """Remove a file, or a folder with what is in it: many steps, in any order."""

        def sync_folder(self, path: str) -> None: ...

        def lock(self, path: str, *, is_shared: bool, waits: bool) -> Lock | None:
            """Lock a file or folder that is there; None if others hold it and this does not wait."""

        def reflink(self, source: str, target: str, mode: int) -> None: ...

        def set_acl(self, path: str, acl: bytes) -> None: ...

        def free_bytes(self, path: str) -> int: ...

        def boot_id(self) -> str: ...

        def is_process(self, pid: int) -> bool: ...

        def run(self, argv: Sequence[str], timeout_s: int) -> bytes: ...


BESIDE = re.compile(r"\..+\.(\d+)-\d+\.new")
# What `replace_file` calls a small file until it is in place: the group is its writer's process.
FICLONE = 0x40049409
# A file system answers one of these to what it cannot do at all.
KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2), which Python does not offer."""
UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS}


class FileHandle:
    """An open file of the real file system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, offset: int, most: int) -> bytes:
        return os.pread(self._fd, most, offset)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            written = os.pwrite(self._fd, view, offset)
            offset += written
            view = view[written:]

    def allocate(self, size_bytes: int) -> None:
        if size_bytes == 0:
            return
        try:
            os.posix_fallocate(self._fd, 0, size_bytes)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            os.ftruncate(self._fd, size_bytes)

    def reserve(self, size_bytes: int) -> None:
        import ctypes  # takes milliseconds, and few files are reserved for

        libc = ctypes.CDLL(None, use_errno=True)
        sizes = (ctypes.c_long(0), ctypes.c_long(size_bytes))
        while libc.fallocate(ctypes.c_int(self._fd), ctypes.c_int(KEEP_SIZE), *sizes) != 0:
            failed = ctypes.get_errno()
            if failed in UNSUPPORTED:
                raise OSError(failed, f"{os.strerror(failed)}: this file system reserves no room for a file")
            if failed != errno.EINTR:
                raise OSError(failed, os.strerror(failed))

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def set_mode(self, mode: int) -> None:
        os.fchmod(self._fd, mode)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileLock:
    """flock(2) on an open descriptor: released by the kernel when its holder dies."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def is_of(self, path: str) -> bool:
        try:
            there = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The file system of this machine. A symbolic link as the last part is never followed."""

    def create(self, path: str, mode: int) -> FileHandle:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = FileHandle(os.open(path, flags, mode))
        handle.set_mode(mode)
        return handle

    def open(self, path: str, *, for_writing: bool = False) -> FileHandle:
        flags = (os.O_RDWR if for_writing else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
        return FileHandle(os.open(path, flags))

    def read(self, path: str, most: int) -> bytes:
        # Without waiting: where a record should be, the pool's user could put a pipe for root to read.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, most)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def names(self, path: str) -> list[str]:
        # What stands in a folder's place and leads elsewhere is not looked into: its content is not ours.
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def make_folder(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)
        os.chmod(path, mode)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_all(self, path: str) -> None:
        folder, _, name = path.rstrip("/").rpartition("/")
        fd = os.open(folder or "/", READ_FOLDER)
        try:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
            remove_tree(fd, name)
        finally:
            os.close(fd)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str, *, is_shared: bool, waits: bool) -> FileLock | None:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
            fcntl.flock(fd, kind if waits else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return FileLock(fd)

    def reflink(self, source: str, target: str, mode: int) -> None:
        """Share the blocks of a file; `Unsuitable` where the file system cannot."""
        # Without waiting: a user may have put a named pipe where an image was.
        from_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(from_fd).st_mode):
                raise Unsuitable(f"{source} is not a regular file")
            to_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                os.fchmod(to_fd, mode)
                fcntl.ioctl(to_fd, FICLONE, from_fd)
            except OSError as error:
                os.unlink(target)
                if error.errno in UNSUPPORTED:
                    message = f"{target} cannot share blocks with {source}: {error.strerror}"
                    raise Unsuitable(message) from error
                raise
            finally:
                os.close(to_fd)
        finally:
            os.close(from_fd)

    def set_acl(self, path: str, acl: bytes) -> None:
        os.setxattr(path, "system.posix_acl_access", acl, follow_symlinks=False)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def boot_id(self) -> str:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()

    def is_process(self, pid: int) -> bool:
        return os.path.exists(f"/proc/{pid}")

    def run(self, argv: Sequence[str], timeout_s: int) -> bytes:
        """An external tool, by its argument list; its last words are in the error."""
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        except FileNotFoundError as error:
            raise Unsuitable(f"{argv[0]} is not installed on this node") from error
        except subprocess.TimeoutExpired as error:
            raise DiskFailed(f"{argv[0]} did not finish within {timeout_s} s") from error
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[-500:]
            raise DiskFailed(f"{argv[0]} failed with exit code {done.returncode}: {words}")
        return done.stdout


def replace_file(disk: Disk, path: str, data: bytes, *, mode: int = 0o600, is_durable: bool = True) -> None:
    """Put a small file in place at once: a reader sees the old content or the new.

    What is not durable may be lost or torn by a power cut, never by a crash of the process.
    Of several writers the last one wins.
    """
    folder, _, name = path.rpartition("/")
    beside = f"{folder}/.{name}.{os.getpid()}-{threading.get_ident()}.new"
    if disk.exists(beside):
        disk.remove(beside)
    try:
        with closing(disk.create(beside, mode)) as handle:
            handle.write_at(0, data)
            if is_durable:
                handle.sync()
        disk.rename(beside, path)
    except OSError:
        with suppress(OSError):
            disk.remove(beside)
        raise
    if is_durable:
        disk.sync_folder(folder)


def drop_drafts(disk: Disk, folder: str) -> None:
    """Remove what writers that were killed have left of small files in this folder, if there is one."""
    with suppress(OSError):
        for name in disk.names(folder):
            draft = BESIDE.fullmatch(name)
            if draft and not disk.is_process(int(draft[1])):
                disk.remove(f"{folder}/{name}")
