"""Removing what was made of an instance: what is mounted below its folder first, then its parts."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from cachemgr.base.errors import BadRequest, CacheError, DiskFailed, InUse, NotAllowed, NotInPool
from cachemgr.instances.context import FOLDER, SEED
from cachemgr.instances.making import MADE_BEFORE, NEW
from cachemgr.instances.mounts import DISK, INSTANCE, LOWER, TREE
from cachemgr.instances.tree import remove_tree
from cachemgr.instances.walk import held, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.instances.kernel import Mounter

# In this order: what the job sees goes first, so that what is left half-removed is not used.
PARTS = (TREE, DISK, LOWER, "overlay", SEED, FOLDER, NEW, MADE_BEFORE, f".{SEED}.new", f".{FOLDER}.new")
ROUNDS = 3
"""Something may be mounted while something else is unmounted; an end to that is set."""
MOST_UNMOUNTS = 256
BY_ROOT = "the pool's user may not undo that, root runs `cachemgr unmount OWNER` first"


def remove(mounter: Mounter, folder: str, *, pool: str) -> None:
    """Unmount and delete, wherever the making or an earlier removal stopped.

    The same for every method: what an instance may have is a short list of names. The folder
    itself and whatever else is in it belong to the pool. Nothing is deleted as long as anything
    is mounted below, since that could belong to somebody else.
    """
    undo(mounter, folder, pool=pool)
    try:
        with suppress(NotInPool), opened(folder, is_folder=True) as folder_fd:
            for name in PARTS:
                if name in (DISK, NEW, MADE_BEFORE):
                    empty(folder_fd, name)
                remove_tree(folder_fd, name)
    except PermissionError as error:
        raise NotAllowed(
            f"{folder} holds what belongs to the job's user ({error.filename}): {BY_ROOT}"
        ) from error
    except OSError as error:
        raise DiskFailed(f"{folder} cannot be removed: {error.strerror}") from error


def empty(folder_fd: int, name: str) -> None:
    """Free a copy's bytes now, whoever keeps it open or has another name for it: they are given back.

    What cannot be emptied (it is being run, or somebody has a lease on it) is deleted all the same.
    """
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with suppress(OSError):
        fd = os.open(name, flags, dir_fd=folder_fd)
        try:
            # Not through a mount: that would be the image itself.
            if stat.S_ISREG(os.fstat(fd).st_mode) and _mount_of(fd) == _mount_of(folder_fd):
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)


def _mount_of(fd: int) -> str:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        return next(line for line in file if line.startswith("mnt_id:"))


def undo(mounter: Mounter, folder: str, *, pool: str) -> int:
    """Unmount all that is mounted below an instance's folder; how many there were.

    What is busy is detached: nobody finds it any more, and the kernel lets go of it with its
    last user.
    """
    if not folder.startswith(f"{pool}/") or not INSTANCE.fullmatch(folder[len(pool) + 1 :]):
        raise BadRequest(f"{folder} is not an instance of the pool {pool}")
    done = 0
    failure: CacheError | OSError | None = None
    for _ in range(ROUNDS):
        paths = _mounted_below(mounter, folder)
        if not paths:
            return done
        if len(paths) > MOST_UNMOUNTS:
            raise InUse(f"{len(paths)} mounts lie below {folder}: unmount them by hand, the deepest first")
        for path in paths:
            try:
                _unmount(mounter, path)
                done += 1
            except (OSError, CacheError) as error:
                failure = error  # a mount around it may go all the same, and take it along
    left = _mounted_below(mounter, folder)
    if not left:
        return done
    if isinstance(failure, OSError) and failure.errno in (errno.EPERM, errno.EACCES):
        raise NotAllowed(f"{left[0]} is mounted: {BY_ROOT}") from failure
    raise InUse(f"{left[0]} cannot be unmounted: {failure}; unmount it by hand") from failure


def _mounted_below(mounter: Mounter, folder: str) -> list[str]:
    """The deepest and latest first."""
    return [each.path for each in reversed(mounter.table()) if each.path.startswith(f"{folder}/")]


def _unmount(mounter: Mounter, path: str) -> None:
    parent, _, name = path.rpartition("/")
    with opened(parent, is_folder=True) as parent_fd:
        target = f"{held(parent_fd)}/{name}"
        try:
            mounter.unmount(target, is_lazy=False)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return  # somebody else was faster
            if error.errno != errno.EBUSY:
                raise
            mounter.unmount(target, is_lazy=True)
