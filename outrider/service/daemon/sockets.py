"""Where the service listens: one living service, whatever dead ones have left."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from cachemgr.base.errors import CacheError
from cachemgr.daemon.network.listener import ListeningPlace, check_replaceable
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import SocketError
from outrider.service.web.connections.server import listen_tcp, listen_unix


class Sockets:
    """The sockets of one service, from the first lock to the last file."""

    def __init__(self, config: Config) -> None:
        """Take the right to listen, before anything else is begun. Raises SocketError."""
        self._config = config
        self._listening: list[socket.socket] = []
        self._inode = 0
        try:
            self._place = ListeningPlace(config.socket)
        except CacheError as error:
            raise SocketError(str(error)) from error

    def listen(self) -> list[socket.socket]:
        """All sockets that the configuration names. Raises SocketError."""
        self._listening.append(self._unix())
        if self._config.tcp is not None:
            self._listening.append(self._tcp(self._config.tcp.listen))
        return self._listening

    @property
    def are_in_place(self) -> bool:
        """Whether the unix socket's file is the one that was made here."""
        try:
            return os.lstat(self._config.socket).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Listen no more. The right to do so stays here, and `listen` may follow."""
        for each in self._listening:
            each.close()
        self._listening = []

    def leave(self) -> None:
        self.close()
        if self._inode and self.are_in_place:
            with suppress(OSError):
                os.unlink(self._config.socket)
        self._place.leave()

    def _unix(self) -> socket.socket:
        """Made beside and renamed: whoever has seen the file can connect. The file of a service that
        was killed is replaced; that nobody listens there any more is known from the lock."""
        path = self._config.socket
        beside = f"{path}.new"
        try:
            check_replaceable(path)
            if check_replaceable(beside):
                os.unlink(beside)
            listener = listen_unix(beside, mode=int(self._config.socket_mode, 8))
            os.rename(beside, path)
        except CacheError as error:
            raise SocketError(str(error)) from error
        except OSError as error:
            raise SocketError(f"the socket {path} cannot be made: {error.strerror}") from error
        self._inode = os.lstat(path).st_ino
        return listener

    def _tcp(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        try:
            return listen_tcp(host.strip("[]"), int(port))
        except OSError as error:
            raise SocketError(
                f"nothing can listen at {address}: {error.strerror or error}; see tcp.listen"
            ) from error
