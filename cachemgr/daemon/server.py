"""The socket: connections, lines, limits. What a request means is decided elsewhere.

One thread a connection, since a request may wait for a disk or a transfer; their number is
bounded in total and per user, with places kept for root and the service, so that no user
can shut the others or a prolog out.
"""

from __future__ import annotations

import array
import os
import select
import socket
import threading
import traceback
from collections import Counter
from contextlib import suppress

from cachemgr.daemon.peer import caller_of
from cachemgr.daemon.requests import MOST_BYTES, answer, parse
from cachemgr.errors import BadRequest, Busy, CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.clock import Clock
    from cachemgr.daemon.log import Log
    from cachemgr.daemon.peer import Caller
    from cachemgr.daemon.requests import Request

    Handler = Callable[["Caller", "Request", "Line"], dict[str, object]]

MOST_CONNECTIONS = 128
MOST_OF_A_USER = 24
KEPT_FOR_PRIVILEGED = 64
REQUEST_S = 10.0
IDLE_S = 300.0
ANSWER_S = 10.0
MOST_DESCRIPTORS = 1
RECEIVED_BYTES = 16 << 10
BACKLOG = 512


class Gone(Exception):
    """The other side has closed the connection, or is too slow to be waited for."""


class Line:
    """One connection: requests come in, answers go out, each as one line."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._rest = b""
        self._descriptors: list[int] = []

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next line with the descriptors that came along; None at the end.

        Who has begun a line has a bounded time to end it.
        """
        until_s: float | None = self._clock.monotonic_s() + REQUEST_S if self._rest else None
        while b"\n" not in self._rest:
            if len(self._rest) > MOST_BYTES:
                raise BadRequest(f"a request has at most {MOST_BYTES} bytes")
            left_s = IDLE_S if until_s is None else until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise BadRequest(f"the request was not complete within {REQUEST_S:g} s")
            try:
                data = self._receive_some(left_s)
            except socket.timeout:
                if until_s is None:
                    return None
                continue
            if not data:
                return None
            if until_s is None:
                until_s = self._clock.monotonic_s() + REQUEST_S
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > MOST_BYTES:
            raise BadRequest(f"a request has at most {MOST_BYTES} bytes")
        descriptors, self._descriptors = self._descriptors, []
        return line, descriptors

    def send(self, fields: dict[str, object]) -> None:
        self._connection.settimeout(ANSWER_S)
        try:
            self._connection.sendall(answer(fields))
        except OSError as error:
            raise Gone from error

    def progress(self, fields: dict[str, object]) -> None:
        """Tell how far it is; `Gone` if nobody listens any more."""
        self.send({"progress": fields})
        poll = select.poll()
        poll.register(self._connection, select.POLLIN | getattr(select, "POLLRDHUP", 0))
        for _, events in poll.poll(0):
            if events & ~select.POLLIN:
                raise Gone

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        self._connection.close()

    def _receive_some(self, timeout_s: float) -> bytes:
        self._connection.settimeout(timeout_s)
        room = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
        data, controls, flags, _ = self._connection.recvmsg(RECEIVED_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in controls:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._descriptors += found
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > MOST_DESCRIPTORS:
            raise BadRequest(f"a request comes with at most {MOST_DESCRIPTORS} open file")
        return data


class Server:
    """Accepts connections and has each request handled; one of them cannot disturb another."""

    def __init__(
        self, listener: socket.socket, handle: Handler, *, service_uid: int, clock: Clock, log: Log
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._service_uid = service_uid
        self._clock = clock
        self._log = log
        self._guard = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        self._of_user: Counter[int] = Counter()
        self._threads: set[threading.Thread] = set()
        self._is_stopping = False
        self._woken, self._waker = os.pipe()
        self._acceptor = threading.Thread(target=self._accept, name="accept", daemon=True)

    def start(self) -> None:
        self._acceptor.start()

    def connections(self) -> int:
        return len(self._open)

    def stop(self, timeout_s: float) -> None:
        """Accept nothing more and end what is open; requests under way may finish their answer."""
        with self._guard:
            self._is_stopping = True
            waiting = list(self._open.values())
            threads = list(self._threads)
        # Not by shutting the listener down: it may be systemd's, who listens on.
        os.write(self._waker, b"x")
        for connection in waiting:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        until_s = self._clock.monotonic_s() + timeout_s
        for thread in [self._acceptor, *threads]:
            thread.join(max(0.0, until_s - self._clock.monotonic_s()))
        self._listener.close()
        if not self._acceptor.is_alive():
            os.close(self._woken)
            os.close(self._waker)

    def _accept(self) -> None:
        self._listener.setblocking(False)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while not self._is_stopping:
            poll.poll()
            self._accept_one()

    def _accept_one(self) -> None:
        while not self._is_stopping:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Too many open files, for instance: what is open will end some time.
                self._log.warning("cannot accept a connection", reason=error)
                self._clock.sleep(0.1)
                continue
            try:
                self._admit(connection)
            except OSError:
                connection.close()

    def _admit(self, connection: socket.socket) -> None:
        caller = caller_of(connection, self._service_uid)
        most = MOST_CONNECTIONS + (KEPT_FOR_PRIVILEGED if caller.is_privileged else 0)
        with self._guard:
            is_too_many = len(self._open) >= most or (
                not caller.is_privileged and self._of_user[caller.uid] >= MOST_OF_A_USER
            )
            if self._is_stopping:
                connection.close()
                return
            if not is_too_many:
                thread = threading.Thread(
                    target=self._serve, args=(connection, caller), name=f"pid {caller.pid}", daemon=True
                )
                # Before it can be asked how many there are, it is one of them.
                self._open[id(connection)] = connection
                self._of_user[caller.uid] += 1
                self._threads.add(thread)
                if self._is_started(thread):
                    return
                self._drop(connection, caller, thread)
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(answer(refusal(Busy("the daemon has too many connections: try again"))))
        connection.close()

    def _is_started(self, thread: threading.Thread) -> bool:
        """Whether the system had room for one more. Its end waits for the lock that is held here."""
        try:
            thread.start()
        except RuntimeError as error:
            self._log.warning("cannot serve a connection", reason=error)
            return False
        return True

    def _serve(self, connection: socket.socket, caller: Caller) -> None:
        line = Line(connection, self._clock)
        try:
            while self._serve_one(line, caller) and not self._is_stopping:
                pass
        except (Gone, OSError):
            self._log.debug("connection lost", pid=caller.pid, uid=caller.uid)
        finally:
            self._forget(connection, caller, threading.current_thread())
            line.close()

    def _forget(self, connection: socket.socket, caller: Caller, thread: threading.Thread) -> None:
        with self._guard:
            self._drop(connection, caller, thread)

    def _drop(self, connection: socket.socket, caller: Caller, thread: threading.Thread) -> None:
        del self._open[id(connection)]
        self._of_user[caller.uid] -= 1
        if not self._of_user[caller.uid]:
            del self._of_user[caller.uid]
        self._threads.discard(thread)

    def _serve_one(self, line: Line, caller: Caller) -> bool:
        """Whether the connection may go on."""
        try:
            received = line.receive()
        except BadRequest as error:
            # Where the next request begins is not known any more.
            line.send(refusal(error))
            return False
        if received is None:
            return False
        text, descriptors = received
        try:
            result = self._handle(caller, parse(text, descriptors), line)
        except CacheError as error:
            line.send(refusal(error))
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost loop: one request must not end the rest
            self._log.trace("request failed", traceback.format_exc())
            line.send(refusal(CacheError(f"the daemon failed ({type(error).__name__}): look at its log")))
        else:
            line.send({"ok": True, "result": result})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True


def refusal(error: CacheError) -> dict[str, object]:
    return {"ok": False, "error": error.code, "exit_code": error.exit_code, "message": str(error)}
