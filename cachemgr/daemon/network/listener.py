"""The daemon's socket in the file system: one living daemon, whatever dead ones have left."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import suppress

from cachemgr.base.errors import BadRequest, InUse
from cachemgr.daemon.network.server import BACKLOG

MODE = 0o666
LONGEST_PATH = 107


class ListeningPlace:
    """The right to listen at a path: a lock beside it, which the kernel releases with its holder.

    A socket's file outlives its daemon, so it says nothing about whether one lives.
    """

    def __init__(self, path: str) -> None:
        if len(os.fsencode(path)) > LONGEST_PATH - len(".new"):
            raise BadRequest(f"the socket's path {path} is too long: Linux takes {LONGEST_PATH} bytes")
        self.path = path
        self._made: tuple[int, int] | None = None
        try:
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadRequest(
                f"the socket {path} cannot be made: {error.strerror}; make its folder, or set socket"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise InUse(f"another daemon listens at {path}: stop it first, or set another socket") from error

    def listen(self) -> socket.socket:
        """A socket at the path, in place at once and open for everybody: who calls is asked of the kernel."""
        beside = f"{self.path}.new"
        check_replaceable(self.path)
        if check_replaceable(beside):
            os.unlink(beside)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(beside)
            os.chmod(beside, MODE)
            listener.listen(BACKLOG)
            made = os.lstat(beside)
            os.rename(beside, self.path)
        except OSError as error:
            listener.close()
            raise BadRequest(f"the socket {self.path} cannot be made: {error.strerror}") from error
        self._made = made.st_dev, made.st_ino
        return listener

    def leave(self) -> None:
        # A socket that was handed over belongs to who opened it.
        if self._made is not None:
            with suppress(OSError):
                there = os.lstat(self.path)
                if (there.st_dev, there.st_ino) == self._made:
                    os.unlink(self.path)
        os.close(self._lock)


def check_replaceable(path: str) -> bool:
    """Whether there is a socket at the path, which a dead daemon has left. What is none is somebody's."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BadRequest(f"the socket {path} cannot be made: {error.strerror}") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise BadRequest(f"{path} is there and is not a socket: move it away, or set another socket")
    return True
