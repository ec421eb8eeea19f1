"""A folder whose content is Outrider's own to delete: by descriptor, never through a link, and only if it
is marked so.

The mark is a file that is made with the folder. A folder that was there before gets it if it is empty, or
holds nothing but what earlier versions have left in it; any other is refused, since a slip of the pen
in a configuration must not cost anybody their files.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from cachemgr.base.errors import BadRequest
from cachemgr.instances.tree import READ_FOLDER, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Whether an entry of that name is one that only we make.
    IsLeft = Callable[[str, os.stat_result], bool]

MARKER = ".outrider"
MOST_BYTES = 100


class OwnFolder:
    """One such folder, open. `purpose` is what stands in its mark: two kinds of folders are never mixed up.

    Raises BadRequest, with the remedy, for a folder that is not ours, and OSError.
    """

    def __init__(self, path: str, purpose: str, *, mode: int, is_left: IsLeft) -> None:
        # With a slash at its end the kernel would follow a link.
        self.path = path = path.rstrip("/") or "/"
        self._purpose = purpose
        self._is_left = is_left
        try:
            os.mkdir(path, mode)
            os.chmod(path, mode)
        except FileExistsError:
            pass
        try:
            self._fd = os.open(path, READ_FOLDER)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise BadRequest(
                    f"{path} is a link, or not a folder: what is in it is deleted now and then, so name a "
                    "folder itself"
                ) from error
            raise
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)

    @property
    def is_in_place(self) -> bool:
        """Whether the folder of that path is still this one."""
        try:
            there, here = os.stat(self.path, follow_symlinks=False), os.fstat(self._fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def left(self) -> list[str]:
        """What is in it that we have made; whatever else is there is nobody's to delete."""
        return [name for name in sorted(os.listdir(self._fd)) if self._is_ours(name)]

    def touch(self, name: str, mode: int) -> None:
        """An empty file of that name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(_checked(name), flags, mode, dir_fd=self._fd))

    def unlink(self, name: str) -> None:
        """Remove a file or a link itself; nothing if there is none."""
        with suppress(FileNotFoundError):
            os.unlink(_checked(name), dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Remove whatever has that name, with all that is in it, but nothing that is mounted there."""
        remove_tree(self._fd, _checked(name))

    def _check(self) -> None:
        owner = os.fstat(self._fd).st_uid
        if owner not in (0, os.geteuid()):
            raise BadRequest(f"{self.path} belongs to uid {owner}: name a folder of our own")
        mark = self._mark()
        if mark == self._purpose:
            return
        if mark is not None:
            raise BadRequest(f"{self.path} is marked for {mark!r} in {MARKER}: name another folder")
        names = sorted(os.listdir(self._fd))
        strangers = [name for name in names if name != f"{MARKER}.new" and not self._is_ours(name)]
        if strangers:
            raise BadRequest(
                f"{self.path} is not marked as Outrider's own and holds {strangers[0]!r}: name another "
                f"folder; or, if it is for nothing else, `echo {self._purpose} > {self.path}/{MARKER}`"
            )
        self._write_mark()

    def _mark(self) -> str | None:
        """What the mark says; None if there is none that counts."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(MARKER, flags, dir_fd=self._fd)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
                return None
            return os.read(fd, MOST_BYTES).decode("utf-8", "replace").strip()
        finally:
            os.close(fd)

    def _write_mark(self) -> None:
        beside = f"{MARKER}.new"
        self.unlink(beside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(beside, flags, 0o644, dir_fd=self._fd)
        try:
            os.write(fd, f"{self._purpose}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, MARKER, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _is_ours(self, name: str) -> bool:
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return found.st_uid in (0, os.geteuid()) and self._is_left(name, found)


def _checked(name: str) -> str:
    if not name or "/" in name or name in (".", "..", MARKER):
        raise ValueError(f"{name!r} is not a name in a folder of our own")
    return name
