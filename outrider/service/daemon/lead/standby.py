"""A head that stands by: it takes the lead when nobody has it, and until then tells users who does.

It listens where it would as the leader, so that whoever asks it is sent on instead of left to wonder.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from cachemgr.base.clock import Clock
from cachemgr.daemon.notify import Supervisor, watchdog_s
from outrider.service.daemon.errors import SocketError
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.sockets import Sockets
from outrider.service.daemon.threads.web_thread import WebThread
from outrider.service.web.gate import Receive, Scope, Send
from outrider.store.errors import StoreError, StoreMissing, TooNew
from outrider.store.postgresql.leadership import Leader, Leadership
from outrider_client.doors import LEADER_HEADER

LOOK_S = 0.5
STOP_WEB_S = 2.0
NOBODY = "no head leads now"


class StandbyApp:
    """Answers whatever is asked with who leads. It knows no user, and tells nothing else."""

    def __init__(self, head: str) -> None:
        self._head = head
        self.leader: Leader | None = None
        self.trouble = ""

    @property
    def words(self) -> str:
        """What this head does, in a line."""
        if self.trouble:
            return f"{self._head} stands by and cannot ask the database: {self.trouble}"
        if self.leader is None:
            return f"{self._head} stands by, and {NOBODY}"
        where = f" at {self.leader.address}" if self.leader.address else ""
        return f"{self._head} stands by, and {self.leader.head} leads{where}: ask there"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        alive = scope["path"] == "/healthz"
        answer = {"code": "busy", "message": self.words, "problems": []}
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
            (b"retry-after", b"1"),
        ]
        if self.leader is not None and self.leader.address:
            headers.append((LEADER_HEADER.lower().encode(), self.leader.address.encode()))
        body = json.dumps({"status": self.words} if alive else answer).encode()
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200 if alive else 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class Standby:
    """One wait for the lead."""

    def __init__(
        self,
        leadership: Leadership,
        head: str,
        sockets: Sockets,
        *,
        clock: Clock,
        log: TracingLog,
        environment: Mapping[str, str],
    ) -> None:
        self._leadership = leadership
        self._sockets = sockets
        self._clock = clock
        self._log = log
        self._supervisor = Supervisor(environment)
        self._every_s = min(LOOK_S, watchdog_s(environment, 0) or LOOK_S)
        self._app = StandbyApp(head)
        self._said = ""

    def wait(self, has_to_stop: threading.Event) -> bool:
        """Whether this head leads; else it was told to stop. Raises a StoreError that time does not mend."""
        if self._try():
            return True
        web = WebThread(self._app, self._sockets.listen(), self._log)
        if not web.start():
            raise SocketError("the API's server did not start; see the log")
        self._supervisor.tell("READY=1")
        try:
            while not has_to_stop.wait(self._every_s):
                self._supervisor.tell("WATCHDOG=1")
                if self._try():
                    return True
            return False
        finally:
            web.stop(STOP_WEB_S)
            self._sockets.close()

    def _try(self) -> bool:
        try:
            leads = self._leadership.try_take(self._clock.now_s())
            self._app.leader, self._app.trouble = self._leadership.leader(), ""
        except (StoreMissing, TooNew):
            raise
        except StoreError as error:
            leads, self._app.trouble = False, str(error)
        words = "leads" if leads else self._app.words
        if words != self._said:
            self._said = words
            self._log.info("head leads" if leads else "head stands by", words=words)
            self._supervisor.tell(f"STATUS={words[:300]}")
        return leads
