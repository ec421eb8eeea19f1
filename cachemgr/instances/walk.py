"""Walking to a path of the pool without following a symbolic link, and holding what was found.

Root must not look a path up twice: between the check and the use its owner could put a link
there. What was checked is held open, and used through the descriptor.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, NotAllowed, NotInPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def held(fd: int) -> str:
    """A path that leads to what is open, whatever its name means by now."""
    return f"/proc/self/fd/{fd}"


@contextmanager
def opened(path: str, *, is_folder: bool | None) -> Iterator[int]:
    """Walk from the root directory to a folder, a plain file, or (None) either of them."""
    if not path.startswith("/") or path != os.path.normpath(path) or "\0" in path:
        raise BadRequest(f"{path!r} must be an absolute path without detours")
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = path.strip("/").split("/")
        for name in names[:-1]:
            fd, outer = step(fd, name, is_folder=True), fd
            os.close(outer)
        fd, outer = step(fd, names[-1], is_folder=is_folder), fd
        os.close(outer)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def entered(folder_fd: int, name: str, *, is_folder: bool | None) -> Iterator[int]:
    """What has that name in the folder."""
    fd = step(folder_fd, name, is_folder=is_folder)
    try:
        yield fd
    finally:
        os.close(fd)


def step(folder_fd: int, name: str, *, is_folder: bool | None) -> int:
    """Open what has that name, if it is what it should be."""
    if name in ("", ".", "..") or "/" in name:
        raise NotAllowed(f"{name!r} is not the name of something in a folder")
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    except FileNotFoundError as error:
        raise NotInPool(
            f"{os.readlink(held(folder_fd))}/{name} does not exist: make the instance first"
        ) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode) or (is_folder is None and stat.S_ISDIR(mode)):
        return fd
    os.close(fd)
    kind = "a symbolic link" if stat.S_ISLNK(mode) else "not of the kind that it should be"
    raise NotAllowed(f"{os.readlink(held(folder_fd))}/{name} is {kind}: it is left alone")
