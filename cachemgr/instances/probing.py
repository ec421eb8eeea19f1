"""Finding out, by trying, what a pool's file system and the privileges there allow."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from cachemgr.base.errors import CacheError, Unsuitable
from cachemgr.instances import kernel
from cachemgr.instances.methods import NEEDS, Abilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.disk import Disk
    from cachemgr.instances.kernel import Mounter

PARTS = ("lower", "upper", "work", "merged")


def probe(disk: Disk, folder: str, mounter: Mounter | None, *, denied: Sequence[str] = ()) -> Abilities:
    """Try each in an empty folder of the pool, which the caller removes; to be asked once.

    Without a mounter nothing can be mounted: a service user whose root helper mounts for it
    lets that helper probe. `denied` are abilities that the site does not want to be used.
    """
    found = set()
    if _can_reflink(disk, folder):
        found.add("reflink")
    if mounter is not None:
        for part in PARTS:
            # What a volatile overlay leaves in its work folder forbids the next one.
            if disk.exists(f"{folder}/{part}"):
                disk.remove_all(f"{folder}/{part}")
            disk.make_folder(f"{folder}/{part}", 0o700)
        found |= {kind for kind in ("bind", "overlay", "squashfs") if _can_mount(disk, mounter, kind, folder)}
    return Abilities(tuple(name for name in NEEDS if name in found and name not in denied))


def _can_reflink(disk: Disk, folder: str) -> bool:
    source, target = f"{folder}/source", f"{folder}/target"
    for path in (source, target):
        with suppress(FileNotFoundError):
            disk.remove(path)
    handle = disk.create(source, 0o600)
    try:
        handle.write_at(0, bytes(4096))
    finally:
        handle.close()
    try:
        disk.reflink(source, target, 0o600)
    except Unsuitable:
        return False
    return True


def _can_mount(disk: Disk, mounter: Mounter, kind: str, folder: str) -> bool:
    merged = f"{folder}/merged"
    if kind == "squashfs":
        return _has_loops(disk, mounter, f"{folder}/source") and _knows(mounter, kind, merged)
    flags = kernel.NOSUID | kernel.NODEV
    lower = f"{folder}/lower"
    if kind == "bind":
        ways = [(lower, "none", flags | kernel.BIND, "")]
    else:
        data = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/{PARTS[2]}"
        # Volatile where the kernel knows that: otherwise its end writes out the whole file system.
        ways = [("outrider", kind, flags, f"{data},volatile"), ("outrider", kind, flags, data)]
    for source, system, how, data in ways:
        try:
            mounter.mount(source, merged, system, how, data)
        except (OSError, CacheError):
            continue
        mounter.unmount(merged, is_lazy=True)
        return True
    return False


def _has_loops(disk: Disk, mounter: Mounter, path: str) -> bool:
    handle = disk.open(path)
    try:
        _, device_fd = mounter.attach_loop(handle.fileno())
    except OSError:
        return False
    finally:
        handle.close()
    os.close(device_fd)
    return True


def _knows(mounter: Mounter, kind: str, target: str) -> bool:
    """Whether root may mount such a file system: asked with a source that cannot be one.

    The kernel loads the module before it looks at the source, so the error tells.
    """
    try:
        mounter.mount("/dev/null", target, kind, kernel.RDONLY | kernel.NOSUID | kernel.NODEV, "")
    except OSError as error:
        return error.errno not in (errno.ENODEV, errno.EPERM, errno.EACCES)
    mounter.unmount(target, is_lazy=True)
    return True
