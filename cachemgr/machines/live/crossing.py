"""The network between a running machine and the node that it goes to, as the machine's node sees it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import closing, contextmanager, suppress

from cachemgr.base import errors
from cachemgr.base.errors import CacheError, SourceFailed
from cachemgr.base.rate import RateLimit
from cachemgr.machines.live.arriving import DISK_SOCKET, MEMORY_SOCKET, SWITCH_S
from cachemgr.machines.live.pumps import joined
from cachemgr.machines.live.streams import CONTROL, DISK, MEMORY, PIECE_BYTES, connected
from cachemgr.machines.qemu.monitor import listening
from cachemgr.machines.troubles import disk_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from cachemgr.machines.live.arriving import MachineOffer
    from cachemgr.machines.live.streams import SignedStream
    from cachemgr.machines.machine import Machine

ANSWER_S = SWITCH_S + 30
"""An answer may need a QEMU that starts, or reads what has come."""
HELLO, TURN_AWAY, FILE, RECEIVE, LOADED, APPEND, ARRIVE = (
    "hello", "turn-away", "file", "receive", "loaded", "append", "arrive"
)  # fmt: skip
KINDS = {
    each.code: each for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "code")
}


class OtherNode:
    """A place on another node, where `receive` waits for a machine of the same user."""

    def __init__(self, address: tuple[str, int], key: bytes, limit: RateLimit) -> None:
        self._address, self._key, self._limit = address, key, limit
        self._control = connected(address, key, CONTROL)
        self._control.wait_at_most(ANSWER_S)
        self._place = str(self._asked(HELLO)["place"])

    @property
    def place(self) -> str:
        return self._place

    def close(self) -> None:
        self._control.close()

    def turn_away(self, name: str) -> None:
        self._asked(TURN_AWAY, name=name)

    def carry(self, source: Machine, names: Sequence[str]) -> None:
        for name in names:
            self._sent(FILE, source, name, self._limit)

    def receive(self, offer: MachineOffer) -> None:
        self._asked(RECEIVE, offer=offer.encode())

    @contextmanager
    def sockets(self, source: Machine) -> Iterator[int]:
        with _Doors(source.folder, self._address, self._key):
            folder_fd = os.open(source.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield folder_fd
            finally:
                os.close(folder_fd)

    def wait_until_loaded(self) -> None:
        self._asked(LOADED)

    def append(self, source: Machine, names: Sequence[str]) -> None:
        for name in names:
            self._sent(APPEND, source, name, None)

    def arrive(self, token: str) -> None:
        self._asked(ARRIVE, token=token)

    def _sent(self, verb: str, source: Machine, name: str, limit: RateLimit | None) -> None:
        with (
            disk_trouble(f"reading {name}"),
            closing(source.site.disk.open(f"{source.folder}/{name}")) as file,
        ):
            size_bytes, at = os.stat(f"{source.folder}/{name}").st_size, 0
            self._control.say({"do": verb, "name": name, "size_bytes": size_bytes})
            while at < size_bytes:
                data = file.read_at(at, min(PIECE_BYTES, size_bytes - at))
                if not data:
                    raise SourceFailed(f"{name} has become shorter while it was read")
                if limit is not None:
                    limit.take(len(data))
                self._control.send(data)
                at += len(data)
        self._answer()

    def _asked(self, verb: str, **fields: object) -> dict[str, Any]:
        self._control.say({"do": verb, **fields})
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer = self._control.hear()
        if "error" in answer:
            raise KINDS.get(str(answer.get("code")), CacheError)(str(answer["error"]))
        return answer


class _Doors:
    """Sockets in the machine's folder that lead to those of the QEMU on the other node."""

    def __init__(self, folder: str, address: tuple[str, int], key: bytes) -> None:
        self._folder, self._address, self._key = folder, address, key
        self._doors: list[socket.socket] = []
        self._streams: list[SignedStream] = []

    def __enter__(self) -> _Doors:
        for name, channel in ((DISK_SOCKET, DISK), (MEMORY_SOCKET, MEMORY)):
            door = listening(self._folder, name)
            self._doors.append(door)
            threading.Thread(target=self._let_in, args=(door, channel), daemon=True).start()
        return self

    def __exit__(self, *reason: object) -> None:
        for door in self._doors:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        for stream in self._streams:
            stream.close()
        for name in (DISK_SOCKET, MEMORY_SOCKET):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._folder}/{name}")

    def _let_in(self, door: socket.socket, channel: int) -> None:
        while True:
            try:
                inside, _ = door.accept()
            except OSError:
                return
            try:
                stream = connected(self._address, self._key, channel)
                # Who waits there joins nobody to a QEMU before it has heard a piece.
                stream.send(b".")
            except CacheError:
                inside.close()
                continue
            self._streams.append(stream)
            threading.Thread(target=joined, args=(inside, stream), daemon=True).start()
