"""The file that a submit filter opens when there is a new job: the kernel tells the service of that.

It is opened for reading and closed again, which takes microseconds, needs no right but to read, waits for
nobody and leaves nothing behind, whatever state the service is in. A fifo would fill up, and a file to be
written could be filled. Who opens it a million times a second is heard of twenty times: the kernel keeps
one event of many that are alike.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outrider.service.meter import Log

NAME = "wake"
IN_OPEN = 0x20
OPEN = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
REST_S = 0.05
"""For so long nothing is heard after something was."""
MOST_BYTES = 65_536


class WakeFile:
    """Beside the service's socket. Where there can be none jobs are found at the regular looks."""

    def __init__(self, socket: str, tell: Callable[[], None], log: Log) -> None:
        self._path = f"{Path(socket).parent}/{NAME}"
        self._tell = tell
        self._log = log
        self._events = self._watch = -1
        self._inode: tuple[int, int] | None = None
        self._is_stopping = threading.Event()
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="new jobs", daemon=True)
        self._said = ""

    def start(self) -> None:
        """Listen from now on."""
        try:
            self._events = _libc("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._warn(error)
            return
        self.tend()
        self._thread.start()

    def tend(self) -> None:
        """To be called every few seconds: somebody may have removed the file."""
        if self._events < 0 or (self._inode is not None and _inode(self._path) == self._inode):
            return
        try:
            file = os.open(self._path, OPEN, 0o644)
            try:
                found = os.fstat(file)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file: remove it")
                os.fchmod(file, 0o644)
                # By the open file: what the path leads to a moment later may be another one.
                watch = _libc("inotify_add_watch", self._events, f"/proc/self/fd/{file}".encode(), IN_OPEN)
            finally:
                os.close(file)
        except OSError as error:
            self._warn(error)
            return
        if self._watch not in (-1, watch):
            with suppress(OSError):
                _libc("inotify_rm_watch", self._events, self._watch)
        self._watch, self._inode, self._said = watch, (found.st_dev, found.st_ino), ""

    def stop(self) -> None:
        """Listen no more. The file stays: a filter that finds none has nothing to wait for either."""
        self._is_stopping.set()
        os.close(self._stopped)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._stop)
        if self._events >= 0:
            os.close(self._events)
            self._events = -1

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._events, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while not self._is_stopping.is_set():
            poll.poll()
            if self._is_stopping.is_set():
                return
            with suppress(BlockingIOError):
                os.read(self._events, MOST_BYTES)
                self._tell()
            self._is_stopping.wait(REST_S)

    def _warn(self, error: OSError) -> None:
        words = error.strerror or str(error)
        if words != self._said:
            self._said = words
            self._log.warning(
                "submit filters cannot wake the service: new jobs are seen at the next look",
                file=self._path,
                words=words,
            )


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _libc(name: str, *arguments: object) -> int:
    """A function of the C library's that Python has not. Raises OSError."""
    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
