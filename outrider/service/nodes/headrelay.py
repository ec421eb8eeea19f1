"""Where nodes fetch what the head itself has made of images: a relay like a node's, with tickets.

Tickets are signed with the site's key for one digest and a short time, so nodes need no right to
any registry, and a name and a password never leave the head.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.rate import RateLimit
from cachemgr.relay.connections import RelaySettings
from cachemgr.relay.server import RelayServer
from outrider.service.daemon.errors import BackendError
from outrider.service.meter import Log

PathOf = Callable[[str], Path | None]


class MadeFile:
    """A whole file, as the relay reads it. It is nobody's without a ticket."""

    is_public = False

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._file).st_size

    def valid_bytes(self) -> int:
        return self.size_bytes

    def wait(self, offset: int, timeout_s: float) -> int:
        return self.size_bytes

    def read(self, offset: int, most: int) -> bytes:
        return os.pread(self._file, most, offset)

    def fileno(self) -> int | None:
        return self._file

    def close(self) -> None:
        os.close(self._file)


class MadeHoldings:
    """What the head has, by digest."""

    def __init__(self, path_of: PathOf) -> None:
        self._path_of = path_of

    def open(self, digest: str) -> MadeFile | None:
        path = self._path_of(digest)
        try:
            return None if path is None else MadeFile(path)
        except FileNotFoundError:
            return None


class HeadRelay:
    """Listens at an address of the head, as long as the service lives."""

    def __init__(self, address: str, keys: Sequence[bytes], path_of: PathOf, clock: Clock, log: Log) -> None:
        self._address = address
        self._keys = tuple(keys)
        self._holdings = MadeHoldings(path_of)
        self._clock = clock
        self._log = log
        self._server: RelayServer | None = None

    def start(self) -> None:
        """Raises BackendError if the address is not this machine's."""
        host, _, port = self._address.rpartition(":")
        settings = RelaySettings(host=host.strip("[]"), port=int(port), keys=self._keys)
        try:
            self._server = RelayServer(
                self._holdings,
                settings,
                self._clock,
                RateLimit(None, self._clock),
                lambda line: self._log.debug("made image asked for", line=line),
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                # Another service, which the store or the batch system tells of more clearly.
                self._log.warning("made images reach no node: the address is taken", address=self._address)
                return
            raise BackendError(
                f"nodes cannot be served at {self._address} ({error.strerror}): correct conversions.address"
            ) from error

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
