"""Making an instance: its file or its mount points, in a folder that the caller has made.

Everything is made beside its final name and renamed, so that what has its name is complete
and perhaps in use: making an instance a second time leaves it alone. Nothing is synced, since
an instance does not outlive its job, and a job does not outlive its node.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, DiskFailed, NoRoom, PoolDamaged, Unsuitable
from cachemgr.instances.acl import ALL, READ, READ_WRITE, SEARCH, grant
from cachemgr.instances.formats import HEAD_BYTES, detect
from cachemgr.instances.methods import METHODS, SQUASHED
from cachemgr.instances.mounts import DISK, LOWER, REQUIRED, TREE, Mount
from cachemgr.instances.qcow2 import inspect_qcow2, overlay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.disk import Disk, Handle

CHUNK_BYTES = 1 << 20
NEW = ".disk.new"
"""One name for all: two processes never make the same instance, the caller sees to that."""
MADE_BEFORE = ".disk.made"
"""A copy that was made before anybody wanted this instance: it becomes the instance's."""


@dataclass(frozen=True)
class BuiltInstance:
    """An instance: ready once root has carried out its mounts.

    Whoever opens it must name `format` and not guess it: a guest can write another format's
    header into its raw disk, which then names files of the node.
    """

    path: str
    format: str
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class BuildOrder:
    """What is to be made of what, for whom."""

    image_path: str
    image_format: str
    size_bytes: int
    folder: str
    uid: int
    is_writable: bool
    watch: Callable[[int], None] | None = None
    """Told how many bytes are copied, again and again; what it raises ends the making."""


def make(disk: Disk, method: str, order: BuildOrder) -> BuiltInstance:
    """Make an instance, or finish what a crash left of it, or find it complete."""
    if method not in METHODS:
        raise BadRequest(f"there is no method {method!r}: choose one of {', '.join(METHODS)}")
    row = METHODS[method]
    if order.image_format not in row.takes or not row.serves(order.is_writable):
        kind = "writable" if order.is_writable else "read-only"
        raise Unsuitable(f"method {method} makes no {kind} instance of a {order.image_format} image")
    virtual_bytes = _checked_size(disk, method, order)
    what = f"making an instance of {order.image_path} in {order.folder}"
    mounts: tuple[Mount, ...] = ()
    try:
        _confine(disk, method, order)
        if method in ("reflink", "copy", "qcow2"):
            path = _file(disk, method, order, virtual_bytes)
        elif method == "shared":
            path = order.image_path
        else:
            path, mounts = _mount_points(disk, method, order)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(f"{what} failed: {error.strerror}; remove instances or images") from error
        raise DiskFailed(f"{what} failed: {error.strerror} ({error.filename})") from error
    return BuiltInstance(path, row.gives.get(order.image_format, order.image_format), mounts)


def _checked_size(disk: Disk, method: str, order: BuildOrder) -> int:
    """How large a disk the image describes; refuses what would make a hypervisor read the node's files."""
    if order.image_format == "folder":
        return 0
    handle = disk.open(order.image_path)
    try:
        head = handle.read_at(0, HEAD_BYTES)
    finally:
        handle.close()
    if order.image_format != "qcow2":
        if detect(head, order.size_bytes) == "qcow2":
            raise Unsuitable(
                f"{order.image_path} is a qcow2 image, although it was called {order.image_format}"
            )
        return order.size_bytes
    found = inspect_qcow2(head)
    if found.is_encrypted and method == "qcow2":
        raise Unsuitable("an overlay on an encrypted qcow2 image is not possible: ask for reflink or copy")
    return found.virtual_bytes


def _confine(disk: Disk, method: str, order: BuildOrder) -> None:
    """Let nobody but the job's user into the folder.

    Its name can be guessed, and a mounted tree shows a private image to whoever reaches it.
    A file is guarded by its own permissions, too, and so is made without lists as well.
    """
    try:
        grant(disk, order.folder, mode=0o700, uids=[order.uid], permission=SEARCH)
    except Unsuitable:
        if method in ("overlay", "readonly"):
            raise


def _file(disk: Disk, method: str, order: BuildOrder, virtual_bytes: int) -> str:
    path, new = f"{order.folder}/{DISK}", f"{order.folder}/{NEW}"
    if disk.exists(path):
        return path
    with suppress(FileNotFoundError):
        disk.remove(new)
    mode = 0o600 if order.is_writable else 0o400
    if method == "reflink":
        disk.reflink(order.image_path, new, mode)
    elif method == "copy" and disk.exists(f"{order.folder}/{MADE_BEFORE}"):
        disk.rename(f"{order.folder}/{MADE_BEFORE}", new)
    elif method == "copy":
        _copy(disk, order, new, mode)
    else:
        pieces = overlay(order.image_path, order.image_format, virtual_bytes)
        _write(disk, new, mode, pieces)
    permission = READ_WRITE if order.is_writable else READ
    grant(disk, new, mode=mode, uids=[order.uid], permission=permission, may_change_owner=True)
    disk.rename(new, path)
    return path


def _write(disk: Disk, path: str, mode: int, pieces: list[tuple[int, bytes]]) -> None:
    handle = disk.create(path, mode)
    try:
        for offset, data in pieces:
            handle.write_at(offset, data)
    finally:
        handle.close()


def _copy(disk: Disk, order: BuildOrder, path: str, mode: int) -> None:
    """All bytes; what is zero stays a hole, as most of a raw image is."""
    source = disk.open(order.image_path)
    try:
        target = disk.create(path, mode)
        try:
            _copy_bytes(source, target, order)
        finally:
            target.close()
    finally:
        source.close()


def _copy_bytes(source: Handle, target: Handle, order: BuildOrder) -> None:
    zeros = bytes(CHUNK_BYTES)
    for offset in range(0, order.size_bytes, CHUNK_BYTES):
        wanted_bytes = min(CHUNK_BYTES, order.size_bytes - offset)
        data = source.read_at(offset, wanted_bytes)
        if len(data) != wanted_bytes:
            raise PoolDamaged(
                f"{order.image_path} is shorter than {order.size_bytes} bytes: run `cachemgr check`"
            )
        is_last = offset + wanted_bytes == order.size_bytes
        if is_last or data != zeros:
            target.write_at(offset, data)
        if order.watch is not None:
            order.watch(offset + wanted_bytes)


def hand_over(disk: Disk, folder: str, other: str) -> None:
    """Let a copy that was made for nobody yet become the disk of an instance that is to be made."""
    disk.rename(f"{folder}/{DISK}", f"{other}/{MADE_BEFORE}")


def _mount_points(disk: Disk, method: str, order: BuildOrder) -> tuple[str, tuple[Mount, ...]]:
    """Empty folders or files, and what root is to mount there."""
    root, lower = f"{order.folder}/{TREE}", f"{order.folder}/{LOWER}"
    if method == "readonly":
        if order.image_format in (*SQUASHED, "folder"):
            _make_folder(disk, root, 0o755)
            kind, path = ("squashfs" if order.image_format in SQUASHED else "bind"), root
        else:
            kind, path = "bind", f"{order.folder}/{DISK}"
            if not disk.exists(path):
                disk.create(path, 0o400).close()
        return path, (_mount(kind, order.image_path, path),)

    wants_lower = order.image_format != "folder"
    mounts: tuple[Mount, ...] = (_mount("overlay", lower if wants_lower else order.image_path, root),)
    if wants_lower:
        mounts = (_mount("squashfs", order.image_path, lower), *mounts)
    if disk.exists(root):
        return root, mounts
    # The user reaches the upper folder through the mount alone: beside it, nobody but its owner.
    _make_folder(disk, f"{order.folder}/overlay", 0o700)
    _make_folder(disk, f"{order.folder}/overlay/work", 0o700)
    upper = f"{order.folder}/overlay/upper"
    _make_folder(disk, upper, 0o755)
    grant(disk, upper, mode=0o755, uids=[order.uid], permission=ALL, may_change_owner=True)
    if wants_lower:
        _make_folder(disk, lower, 0o700)
    _make_folder(disk, root, 0o755)
    return root, mounts


def _make_folder(disk: Disk, path: str, mode: int) -> None:
    with suppress(FileExistsError):
        disk.make_folder(path, mode)


def _mount(kind: str, source: str, target: str) -> Mount:
    return Mount(kind, source, target, REQUIRED[kind])
