"""Commands that a host's first process starts for whoever asks it over a socket.

Whoever enters a host's namespaces from outside runs four programs before the one that is wanted, and that
was most of what a look at a host cost. A call is a connection: it gives the descriptors of the command's
input and outputs and of what is asked for, and is told how the command has ended. Who hangs up has it killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
from contextlib import ExitStack, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cachemgr.base.clock import Clock

DESCRIPTORS = 4
STATUS = struct.Struct("i")
BACKLOG = 64
BLOCK_BYTES = 1 << 16
NOT_FOUND_STATUS = 127
IGNORED = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
"""What Python, or a first process, does not let end it."""


class NobodyThere(Exception):
    """No first process listens there."""


class CallServer:
    """The first process's side."""

    def __init__(self, listener: socket.socket, poll: select.poll) -> None:
        self._listener, self._poll = listener, poll
        self._calls: dict[int, socket.socket] = {}
        """Connections by their descriptors."""
        self._running: dict[int, int] = {}
        """What runs for which of them."""
        poll.register(listener, select.POLLIN)

    @staticmethod
    def listener(path: str) -> socket.socket:
        """Where a host is called; only root may connect there."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        found = socket.socket(socket.AF_UNIX)
        found.bind(path)
        found.listen(BACKLOG)
        return found

    def is_about(self, descriptor: int) -> bool:
        """Take what has come there, if it is one of these descriptors."""
        if descriptor == self._listener.fileno():
            call, _ = self._listener.accept()
            self._calls[call.fileno()] = call
            self._poll.register(call, select.POLLIN)
            return True
        if descriptor not in self._calls:
            return False
        given: list[int] = []
        with suppress(OSError):
            _, given, _, _ = socket.recv_fds(self._calls[descriptor], 1, DESCRIPTORS)
        for each in given:
            os.set_inheritable(each, False)
        try:
            if len(given) == DESCRIPTORS and descriptor not in self._running.values():
                self._running[self._begin(given)] = descriptor
            else:
                self._end(descriptor)
        except OSError as error:
            os.write(given[2], f"{error.filename}: {error.strerror}\n".encode())
            self._tell(descriptor, NOT_FOUND_STATUS)
        finally:
            for each in given:
                os.close(each)
        return True

    def ended(self, pid: int, status: int) -> None:
        """A child of the first process's has ended, of whomever it was."""
        descriptor = self._running.pop(pid, None)
        if descriptor is not None:
            self._tell(descriptor, os.waitstatus_to_exitcode(status))

    def _tell(self, descriptor: int, status: int) -> None:
        with suppress(OSError):
            self._calls[descriptor].send(STATUS.pack(status))
        self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        for pid, running in list(self._running.items()):
            if running == descriptor:
                del self._running[pid]
                os.kill(pid, signal.SIGKILL)
        self._poll.unregister(descriptor)
        self._calls.pop(descriptor).close()

    def _begin(self, given: Sequence[int]) -> int:
        """Not by a copy of this process, which would take longer than most commands. Raises OSError."""
        wanted = json.loads(os.pread(given[3], os.fstat(given[3]).st_size, 0))
        argv, variables = wanted["argv"], wanted["environment"]
        # A home that is not there is no reason to fail.
        with suppress(OSError):
            os.chdir(variables["HOME"])
        try:
            return os.posix_spawn(
                _found(argv[0], variables["PATH"]),
                argv,
                variables,
                file_actions=[(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(given[:3])],
                setsid=True,
                setsigdef=IGNORED,
            )
        finally:
            os.chdir("/")


def _found(program: str, path: str) -> str:
    if "/" in program:
        return program
    folders = (f"{folder}/{program}" for folder in path.split(":"))
    return next((each for each in folders if os.access(each, os.X_OK)), program)


class Call:
    """A command that was begun on a host. Use in a with statement: whoever leaves it early has it killed."""

    def __init__(
        self, door: Path, argv: Sequence[str], environment: Mapping[str, str], given: bytes = b""
    ) -> None:
        """As the host's root, in the home that the environment names. Raises NobodyThere."""
        self._argv = list(argv)
        wanted = {"argv": self._argv, "environment": dict(environment)}
        self._call = socket.socket(socket.AF_UNIX)
        self._outputs: list[int] = []
        with ExitStack() as theirs, ExitStack() as ours:
            ours.callback(self.close)
            try:
                self._call.connect(str(door))
            except (ConnectionRefusedError, FileNotFoundError) as error:
                raise NobodyThere(str(door)) from error
            descriptors = [_filled(given)]
            theirs.callback(os.close, descriptors[0])
            for _ in range(2):
                heard, told = os.pipe()
                self._outputs.append(heard)
                theirs.callback(os.close, told)
                descriptors.append(told)
            descriptors.append(_filled(json.dumps(wanted).encode()))
            theirs.callback(os.close, descriptors[-1])
            socket.send_fds(self._call, [b"!"], descriptors)
            ours.pop_all()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in self._outputs:
            os.close(each)
        self._outputs = []
        self._call.close()

    def done(self, timeout_s: float, clock: Clock) -> subprocess.CompletedProcess[bytes]:
        """How it has ended, and what it has said. Raises subprocess.TimeoutExpired."""
        until_s = clock.monotonic_s() + timeout_s
        said = {descriptor: bytearray() for descriptor in self._outputs}
        open_ = {*said, self._call.fileno()}
        status = b""
        poll = select.poll()
        for descriptor in open_:
            poll.register(descriptor, select.POLLIN)
        while open_:
            left_s = until_s - clock.monotonic_s()
            ready = poll.poll(left_s * 1000) if left_s > 0 else []
            if not ready:
                raise subprocess.TimeoutExpired(self._argv, timeout_s)
            for descriptor, _ in ready:
                block = b""
                with suppress(ConnectionError):
                    block = os.read(descriptor, BLOCK_BYTES)
                if descriptor in said:
                    said[descriptor] += block
                else:
                    status += block
                if not block:
                    poll.unregister(descriptor)
                    open_.remove(descriptor)
        output, error = (bytes(said[descriptor]) for descriptor in self._outputs)
        # Without a word the host itself has ended.
        code = STATUS.unpack(status)[0] if len(status) == STATUS.size else -signal.SIGKILL
        return subprocess.CompletedProcess(self._argv, code, output, error)


def _filled(content: bytes) -> int:
    """A file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("call")
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
