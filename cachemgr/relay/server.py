"""The relay: a small HTTP/1.1 server that passes images on to other nodes.

`GET` and `HEAD /v1/images/sha256:<hex>`, with ranges; `X-Outrider-Have` in each answer says how
much is there. An image that is still arriving is sent as it arrives. One thread a connection:
there are few, and they sleep in the kernel.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from cachemgr.relay.connections import RelayConnections, RelaySettings
from cachemgr.relay.conversation import Conversation, RelayContext, head_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.ports import Holdings


class RelayServer:
    """A running relay; it listens as soon as it exists. `log` is given one line a request, or `log_of` the
    line and, if it has shown no ticket, the host that is to blame for it."""

    def __init__(
        self,
        holdings: Holdings,
        settings: RelaySettings,
        clock: Clock,
        limit: RateLimit,
        log: Callable[[str], None],
        log_of: Callable[[str, str], None] | None = None,
        talk: Callable[[RelayContext, socket.socket, str], Conversation] = Conversation,
    ) -> None:
        self._talk = talk
        self.places = RelayConnections(settings)
        self._log = log_of or (lambda line, culprit: log(line))
        self._site = RelayContext(
            holdings, settings, clock, limit, self._log, lambda: self._is_closed, self.places
        )
        # Those whose threads have yet to hear that they have to go are bounded, too.
        self._most_open = 2 * settings.most_connections + 2 * settings.most_strangers
        self._clock = clock
        self._lock = threading.Lock()
        self._is_closed = False
        self._open: dict[socket.socket, threading.Thread] = {}
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._listener = socket.create_server((settings.host, settings.port), family=family, backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._acceptor = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._acceptor.start()

    @property
    def connections(self) -> int:
        return len(self._open)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening, break what is being sent, and wait for the threads."""
        with self._lock:
            self._is_closed = True
            workers = list(self._open.items())
        # A thread that waits in accept() is woken by this, and not by close().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for sock, _ in workers:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        until_s = self._clock.monotonic_s() + timeout_s
        for thread in (self._acceptor, *(thread for _, thread in workers)):
            thread.join(max(0.0, until_s - self._clock.monotonic_s()))
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                sock, address = self._listener.accept()
            except OSError:
                if not self._is_closed:
                    # Out of descriptors, usually: they come back when streams end.
                    self._clock.sleep(0.1)
                continue
            self._admit(sock, str(address[0]))

    def _admit(self, sock: socket.socket, host: str) -> None:
        thread = threading.Thread(target=self._serve, args=(sock, host), name=f"relay {host}", daemon=True)
        with self._lock:
            is_full = len(self._open) >= self._most_open or self._is_closed
            if not is_full and self.places.strangers.enter(sock, host):
                if self._is_started(thread):
                    self._open[sock] = thread
                    return
                self.places.leave(sock)
        with contextlib.suppress(OSError):
            # Nobody is waited for here: others wait to be accepted.
            sock.setblocking(False)
            sock.send(head_of(503, {"Content-Length": "0", "Retry-After": "1", "Connection": "close"}))
        sock.close()
        self._log(f"relay refused node={host} reason=connections", host)

    def _is_started(self, thread: threading.Thread) -> bool:
        """Whether the system had room for one more thread. It waits for the lock that is held here."""
        try:
            thread.start()
        except RuntimeError:
            return False
        return True

    def _serve(self, sock: socket.socket, host: str) -> None:
        try:
            self._talk(self._site, sock, host).carry_on()
        finally:
            with self._lock:
                del self._open[sock]
            self.places.leave(sock)
            sock.close()
