"""Handing a file to somebody: POSIX access control lists, written as the kernel keeps them.

The pool's files belong to the service user, who need not be root and so cannot give them
away. An access control list names others who may use a file and leaves its owner.
"""

from __future__ import annotations

import errno
import os
import struct

from cachemgr.base.errors import BadRequest, DiskFailed, NotAllowed, Unsuitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cachemgr.base.disk import Disk

SEARCH, READ, LIST, READ_WRITE, ALL = 1, 4, 5, 6, 7
VERSION = struct.pack("<I", 2)
ENTRY = struct.Struct("<HHI")
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NOBODY = 0xFFFFFFFF
MOST_NAMED = 64
"""More users and groups than this do not fit beside the other attributes of an ext4 inode's block."""


def acl(mode: int, uids: Iterable[int], gids: Iterable[int], permission: int) -> bytes:
    """The list by which `mode` holds for the owner and others, `permission` for those named."""
    users, groups = sorted(set(uids)), sorted(set(gids))
    if len(users) + len(groups) > MOST_NAMED:
        raise BadRequest(
            f"at most {MOST_NAMED} users and groups can share a file: give them a group of their own"
        )
    if any(not 0 <= number < NOBODY for number in [*users, *groups]):
        raise BadRequest(f"users and groups are numbers from 0 to {NOBODY - 1}: {[*users, *groups]}")
    group_bits = mode >> 3 & 7
    entries = [
        (OWNER, mode >> 6 & 7, NOBODY),
        *((USER, permission, uid) for uid in users),
        (OWNING_GROUP, group_bits, NOBODY),
        *((GROUP, permission, gid) for gid in groups),
        (MASK, permission | group_bits, NOBODY),
        (OTHERS, mode & 7, NOBODY),
    ]
    return VERSION + b"".join(ENTRY.pack(*entry) for entry in entries)


def grant(
    disk: Disk,
    path: str,
    *,
    mode: int,
    uids: Iterable[int] = (),
    gids: Iterable[int] = (),
    permission: int,
    may_change_owner: bool = False,
) -> None:
    """Let these users and groups use a file or folder, and nobody whom an earlier grant named.

    `mode` is what the owner and everybody else may do; it cannot be read off the file, whose
    group bits show the mask once there is a list. Where the file system keeps no lists, a
    process of root may give the file to a single user, if that is allowed: never an image,
    whose owner could change it.
    """
    users, groups = sorted(set(uids)), sorted(set(gids))
    try:
        disk.set_acl(path, acl(mode, users, groups, permission))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise NotAllowed(
                f"{path} cannot be shared: it belongs to somebody else; run as the pool's user"
            ) from error
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise DiskFailed(f"{path} cannot be shared: {error.strerror}") from error
        if not may_change_owner or groups or len(users) != 1:
            raise Unsuitable(
                _without_lists(path, "it is for more than one user, or must keep its owner")
            ) from error
        _give(disk, path, users[0])


def _give(disk: Disk, path: str, uid: int) -> None:
    handle = disk.open(path)
    try:
        os.fchown(handle.fileno(), uid, -1)
    except PermissionError as error:
        raise Unsuitable(_without_lists(path, "only root may give it away")) from error
    finally:
        handle.close()


def _without_lists(path: str, reason: str) -> str:
    return (
        f"{path} cannot be handed over: its file system keeps no access control lists, and {reason}; "
        "put the pool on XFS, ext4 or btrfs"
    )
