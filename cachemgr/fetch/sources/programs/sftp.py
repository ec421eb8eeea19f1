"""Images on hosts without a shell: sftp://user@host/path, in the SFTP protocol over ssh's own subsystem.

The `sftp` program can go on in the middle of a file (`get -a`) but writes to files only, which
would cost the disk a second copy. Reading needs six messages of the protocol (version 3,
draft-ietf-secsh-filexfer-02), so they are spoken here; ssh does the rest.
"""

from __future__ import annotations

import stat
import struct
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.programs.process import KILL_AFTER_S, Process, ProgramSource
from cachemgr.fetch.sources.programs.ssh import SshSettings, ssh_command

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

INIT, VERSION, OPEN, READ, FSTAT = 1, 2, 3, 5, 8
STATUS, HANDLE, DATA, ATTRIBUTES = 101, 102, 103, 105
END_OF_FILE = 1
HAS_SIZE, HAS_OWNER, HAS_MODE, HAS_TIMES = 1, 2, 4, 8
SAYS = {2: "no such file", 3: "permission denied", 4: "failure", 5: "bad message", 8: "not supported"}
FINAL = (2, 3)
# Servers answer at least 32 KiB at a time; a megabyte on the way fills a fast link.
READ_BYTES = 32_768
WINDOW = 32
MOST_MESSAGE_BYTES = 256 * 1024


def text(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


class SftpSession:
    """A conversation with an SFTP server: messages there and back."""

    def __init__(self, process: Process, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._received = bytearray()
        self._room = memoryview(bytearray(262_144))

    def send(self, kind: int, body: bytes) -> None:
        self._process.write(struct.pack(">IB", len(body) + 1, kind) + body)

    def receive(self, timeout_s: float) -> tuple[int, memoryview] | None:
        """The next message, or None if it did not come completely in time."""
        until_s = self._clock.monotonic_s() + timeout_s
        while (message := self._complete()) is None:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return None
            count = self._process.read_into(self._room, left_s)
            if count == 0:
                raise SourceFault(self._process.failure(KILL_AFTER_S))
            self._received += self._room[: count or 0]
        return message

    def expect(self, kind: int, timeout_s: float) -> memoryview:
        """The answer to a single question."""
        message = self.receive(timeout_s)
        if message is None:
            raise SourceFault(f"the SFTP server does not answer within {timeout_s:g} s")
        if message[0] == kind:
            return message[1]
        if message[0] == STATUS:
            (code,) = struct.unpack_from(">I", message[1], 4)
            raise SourceFault(f"the SFTP server says: {SAYS.get(code, code)}", is_final=code in FINAL)
        raise SourceFault(f"the SFTP server sends message {message[0]} instead of {kind}")

    def close(self) -> None:
        self._process.close()

    def _complete(self) -> tuple[int, memoryview] | None:
        if len(self._received) < 5:
            return None
        (length,) = struct.unpack_from(">I", self._received)
        if not 1 <= length <= MOST_MESSAGE_BYTES:
            raise SourceFault("the SFTP server sends a malformed message: does its shell print something?")
        if len(self._received) < 4 + length:
            return None
        kind, body = self._received[4], memoryview(bytes(self._received[5 : 4 + length]))
        del self._received[: 4 + length]
        return kind, body


class SftpSource(ProgramSource[SshSettings]):
    """A file on a host that offers SFTP."""

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> SftpStream:
        session, handle, size, changed = self._opened(timeout_s)
        try:
            self._accept(size, changed, size_bytes)
        except SourceFault:
            session.close()
            raise
        return SftpStream(session, handle, offset, size_bytes)

    def _look(self, timeout_s: float) -> tuple[int, str | None]:
        session, _, size, changed = self._opened(timeout_s)
        session.close()
        return size, changed

    def _opened(self, timeout_s: float) -> tuple[SftpSession, bytes, int, str | None]:
        """A session with the file open: its handle, size, and time of change."""
        command = [*ssh_command(self._location, self._settings, "-s", timeout_s=timeout_s), "sftp"]
        session = SftpSession(Process(command, self._settings.environment, is_fed=True), self._clock)
        try:
            session.send(INIT, struct.pack(">I", 3))
            session.expect(VERSION, timeout_s)
            path = self._location.path.encode()
            session.send(OPEN, struct.pack(">I", 0) + text(path) + struct.pack(">II", 1, 0))
            answer = session.expect(HANDLE, timeout_s)
            (length,) = struct.unpack_from(">I", answer, 4)
            handle = bytes(answer[8 : 8 + length])
            session.send(FSTAT, struct.pack(">I", 1) + text(handle))
            size, changed = _attributes(session.expect(ATTRIBUTES, timeout_s))
        except struct.error as error:
            session.close()
            raise SourceFault("the SFTP server sends a malformed message") from error
        except BaseException:
            session.close()
            raise
        return session, handle, size, changed


class SftpStream:
    """A file's bytes, asked for ahead, handed over in order."""

    def __init__(self, session: SftpSession, handle: bytes, offset: int, size_bytes: int) -> None:
        self.start_bytes = offset
        self._session = session
        self._handle = handle
        self._next_bytes = offset
        self._ask_bytes = offset
        self._size_bytes = size_bytes
        self._asked: dict[int, tuple[int, int]] = {}
        self._arrived: dict[int, memoryview] = {}
        self._number = 1

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        if self._next_bytes >= self._size_bytes:
            return 0
        until_read = self._next_bytes not in self._arrived
        while until_read:
            self._ask_ahead()
            message = self._session.receive(timeout_s)
            if message is None:
                return None
            try:
                is_over = self._take(*message)
            except struct.error as error:
                raise SourceFault("the SFTP server sends a malformed message") from error
            if is_over:
                return 0
            until_read = self._next_bytes not in self._arrived
        data = self._arrived.pop(self._next_bytes)
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._next_bytes += count
        if count < len(data):
            self._arrived[self._next_bytes] = data[count:]
        return count

    def close(self) -> None:
        self._session.close()

    def _ask_ahead(self) -> None:
        while len(self._asked) + len(self._arrived) < WINDOW and self._ask_bytes < self._size_bytes:
            length = min(READ_BYTES, self._size_bytes - self._ask_bytes)
            self._ask(self._ask_bytes, length)
            self._ask_bytes += length

    def _ask(self, offset: int, length: int) -> None:
        self._number = (self._number + 1) % (1 << 32)
        self._asked[self._number] = (offset, length)
        self._session.send(
            READ, struct.pack(">I", self._number) + text(self._handle) + struct.pack(">QI", offset, length)
        )

    def _take(self, kind: int, body: memoryview) -> bool:
        """Note an answer; True if it says that the file ends."""
        number, value = struct.unpack_from(">II", body)
        if kind not in (DATA, STATUS) or number not in self._asked:
            raise SourceFault(f"the SFTP server sends message {kind}, which nobody asked for")
        offset, length = self._asked.pop(number)
        if kind == STATUS:
            if value != END_OF_FILE:
                raise SourceFault(f"the SFTP server says: {SAYS.get(value, value)}", is_final=value in FINAL)
            return True
        data = body[8 : 8 + value]
        if not 0 < len(data) <= length or len(data) != value:
            raise SourceFault("the SFTP server sends a malformed message")
        self._arrived[offset] = data
        if value < length:
            self._ask(offset + value, length - value)
        return False


def _attributes(body: memoryview) -> tuple[int, str | None]:
    """Size and time of change of a file, the latter if the server tells it."""
    (flags,) = struct.unpack_from(">I", body, 4)
    at = 8
    if not flags & HAS_SIZE:
        raise SourceFault("the SFTP server does not tell the size of the file", is_final=True)
    (size,) = struct.unpack_from(">Q", body, at)
    at += 8 + (8 if flags & HAS_OWNER else 0) + (4 if flags & HAS_MODE else 0)
    if flags & HAS_MODE and not stat.S_ISREG(struct.unpack_from(">I", body, at - 4)[0]):
        raise SourceFault("it is not a regular file", is_final=True)
    changed = str(struct.unpack_from(">II", body, at)[1]) if flags & HAS_TIMES else None
    return int(size), changed
