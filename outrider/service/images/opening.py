"""Opening a user's file with that user's rights and no others.

Asking first whether the user may read it and opening it then with the service's rights would
be two looks at something that can change in between, so the open itself is the question.
A service that is root lets a short-lived program become the user, open the file, and hand it
over; a program and not a fork, because the service has threads. A service that is not root
opens it itself, if every folder on the way and the file let the user through.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from outrider.service.ports import ImageTrouble

OpenAs = Callable[[str, int, tuple[int, ...]], int]
"""From a path, a user's number and groups to a file open for reading. Raises ImageTrouble."""

NOBODY = 65534
OPEN_S = 15.0
MOST_GROUPS = 10_000
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Started as root, since users may not be able to run this interpreter. Reads from its stdin, a
# socket, who to become and a path; answers with the open file or an error's number.
PROGRAM = """
import os, socket
line = socket.socket(fileno=0)
ids, _, path = line.recv(1 << 20).partition(b" ")
uid, *gids = map(int, ids.split(b","))
os.setgroups(gids)
os.setresgid(gids[0], gids[0], gids[0])
os.setresuid(uid, uid, uid)
try:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
except OSError as error:
    line.sendall(b"%d" % (error.errno or 5))
else:
    socket.send_fds(line, [b"0"], [file])
"""


def opener() -> OpenAs:
    """How this process, as the user it is, opens files for others."""
    return open_by_program if os.geteuid() == 0 else open_by_walk


def open_by_program(
    path: str, uid: int, gids: tuple[int, ...], *, python: str = sys.executable, timeout_s: float = OPEN_S
) -> int:
    """For a service that is root."""
    ids = ",".join(map(str, (uid, *(gids[:MOST_GROUPS] or (NOBODY,)))))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        try:
            child = subprocess.Popen(
                [python, "-I", "-S", "-c", PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as error:
            raise ImageTrouble(
                f"{path} cannot be opened for you: {python} cannot be run ({error.strerror}); tell the "
                "administrators"
            ) from error
        theirs.close()
        try:
            # Not among the arguments, which everybody could see.
            return _handed_over(ours, ids, path, timeout_s)
        finally:
            child.kill()
            # A program that hangs in a dead file system goes when that does; nobody waits for it.
            with suppress(subprocess.TimeoutExpired):
                child.wait(1.0)


def _handed_over(line: socket.socket, ids: str, path: str, timeout_s: float) -> int:
    line.settimeout(timeout_s)
    try:
        line.sendall(ids.encode() + b" " + os.fsencode(path))
        answer, files, _, _ = socket.recv_fds(line, 64, 1)
    except TimeoutError as error:
        raise ImageTrouble(
            f"{path} could not be opened within {timeout_s:g} s: does its file system work?"
        ) from error
    except OSError as error:
        raise ImageTrouble(f"{path} could not be opened for you: {error.strerror}; try again") from error
    if files:
        return files[0]
    if answer.isdigit():
        raise refusal(path, int(answer))
    raise ImageTrouble(f"{path} could not be opened for you: the program that does so died; try again")


def open_by_walk(path: str, uid: int, gids: tuple[int, ...]) -> int:
    """For a service that is not root: by the modes of what lies on the way, seen as it is passed.

    Access lists are not read, so they let nobody through whom the modes do not; a file system
    whose lists shut somebody out whom its modes let in belongs on a service that is root.
    """
    try:
        # What symbolic links say now; on the way itself none is followed.
        real = os.path.realpath(path, strict=True)
        if uid == os.geteuid():
            return os.open(real, FLAGS)
        folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *folders, name = real.split("/")[1:]
            for each in folders:
                _check(path, os.fstat(folder), 0o1, uid, gids)
                inner = os.open(
                    each, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
                os.close(folder)
                folder = inner
            _check(path, os.fstat(folder), 0o1, uid, gids)
            file = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise refusal(path, error.errno or 5) from error
    try:
        _check(path, os.fstat(file), 0o4, uid, gids)
    except BaseException:
        os.close(file)
        raise
    return file


def _check(path: str, found: os.stat_result, wanted: int, uid: int, gids: tuple[int, ...]) -> None:
    """The kernel's own rule: the first that fits of owner, group and others decides."""
    if uid == 0:
        return
    shift = 6 if found.st_uid == uid else 3 if found.st_gid in gids else 0
    if not stat.S_IMODE(found.st_mode) >> shift & wanted:
        raise refusal(path, 13)


def refusal(path: str, number: int) -> ImageTrouble:
    return ImageTrouble(
        f"you cannot read the image {path} on the head node: {os.strerror(number)}; correct the path or its "
        "permissions, or write the address of a web server"
    )
