"""Asking the daemon: for the command, and for every program that may import a library.

Hooks use `hook`, which starts faster and knows a few verbs.
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import CacheError, NoDaemon, by_code
from cachemgr.protocol import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from cachemgr.base.clock import Clock

SOCKET = "/run/outrider/cachemgr.sock"
CONNECT_S = 2.0
ANSWER_S = 60.0
# A daemon that is waited for says something every second.
PROGRESS_S = 30.0
MOST_ANSWER_BYTES = 256 << 20
RECEIVED_BYTES = 256 << 10
AGAIN = "look at its log, and ask again"


class DaemonClient:
    """One connection to a daemon: ask as often as needed, one thing at a time."""

    def __init__(
        self, path: str = SOCKET, *, connect_s: float = CONNECT_S, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._path = path
        self._rest = b""
        self._socket = self._connected(path, connect_s)

    @property
    def is_lively(self) -> bool:
        """Whether the other side has, as far as can be known without asking, not hung up since the
        last answer."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not self._rest and not poll.poll(0)

    def _connected(self, path: str, connect_s: float) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With a timeout of Python's own, a full queue of a busy daemon would be an error at once.
        limit = struct.pack("ll", int(connect_s), int(connect_s % 1 * 1e6))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            made.connect(path)
        except OSError as error:
            made.close()
            reason = error.strerror or str(error)
            raise NoDaemon(f"no daemon answers at {path} ({reason}): start cachemgr.service") from error
        return made

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(
        self,
        verb: str,
        fields: Mapping[str, object] | None = None,
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        descriptors: Sequence[int] = (),
        timeout_s: float = ANSWER_S,
    ) -> dict[str, Any]:
        """The result, or the error that the daemon reports, as if it had happened here.

        With `on_progress` the answer is waited for as long as the daemon tells of progress.
        """
        given = {name: value for name, value in (fields or {}).items() if value is not None}
        if on_progress is not None:
            given["wait"] = True
        line = json.dumps({"v": VERSION, "do": verb, **given}).encode() + b"\n"
        self._send(line, descriptors)
        while True:
            answer = self._receive(timeout_s if on_progress is None else PROGRESS_S)
            progress = answer.get("progress")
            if isinstance(progress, dict):
                if on_progress is not None:
                    on_progress(progress)
                continue
            if answer.get("ok") is True and isinstance(answer.get("result"), dict):
                found: dict[str, Any] = answer["result"]
                return found
            if answer.get("ok") is False:
                raise by_code(str(answer.get("error")), str(answer.get("message")))
            raise NoDaemon(f"what answers at {self._path} is not this daemon")

    def _send(self, line: bytes, descriptors: Sequence[int]) -> None:
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        self._socket.settimeout(ANSWER_S)
        try:
            sent = self._socket.sendmsg([line], rights)
            self._socket.sendall(line[sent:])
        except OSError:
            """The daemon may have said why before it closed: that is read next."""

    def _opened(self, line: bytes) -> bytes:
        """What a line that has arrived says."""
        return line

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        until_s = self._clock.monotonic_s() + timeout_s
        pieces = [self._rest]
        size = len(self._rest)
        while b"\n" not in pieces[-1]:
            if size > MOST_ANSWER_BYTES:
                raise NoDaemon(f"what answers at {self._path} does not come to an end")
            self._socket.settimeout(max(0.001, until_s - self._clock.monotonic_s()))
            try:
                data = self._socket.recv(RECEIVED_BYTES)
            except socket.timeout as error:
                raise NoDaemon(f"the daemon at {self._path} did not answer in {timeout_s:g} s") from error
            except OSError as error:
                raise NoDaemon(f"the daemon at {self._path} hung up: {error.strerror}; {AGAIN}") from error
            if not data:
                raise NoDaemon(f"the daemon at {self._path} hung up: {AGAIN}")
            pieces.append(data)
            size += len(data)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        try:
            answer = json.loads(self._opened(line))
        except ValueError as error:
            raise NoDaemon(f"what answers at {self._path} is not this daemon") from error
        if not isinstance(answer, dict):
            raise CacheError(f"the daemon at {self._path} answered with {type(answer).__name__}")
        return answer
