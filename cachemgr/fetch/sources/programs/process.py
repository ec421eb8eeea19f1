"""A program whose output is read as it comes: bounded, with time limits, its complaints kept."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
from typing import TYPE_CHECKING, Generic, TypeVar

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Resolved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.base.clock import Clock
    from cachemgr.fetch.sources.uris import Location

Settings = TypeVar("Settings")
MOST_COMPLAINT_BYTES = 4096
# A larger pipe means fewer changes between the program and its reader.
PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
KILL_AFTER_S = 2.0


class Process:
    """A running program with pipes from, and if wanted to, it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, is_fed: bool = False
    ) -> None:
        self._name = command[0]
        try:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                bufsize=0,
            )
        except OSError as error:
            raise SourceFault(
                f"the program {self._name} cannot be started: {error.strerror}; install it on this node",
                is_final=True,
            ) from error
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._output = self._child.stdout.fileno()
        self._errors = self._child.stderr.fileno()
        self._complaint = bytearray()
        self._poll = select.poll()
        for descriptor in (self._output, self._errors):
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        # Beyond the user's allowance the pipe just stays as small as it was.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._output, F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        """Output: how many bytes; 0 at the end; None if none came in time, or only complaints."""
        try:
            return os.readv(self._output, [buffer])
        except BlockingIOError:
            pass
        ready = {descriptor for descriptor, _ in self._poll.poll(max(1, int(timeout_s * 1000)))}
        if self._errors in ready:
            self._listen()
        if self._output not in ready:
            return None
        try:
            return os.readv(self._output, [buffer])
        except BlockingIOError:
            return None

    def write(self, data: bytes) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(data)
        except OSError as error:
            raise SourceFault(self.failure(KILL_AFTER_S)) from error

    def first_line(self, timeout_s: float, clock: Clock, most_bytes: int) -> tuple[str, bytes]:
        """The first line of its output, and what came with it."""
        until_s = clock.monotonic_s() + timeout_s
        data = bytearray()
        room = memoryview(bytearray(most_bytes))
        while (end := data.find(b"\n")) < 0 and len(data) < most_bytes:
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                raise SourceFault(f"{self._name} does not answer within {timeout_s:g} s")
            count = self.read_into(room, left_s)
            if count == 0:
                raise SourceFault(self.failure(KILL_AFTER_S))
            data += room[: count or 0]
        if end < 0:
            raise SourceFault(f"{self._name} prints no line within {most_bytes} bytes", is_final=True)
        return data[:end].decode("utf-8", "replace"), bytes(data[end + 1 :])

    def failure(self, timeout_s: float) -> str:
        """Wait for the end, and say how it ended."""
        code = self.wait(timeout_s)
        text = " ".join(self._complaint.decode("utf-8", "replace").split())
        ended = "was still running" if code is None else f"ended with {code}"
        return f"{self._name} {ended}: {text or 'it said nothing'}"

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None if it still runs after this time."""
        try:
            code = self._child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._listen()
        return code

    def close(self) -> None:
        """End the program, gently first, and let go of its pipes."""
        if self._child.stdin is not None:
            # What it did not read is of no interest any more.
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        if self._child.poll() is None:
            self._child.terminate()
            if self.wait(KILL_AFTER_S) is None:
                self._child.kill()
                self._child.wait()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        """Keep the last of what it complains about."""
        for _ in range(64):
            try:
                more = os.read(self._errors, MOST_COMPLAINT_BYTES)
            except BlockingIOError:
                return
            if not more:
                # At its end it would be ready forever.
                with contextlib.suppress(KeyError):
                    self._poll.unregister(self._errors)
                return
            self._complaint += more
            del self._complaint[:-MOST_COMPLAINT_BYTES]


class ProcessStream:
    """The output of a program as the bytes of an image."""

    def __init__(self, process: Process, start_bytes: int, rest: bytes = b"") -> None:
        self.start_bytes = start_bytes
        self._process = process
        self._rest = memoryview(rest)

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        if self._rest:
            count = min(len(buffer), len(self._rest))
            buffer[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count
        return self._read_on(buffer, timeout_s)

    def _read_on(self, buffer: memoryview, timeout_s: float) -> int | None:
        count = self._process.read_into(buffer, timeout_s)
        if count == 0 and self._process.wait(KILL_AFTER_S) != 0:
            raise SourceFault(self._process.failure(KILL_AFTER_S))
        return count

    def close(self) -> None:
        self._process.close()


class ProgramSource(Generic[Settings]):
    """A file that a program reads where it lies, and of which the host tells size and time of change."""

    is_relay = False

    def __init__(
        self, location: Location, settings: Settings, clock: Clock, validator: str | None = None
    ) -> None:
        self.name = location.name
        self._location = location
        self._settings = settings
        self._clock = clock
        self._validator = validator

    def resolve(self, timeout_s: float) -> Resolved:
        size, self._validator = self._look(timeout_s)
        return Resolved(size, self._location.path.rpartition("/")[2], self._validator)

    def status(self, timeout_s: float) -> FetchStatus | None:
        return None

    def _look(self, timeout_s: float) -> tuple[int, str | None]:
        raise NotImplementedError

    def _accept(self, size: int, changed: str | None, size_bytes: int) -> None:
        """Refuse a file that is another by now."""
        if size != size_bytes or (self._validator is not None and changed != self._validator):
            words = f"the file has changed: {size} bytes instead of {size_bytes}, of time {changed}"
            raise SourceFault(words, is_final=True)
        self._validator = changed


def answer_of(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    clock: Clock,
    most_bytes: int = 65_536,
) -> str:
    """What a short program prints, or a fault that quotes its complaint."""
    until_s = clock.monotonic_s() + timeout_s
    answer = bytearray()
    room = memoryview(bytearray(4096))
    process = Process(command, environment)
    try:
        while (left_s := until_s - clock.monotonic_s()) > 0 and len(answer) <= most_bytes:
            count = process.read_into(room, left_s)
            if count == 0:
                if process.wait(left_s) != 0:
                    raise SourceFault(process.failure(KILL_AFTER_S))
                return answer.decode("utf-8", "replace")
            answer += room[: count or 0]
    finally:
        process.close()
    said = (
        f"prints more than {most_bytes} bytes"
        if len(answer) > most_bytes
        else f"takes longer than {timeout_s:g} s"
    )
    raise SourceFault(f"{command[0]} {said}")
