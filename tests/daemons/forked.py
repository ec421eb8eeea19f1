"""Services that are forked from a process that has imported everything, as tests handle other processes."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
from functools import cache
from pathlib import Path

from tests.daemons.kill.victim import Preloaded


class ForkedService:
    """What `subprocess.Popen` would say of it."""

    def __init__(self, log: Path, *options: str) -> None:
        # Whoever waits for it looks there at once.
        log.touch()
        self.pid = preloaded().ask(f"start {log} {' '.join(options)}")
        self._ended = os.pidfd_open(self.pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and select.select([self._ended], [], [], 0)[0]:
            self._reap()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("outriderd", timeout or 0)
            self._reap()
        assert self._code is not None
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        self._code = preloaded().ask(f"reap {self.pid}")
        os.close(self._ended)


@cache
def preloaded() -> Preloaded:
    """One for all tests of this process."""
    found = Preloaded()
    atexit.register(found.close)
    return found
