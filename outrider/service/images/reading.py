"""Reading a file to its end in a program of its own, which does as much at a time as it is told to.

A read in a user's own file system may never return. A program can be left to itself and killed; a
thread of the service could not. It reads as the service, so that no user can stop or change it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

BLOCK_BYTES = 1 << 20
CLOSE_S = 1.0
# Its arguments: the file's number, its size, the bytes of a block. Holes are hashed without being
# read. Each order is a number of seconds; each answer, how far it has come, how much of that it has
# read since the last, and the digest once it is known, or what is wrong.
PROGRAM = """
import errno, hashlib, os, socket, sys, time
line = socket.socket(fileno=0)
file, size, most = map(int, sys.argv[1:])
os.nice(5)

def extent(offset):
    try:
        begin = os.lseek(file, offset, os.SEEK_DATA)
        return begin, max(begin + 1, os.lseek(file, begin, os.SEEK_HOLE))
    except OSError as error:
        return (size, size) if error.errno == errno.ENXIO else (offset, size)

found, offset, begin, end = hashlib.sha256(), 0, 0, 0
block, zeros = memoryview(bytearray(most)), memoryview(bytes(most))
while order := line.recv(32):
    until, read, said = time.monotonic() + float(order), 0, ""
    try:
        while offset < size and time.monotonic() <= until:
            if offset >= end:
                begin, end = extent(offset)
            if offset < begin:
                count = min(most, begin - offset, size - offset)
                found.update(zeros[:count])
            else:
                count = os.preadv(file, [block[: min(most, end - offset, size - offset)]], offset)
                found.update(block[:count])
                read += count
            if not count:
                said = "short"
                break
            offset += count
        if offset >= size:
            said = "short" if os.fstat(file).st_size < size else "done " + found.hexdigest()
    except OSError as error:
        said = "error %d" % (error.errno or 5)
    line.sendall(("%d %d %s" % (offset, read, said)).encode())
"""


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """How far a file has been read; `said` is empty until there is an end of some kind."""

    offset: int
    read_bytes: int
    said: str


class Reader(Protocol):
    """One file that is being read."""

    def order(self, seconds: float) -> None:
        """Let it go on for so long."""

    def answer(self, timeout_s: float) -> ReadingProgress | None:
        """What came of it; None if that is not known in time. OSError if the program is gone."""

    def close(self) -> bool:
        """End it; whether it has ended."""

    @property
    def has_ended(self) -> bool: ...


StartReader = Callable[[int, int], Reader]
"""From an open file and its size."""


class ReadingProgram:
    """The usual `Reader`."""

    def __init__(self, file: int, size_bytes: int, *, python: str = sys.executable) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [python, "-I", "-S", "-c", PROGRAM, str(file), str(size_bytes), str(BLOCK_BYTES)]
        try:
            self._child = subprocess.Popen(
                arguments,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(file,),
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError:
            self._line.close()
            raise
        finally:
            theirs.close()

    def order(self, seconds: float) -> None:
        self._line.sendall(b"%.3f" % seconds)

    def answer(self, timeout_s: float) -> ReadingProgress | None:
        self._line.settimeout(timeout_s)
        try:
            said = self._line.recv(256)
        except TimeoutError:
            return None
        if not said:
            raise OSError("the program that reads it has died")
        offset, read_bytes, words = said.decode().split(" ", 2)
        return ReadingProgress(int(offset), int(read_bytes), words)

    def close(self) -> bool:
        self._line.close()
        self._child.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSE_S)
        return self.has_ended

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None
