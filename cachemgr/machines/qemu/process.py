"""QEMU as a process: begun so that no batch system's signal ends it, and found by a lock that it holds.

The lock is an flock on a file of the machine's folder. QEMU inherits the descriptor, so the
kernel keeps the lock exactly as long as QEMU lives, whoever began it and whatever became of
that process. A file with a number in it would outlive QEMU, and the number would be another's.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from cachemgr.base.errors import CacheError, InUse, Unsuitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cachemgr.base.clock import Clock

LOCK, BUSY, LOG = "lock", "busy", "qemu.log"
PAUSE_S = 0.005
BUSY_S = 120.0
# A batch system sends TERM to every process of a job before anything is saved, and users have USR1 and USR2
# sent as warnings. Ignoring is not enough: QEMU installs handlers of its own. XFSZ would end it where a
# limit on files is to be an error that the guest sees.
BLOCKED = (
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGXFSZ,
)
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


@dataclass(frozen=True)
class QemuStart:
    """How QEMU is begun: its command line, and what it inherits by number."""

    argv: Sequence[str]
    folder: str
    fds: Sequence[int] = field(default_factory=tuple)
    most_file_bytes: int | None = None
    """No file that it writes grows beyond this."""


class HeldLock:
    """An flock that this process holds, until it is closed and no child has it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def try_lock(path: str) -> HeldLock | None:
    """The lock, made if it is missing; None while somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return HeldLock(fd)


@contextmanager
def alone(folder: str, clock: Clock, wait_s: float = BUSY_S) -> Iterator[None]:
    """The right to change this machine: one process has it at a time, until it ends."""
    until_s = clock.monotonic_s() + wait_s
    while True:
        held = try_lock(f"{folder}/{BUSY}")
        if held is not None:
            break
        if clock.monotonic_s() >= until_s:
            raise InUse(f"another process is working on the machine in {folder}: try again")
        clock.sleep(PAUSE_S)
    try:
        yield
    finally:
        held.close()


def is_alive(folder: str) -> bool:
    """Whether QEMU lives. Asked by whoever works on the machine alone."""
    if not os.path.lexists(f"{folder}/{LOCK}"):
        return False
    held = try_lock(f"{folder}/{LOCK}")
    if held is None:
        return True
    held.close()
    return False


def begin(start: QemuStart) -> int:
    """Begin QEMU and return its number. The machine's lock is its own from the first instant."""
    lock = try_lock(f"{start.folder}/{LOCK}")
    if lock is None:
        raise InUse(f"the machine in {start.folder} is running already")
    log_fd = os.open(
        f"{start.folder}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for fd in (*start.fds, lock.fd):
            os.set_inheritable(fd, True)
        actions = [
            (os.POSIX_SPAWN_DUP2, null_fd, 0),
            (os.POSIX_SPAWN_DUP2, log_fd, 1),
            (os.POSIX_SPAWN_DUP2, log_fd, 2),
        ]
        try:
            pid = os.posix_spawn(
                start.argv[0], list(start.argv), ENVIRONMENT, file_actions=actions, setsigmask=BLOCKED
            )
        except FileNotFoundError as error:
            raise Unsuitable(
                f"{start.argv[0]} is not installed on this node: install QEMU (Debian: qemu-system-x86)"
            ) from error
        _limit(pid, start.most_file_bytes)
        return pid
    finally:
        for fd in start.fds:
            os.set_inheritable(fd, False)
        lock.close()
        os.close(log_fd)
        os.close(null_fd)


def _limit(pid: int, most_file_bytes: int | None) -> None:
    """A dump of its memory would be the guest's memory; a file without an end would fill the node's disk."""
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if most_file_bytes is not None:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            most = most_file_bytes if hard == resource.RLIM_INFINITY else min(most_file_bytes, hard)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


def wait_for_end(folder: str, clock: Clock, wait_s: float) -> bool:
    """Whether QEMU has ended within so many seconds."""
    until_s = clock.monotonic_s() + wait_s
    while is_alive(folder):
        if clock.monotonic_s() >= until_s:
            return False
        clock.sleep(PAUSE_S)
    return True


def kill(folder: str, clock: Clock, wait_s: float) -> None:
    """End QEMU without asking it, and wait until the kernel says that it is gone."""
    for pid in holders(f"{folder}/{LOCK}"):
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                # Between finding the number and holding on to its process, it may have become another's.
                if pid in holders(f"{folder}/{LOCK}", [pid]):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)
    if not wait_for_end(folder, clock, wait_s):
        raise CacheError(
            f"QEMU of the machine in {folder} does not end, not even when it is killed: look at the node"
        )


def holders(path: str, pids: Sequence[int] | None = None) -> list[int]:
    """Processes other than this one that have this file open."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return []
    every = [int(name) for name in os.listdir("/proc") if name.isdigit()] if pids is None else list(pids)
    found = []
    for pid in sorted(every):
        if pid == os.getpid():
            continue
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    there = os.stat(f"/proc/{pid}/fd/{name}")
                    if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
                        found.append(pid)
                        break
    return found


def reap(pid: int) -> None:
    """Take note of a child that has ended, if it is one of this process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def last_words(folder: str, most: int = 300) -> str:
    """The end of what QEMU has complained of."""
    with suppress(OSError), open(f"{folder}/{LOG}", "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - most))
        return " ".join(file.read().decode(errors="replace").split())
    return ""
