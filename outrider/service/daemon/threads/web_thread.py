"""The API's server in a thread of its own, beside the main thread that signals come to."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Sequence

from outrider.service.daemon.log import TracingLog
from outrider.service.web.connections.server import make_server
from outrider.service.web.gate import App

START_S = 10.0
LOOK_S = 0.02


class WebThread:
    """uvicorn, from the first request to the last."""

    def __init__(self, app: App, sockets: Sequence[socket.socket], log: TracingLog) -> None:
        self._server = make_server(app)
        self._sockets = list(sockets)
        self._log = log
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)

    def start(self) -> bool:
        """Begin to answer; whether it does."""
        self._thread.start()
        waited_s = 0.0
        while not self._server.started and self._thread.is_alive() and waited_s < START_S:
            self._thread.join(LOOK_S)
            waited_s += LOOK_S
        return self._server.started

    def stop(self, within_s: float) -> bool:
        """Take no connection on any more, and let answers under way end. Whether they did in time."""
        self._server.should_exit = True
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._server.run(sockets=self._sockets)
        except Exception:  # noqa: BLE001 - the thread's outermost loop; the main thread sees it end
            self._log.trace("the API's server failed", traceback.format_exc())
        except SystemExit:
            self._log.error("the API's server did not start")
