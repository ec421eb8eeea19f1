"""A client of QEMU's monitor protocol on a unix socket: one command at a time, with an end to every wait.

QEMU talks to one client at a time; the next one waits for its greeting. Whoever holds the
machine's lock is the only one that asks, so a greeting that does not come means that QEMU hangs.
"""

from __future__ import annotations

import json
import os
import socket

from cachemgr.base.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from cachemgr.base.clock import Clock

    Answer = dict[str, Any]

MOST_LINE_BYTES = 4 << 20
MOST_EVENTS = 1000
CHUNK_BYTES = 1 << 16
ANSWER_S = 60.0
PAUSE_S = 0.005


class QemuRefused(CacheError):
    """QEMU refused a command."""


class QemuGone(CacheError):
    """QEMU does not answer: it has ended, or hangs."""


class QemuMonitor:
    """One connection. Everything that it waits for ends after `answer_s` seconds."""

    def __init__(self, folder: str, name: str, clock: Clock, *, answer_s: float = ANSWER_S) -> None:
        self._clock = clock
        self._answer_s = answer_s
        self._rest = b""
        self.events: list[Answer] = []
        self._socket = connected(folder, name, answer_s)
        try:
            self._next(clock.monotonic_s() + answer_s)  # the greeting
            self.command("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> QemuMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def command(
        self, command: str, arguments: Mapping[str, object] | None = None, fd: int | None = None
    ) -> Any:
        """Carry out one command; a descriptor goes along with it."""
        message: dict[str, object] = {"execute": command}
        if arguments:
            message["arguments"] = arguments
        data = json.dumps(message).encode() + b"\n"
        until_s = self._clock.monotonic_s() + self._answer_s
        try:
            if fd is None:
                self._socket.sendall(data)
            elif socket.send_fds(self._socket, [data], [fd]) != len(data):
                raise QemuGone(f"QEMU did not take {command}")
        except OSError as error:
            raise QemuGone(f"QEMU did not take {command}: {error}") from error
        while True:
            answer = self._next(until_s)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise QemuRefused(f"QEMU refused {command}: {answer['error'].get('desc', 'no reason')}")
            self._note(answer)

    def wait_for(self, names: Collection[str], wait_s: float) -> Answer | None:
        """The first event of these names, taken out; None after so many seconds."""
        until_s = self._clock.monotonic_s() + wait_s
        while True:
            for number, event in enumerate(self.events):
                if event["event"] in names:
                    return self.events.pop(number)
            if self._clock.monotonic_s() >= until_s:
                return None
            try:
                self._note(self._next(until_s))
            except QemuSilent:
                return None

    def status(self) -> str:
        """QEMU's word for what the guest does: running, paused, prelaunch, inmigrate, …"""
        return str(self.command("query-status")["status"])

    def migration(self) -> Answer:
        found: Answer = self.command("query-migrate")
        return found

    def wait_for_migration(self, ends: Collection[str | None], wait_s: float) -> Answer:
        """Ask until a migration has one of these states; the last answer after so many seconds."""
        until_s = self._clock.monotonic_s() + wait_s
        while True:
            found = self.migration()
            if found.get("status") in ends or self._clock.monotonic_s() >= until_s:
                return found
            self._clock.sleep(PAUSE_S)

    def _note(self, message: Answer) -> None:
        if "event" in message:
            self.events.append(message)
            del self.events[:-MOST_EVENTS]

    def _next(self, until_s: float) -> Answer:
        while b"\n" not in self._rest:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise QemuSilent("QEMU does not answer: it hangs, or somebody else is talking to it")
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except socket.timeout:
                continue
            except OSError as error:
                raise QemuGone(f"QEMU's monitor failed: {error}") from error
            if not data:
                raise QemuGone("QEMU has ended")
            self._rest += data
            if len(self._rest) > MOST_LINE_BYTES:
                raise QemuGone("QEMU's monitor says too much at once")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError as error:
            raise QemuGone(f"QEMU's monitor does not speak JSON: {line[:80]!r}") from error
        if not isinstance(found, dict):
            raise QemuGone(f"QEMU's monitor does not speak as expected: {line[:80]!r}")
        return found


class QemuSilent(QemuGone):
    """QEMU does not answer in time."""


def connected(folder: str, name: str, wait_s: float) -> socket.socket:
    """A connection to a socket in a folder, however long the folder's path is: a name may have 107 bytes."""
    folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    found.settimeout(wait_s)
    try:
        found.connect(f"/proc/self/fd/{folder_fd}/{name}")
    except OSError as error:
        found.close()
        raise QemuGone(f"nobody listens on {folder}/{name}: {error}") from error
    finally:
        os.close(folder_fd)
    return found


def listening(folder: str, name: str) -> socket.socket:
    """A socket in a folder on which QEMU will listen, there before QEMU is."""
    folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path = f"/proc/self/fd/{folder_fd}/{name}"
        if os.path.lexists(path):
            os.unlink(path)
        found.bind(path)
        os.chmod(path, 0o600)
        found.listen(8)
    except BaseException:
        found.close()
        raise
    finally:
        os.close(folder_fd)
    return found
