"""A place where connections come in: accepted, counted, served. What requests mean is decided elsewhere.

One thread a connection, since a request may wait for a disk or a transfer; their number is
bounded in total and for each guest. Who is a guest, and how it gets in, is its `Entrance`'s matter.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, CacheError, InUse
from cachemgr.base.shares import Shares
from cachemgr.daemon.network.line import Gone, LineConnection
from cachemgr.daemon.network.peer import caller_of
from cachemgr.daemon.transfers.places import refusal as refused_place
from cachemgr.daemon.verbs.requests import answer, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Protocol

    from cachemgr.base.clock import Clock
    from cachemgr.daemon.log import DaemonLog
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.verbs.requests import VerbRequest

    Handler = Callable[["NodeCaller", "VerbRequest"], dict[str, object]]

    class Entrance(Protocol):
        """How connections of one kind get in."""

        places: Shares

        def guest(self, connection: socket.socket) -> ConnectionGuest:
            """Under whose name it is counted; OSError if it is not let in. Does not wait."""

        def let_in(
            self, connection: socket.socket, guest: ConnectionGuest
        ) -> tuple[LineConnection, NodeCaller]:
            """The conversation, and who speaks; may wait. OSError, `Gone` or `CacheError`: not let in."""

        def turn_away(self, connection: socket.socket, guest: ConnectionGuest) -> None:
            """Say why there is no room. Does not wait."""


# One user's connections take at most a quarter of what is left for others.
PORTION = 4
BACKLOG = 512


@dataclass(frozen=True)
class ConnectionGuest:
    """Whoever has connected: under which name it is counted, and whether kept places are for it."""

    key: Hashable
    is_privileged: bool
    caller: NodeCaller | None = None


class UserEntrance:
    """Users of this machine, whom the kernel names. Places are kept for root and the service, so that
    no user can shut the others or a prolog out."""

    def __init__(self, service_uid: int, clock: Clock, *, most: int, kept: int, most_of_user: int) -> None:
        self._service_uid = service_uid
        self._clock = clock
        self.places = Shares(
            "connections", most=most, most_of_one=most_of_user, kept=min(kept, most - 1), portion=PORTION
        )

    def guest(self, connection: socket.socket) -> ConnectionGuest:
        caller = caller_of(connection, self._service_uid)
        return ConnectionGuest(caller.uid, caller.is_privileged, caller)

    def let_in(self, connection: socket.socket, guest: ConnectionGuest) -> tuple[LineConnection, NodeCaller]:
        assert guest.caller is not None
        return LineConnection(connection, self._clock), guest.caller

    def turn_away(self, connection: socket.socket, guest: ConnectionGuest) -> None:
        if guest.caller is None or guest.is_privileged:
            reason: CacheError = InUse("the daemon has too many connections: try again")
        else:
            reason = refused_place(
                self.places, guest.caller.uid, option="user_connections", remedy="close some of them"
            )
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(answer(refusal(reason)))


class Server:
    """Accepts connections and has each request handled; one of them cannot disturb another."""

    def __init__(
        self, listener: socket.socket, handle: Handler, entrance: Entrance, *, clock: Clock, log: DaemonLog
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._entrance = entrance
        self.places = entrance.places
        self._clock = clock
        self._log = log
        self._guard = threading.Lock()
        self._open: dict[int, socket.socket] = {}
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
        guest = self._entrance.guest(connection)
        with self._guard:
            if self._is_stopping:
                connection.close()
                return
            if self.places.take(guest.key, is_privileged=guest.is_privileged):
                thread = threading.Thread(
                    target=self._serve, args=(connection, guest), name=f"guest {guest.key}", daemon=True
                )
                # Before it can be asked how many there are, it is one of them.
                self._open[id(connection)] = connection
                self._threads.add(thread)
                if self._is_started(thread):
                    return
                self._drop(connection, guest, thread)
        self._entrance.turn_away(connection, guest)
        connection.close()

    def _is_started(self, thread: threading.Thread) -> bool:
        """Whether the system had room for one more. Its end waits for the lock that is held here."""
        try:
            thread.start()
        except RuntimeError as error:
            self._log.warning("cannot serve a connection", reason=error)
            return False
        return True

    def _serve(self, connection: socket.socket, guest: ConnectionGuest) -> None:
        line: LineConnection | None = None
        try:
            line, caller = self._entrance.let_in(connection, guest)
            while self._serve_one(line, caller) and not self._is_stopping:
                pass
        except (Gone, OSError, CacheError) as error:
            culprit = None if guest.is_privileged else guest.key
            self._log.debug("connection lost", culprit=culprit, guest=guest.key, reason=error)
        finally:
            with self._guard:
                self._drop(connection, guest, threading.current_thread())
            if line is not None:
                line.close()
            connection.close()

    def _drop(self, connection: socket.socket, guest: ConnectionGuest, thread: threading.Thread) -> None:
        del self._open[id(connection)]
        self.places.give(guest.key)
        self._threads.discard(thread)

    def _serve_one(self, line: LineConnection, caller: NodeCaller) -> bool:
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
            result = self._handle(caller, parse(text, descriptors, line))
        except CacheError as error:
            line.send(refusal(error))
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost loop: one request must not end the rest
            self._log.trace("request failed", traceback.format_exc(), culprit=caller.culprit)
            line.send(refusal(CacheError(f"the daemon failed ({type(error).__name__}): look at its log")))
        else:
            line.send({"ok": True, "result": result})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True


def refusal(error: CacheError) -> dict[str, object]:
    return {"ok": False, "error": error.code, "exit_code": error.exit_code, "message": str(error)}
