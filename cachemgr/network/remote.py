"""Asking a daemon on another machine: the same requests, after proving to have the site's key.

What is said, and what it protects from, is in `cachemgr.network.channel`.
"""

from __future__ import annotations

import errno
import secrets
import socket

from cachemgr.base.errors import BadRequest, NoDaemon
from cachemgr.network import channel
from cachemgr.network.client import AGAIN, DaemonClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.clock import Clock

CONNECT_S = 5.0
# How long what was sent may remain without the other kernel's word that it has arrived.
UNHEARD_MS = 10_000
WHY = {
    "key": "it has another key: compare the file of relay_key there with this machine's, then restart it",
    "node": "it is another node: correct its name in the host table or the map of nodes, or `node` there",
    "room": "it has too many connections: look who else controls it",
    "proof": "it cannot prove to have the site's key: something else listens there",
}
AWAY = {
    errno.ECONNREFUSED: "nothing listens there: start cachemgr.service, and set control_listen",
    errno.EHOSTUNREACH: "no route leads there: is it switched off?",
    errno.ENETUNREACH: "no route leads there: look at this machine's network",
    errno.ETIMEDOUT: "it is silent: is it switched off, or behind a firewall?",
}


class RemoteClient(DaemonClient):
    """One connection to a daemon at HOST:PORT, as the pool's own user.

    `node` is the name of the node that is meant: one that knows itself to be another refuses.
    """

    def __init__(
        self,
        host: str,
        port: int,
        keys: Sequence[bytes],
        *,
        node: str = "",
        connect_s: float = CONNECT_S,
        clock: Clock | None = None,
    ) -> None:
        if not keys:
            raise BadRequest("a daemon on another machine is asked with the site's key: name its file")
        self._host, self._port, self._key = host, port, keys[0]
        self._node = node if channel.NODE.fullmatch(node) else channel.ANYBODY
        super().__init__(f"{host}:{port}", connect_s=connect_s, clock=clock)

    def _connected(self, path: str, connect_s: float) -> socket.socket:
        until_s = self._clock.monotonic_s() + connect_s
        try:
            made = socket.create_connection((self._host, self._port), timeout=connect_s)
        except socket.gaierror as error:
            raise NoDaemon(f"{self._host} has no address: add it to the host table") from error
        except OSError as error:
            number = errno.ETIMEDOUT if isinstance(error, socket.timeout) else error.errno or 0
            reason = AWAY.get(number, error.strerror or str(error))
            raise NoDaemon(f"no daemon answers at {path}: {reason}") from error
        try:
            self._introduce(made, path, until_s)
        except socket.timeout as error:
            made.close()
            raise NoDaemon(f"what listens at {path} did not greet in {connect_s:g} s: {AGAIN}") from error
        except OSError as error:
            made.close()
            raise NoDaemon(f"the daemon at {path} hung up: {error.strerror}; {AGAIN}") from error
        except BaseException:
            made.close()
            raise
        return made

    def _introduce(self, made: socket.socket, path: str, until_s: float) -> None:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
        greeted = self._line(made, path, until_s)
        if greeted == channel.refused("room"):
            raise NoDaemon(f"the daemon at {path} cannot be used: {WHY['room']}")
        try:
            nonce = channel.read_greeting(greeted)
        except BadRequest as error:
            raise NoDaemon(f"what answers at {path} is not this daemon: {error}") from error
        mine = secrets.token_hex(channel.NONCE_BYTES)
        transcript = channel.Transcript(nonce, mine, self._node)
        made.sendall(channel.introduction(transcript, self._key))
        why = channel.check_welcome(self._line(made, path, until_s), transcript, self._key)
        if why:
            raise NoDaemon(f"the daemon at {path} cannot be used: {WHY[why]}")
        self._theirs, self._ours = transcript.daemon_seals(self._key)

    def _line(self, made: socket.socket, path: str, until_s: float) -> bytes:
        """One line of the greeting, within the time for all of it."""
        received = b""
        while not received.endswith(b"\n"):
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise socket.timeout
            made.settimeout(left_s)
            data = made.recv(channel.MOST_GREETING_BYTES)
            if not data:
                raise NoDaemon(f"the daemon at {path} hung up at once: it has no room for more callers")
            received += data
            if len(received) > channel.MOST_GREETING_BYTES:
                raise NoDaemon(f"what answers at {path} is not this daemon: it talks too much")
        return received

    def _send(self, line: bytes, descriptors: Sequence[int]) -> None:
        if descriptors:
            raise BadRequest("an open file cannot be handed over a network: name it by its address")
        super()._send(self._ours.seal(line), ())

    def _opened(self, line: bytes) -> bytes:
        try:
            return self._theirs.opened(line)
        except channel.Forged as error:
            self.close()
            raise NoDaemon(f"the daemon at {self._path} cannot be trusted: {error}") from error
