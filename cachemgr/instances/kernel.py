"""The kernel's calls for mounts and loop devices: what root does for an instance, and nothing else.

Like the seam for files, this is a seam: each method is one step. Nothing here decides
whether a mount is allowed; that is `mounts.carry_out`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Mounter(Protocol):
        """Mounts, loop devices and the table of what is mounted."""

        def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None: ...

        def unmount(self, target: str, *, is_lazy: bool) -> None: ...

        def attach_loop(self, image_fd: int) -> tuple[str, int]:
            """A read-only loop device: its path, and a descriptor that keeps it until it is mounted."""

        def table(self) -> list[MountPoint]: ...


RDONLY, NOSUID, NODEV, NOEXEC = 0x1, 0x2, 0x4, 0x8
REMOUNT, BIND = 0x20, 0x1000
MNT_DETACH, UMOUNT_NOFOLLOW = 0x2, 0x8

LOOP_SET_FD, LOOP_CLR_FD, LOOP_SET_STATUS64, LOOP_CONFIGURE = 0x4C00, 0x4C01, 0x4C04, 0x4C0A
LOOP_CTL_GET_FREE = 0x4C82
LOOP_READ_ONLY, LOOP_AUTOCLEAR = 1, 4
LOOP_INFO = struct.Struct("<5Q4I64s64s32s2Q")
LOOP_ATTEMPTS = 50
"""Another process may take the free device between the question and the answer."""
MOST_TABLE_BYTES = 64 << 20
OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MountPoint:
    """One line of the table of mounts."""

    key: int
    path: str
    kind: str
    options: tuple[str, ...]


def parse_table(text: str) -> list[MountPoint]:
    """The lines of /proc/self/mountinfo, whose paths hide blanks and the like as octal numbers."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        path = os.fsdecode(_unescaped(os.fsencode(fields[4])))
        found.append(MountPoint(int(fields[0]), path, kind, tuple(fields[5].split(","))))
    return found


def _unescaped(escaped: bytes) -> bytes:
    text = OCTAL.sub(lambda digits: chr(int(digits[1], 8)), escaped.decode("latin-1"))
    return text.encode("latin-1")


class Kernel:
    """The kernel of this machine."""

    def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        import ctypes  # takes milliseconds, and only who mounts needs it

        libc = ctypes.CDLL(None, use_errno=True)
        arguments = [os.fsencode(each) for each in (source, target, kind)]
        if libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data)) != 0:
            raise _failed(ctypes.get_errno(), target)

    def unmount(self, target: str, *, is_lazy: bool) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        flags = UMOUNT_NOFOLLOW | (MNT_DETACH if is_lazy else 0)
        if libc.umount2(os.fsencode(target), ctypes.c_int(flags)) != 0:
            raise _failed(ctypes.get_errno(), target)

    def attach_loop(self, image_fd: int) -> tuple[str, int]:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(LOOP_ATTEMPTS):
                path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
                device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    configure_loop(device, image_fd)
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:
                        raise
                else:
                    return path, device
        finally:
            os.close(control)
        raise OSError(errno.EBUSY, f"no loop device was free in {LOOP_ATTEMPTS} attempts")

    def table(self) -> list[MountPoint]:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return parse_table(file.read(MOST_TABLE_BYTES))


def configure_loop(device: int, image_fd: int, *, is_modern: bool = True) -> None:
    """Attach the image, to be let go by the kernel with the last user; before Linux 5.8 in two steps."""
    info = LOOP_INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, LOOP_READ_ONLY | LOOP_AUTOCLEAR, b"", b"", b"", 0, 0)
    if is_modern:
        try:
            fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack("<II", image_fd, 0) + info + bytes(64))
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTTY):
                raise
    fcntl.ioctl(device, LOOP_SET_FD, image_fd)
    try:
        fcntl.ioctl(device, LOOP_SET_STATUS64, info)
    except OSError:
        fcntl.ioctl(device, LOOP_CLR_FD)
        raise


def _failed(number: int, target: str) -> OSError:
    return OSError(number, os.strerror(number), target)
