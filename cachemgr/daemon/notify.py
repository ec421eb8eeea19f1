"""Talking to systemd: readiness, the watchdog, sockets handed over. All of it optional."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_DESCRIPTOR = 3


class Supervisor:
    """Whoever started the daemon and wants to hear of it; nobody, if the environment names none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        # A leading @ means Linux' abstract sockets, whose name begins with a zero byte.
        self._address = "\0" + path[1:] if path.startswith("@") else path

    def tell(self, state: str) -> None:
        if not self._address:
            return
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line,
        ):
            line.connect(self._address)
            line.sendall(state.encode())


def watchdog_s(environment: Mapping[str, str], configured_s: int) -> float | None:
    """How often to say that all is well: half of what systemd waits."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if text.isdecimal() and int(text) > 0 and pid == str(os.getpid()):
        return int(text) / 2e6
    return configured_s / 2 if configured_s else None


def inherited_listener(environment: Mapping[str, str]) -> socket.socket | None:
    """The listening socket that systemd opened for this process, if it did."""
    is_for_us = environment.get("LISTEN_PID") == str(os.getpid())
    if not is_for_us or environment.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(FIRST_DESCRIPTOR, False)
    found = socket.socket(fileno=FIRST_DESCRIPTOR)
    found.setblocking(True)
    return found
