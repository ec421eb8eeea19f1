"""Deleting a folder that a job's user has filled: any depth, any race, nothing outside of it.

This goes around the seam, because its safety lies in descriptors instead of paths. The
standard library's `rmtree` is as safe, but calls itself for each level: a thousand nested
folders, which any user can make, end it with an error.
"""

from __future__ import annotations

import errno
import os

from cachemgr.base.errors import InUse

ROUNDS = 64
"""How often the folder may turn out not to be empty because somebody still writes to it."""
READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_ABOUT_A_FILE = 4096
NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def remove_tree(parent_fd: int, name: str) -> None:
    """Delete the folder of that name, or the file or link itself; nothing if there is none.

    A folder within the folder moves up to its top before it is emptied, so that two open
    descriptors are enough for every depth.
    """
    try:
        top_fd = os.open(name, READ_FOLDER, dir_fd=parent_fd)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        _unlink(parent_fd, name)
        return
    try:
        if _mount_of(top_fd) != _mount_of(parent_fd):
            raise InUse(f"something is mounted on {name}: unmount it first")
        for _ in range(ROUNDS):
            names = os.listdir(top_fd)
            if not names:
                break
            _empty(top_fd, names)
        else:
            raise InUse(f"{name} fills as fast as it is emptied: end the job's processes first")
    finally:
        os.close(top_fd)
    _remove_folder(parent_fd, name)


def _empty(top_fd: int, waiting: list[str]) -> None:
    mount = _mount_of(top_fd)
    moves = 0
    while waiting:
        name = waiting.pop()
        try:
            fd = os.open(name, READ_FOLDER, dir_fd=top_fd)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            _remove_unread(top_fd, name, error)
            continue
        except OSError as error:
            if error.errno not in NO_FOLDER:
                raise
            _unlink(top_fd, name)
            continue
        try:
            if _mount_of(fd) != mount:
                raise InUse(f"something is mounted on {name}: unmount it first")
            for inner in _unlink_files(fd):
                moves = _move_up(fd, inner, top_fd, moves)
                waiting.append(_moved(moves))
        finally:
            os.close(fd)
        _remove_folder(top_fd, name)


def _mount_of(fd: int) -> tuple[int, bytes]:
    """In which mount a folder lies. The device alone does not tell: one may be mounted at two places."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
            lines = file.read(MOST_ABOUT_A_FILE).splitlines()
    except OSError:
        lines = []
    return os.fstat(fd).st_dev, next((line for line in lines if line.startswith(b"mnt_id:")), b"")


def _remove_unread(top_fd: int, name: str, refusal: PermissionError) -> None:
    """Somebody else's folder may go while it is empty; the kernel leaves such a one in an overlay."""
    try:
        os.rmdir(name, dir_fd=top_fd)
    except OSError as error:
        if error.errno in NOT_EMPTY:
            raise refusal from None
        raise


def _unlink_files(fd: int) -> list[str]:
    """Delete what is no folder; the names of the folders."""
    folders = []
    with os.scandir(fd) as entries:
        found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    for name, is_folder in found:
        if is_folder:
            folders.append(name)
        else:
            _unlink(fd, name)
    return folders


def _move_up(fd: int, name: str, top_fd: int, moves: int) -> int:
    """Rename a folder to a free name at the top; the number in that name."""
    while True:
        moves += 1
        try:
            os.rename(name, _moved(moves), src_dir_fd=fd, dst_dir_fd=top_fd)
        except FileNotFoundError:
            return moves
        except PermissionError as error:
            _remove_unread(fd, name, error)
            return moves
        except OSError as error:
            if error.errno not in (*NOT_EMPTY, errno.ENOTDIR):
                raise
        else:
            return moves


def _moved(number: int) -> str:
    return f"moved.{number}"


def _unlink(fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=fd)
    except (FileNotFoundError, IsADirectoryError):
        return  # gone, or a folder by now: the next round sees to it


def _remove_folder(fd: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno not in NOT_EMPTY:
            raise
