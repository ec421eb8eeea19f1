"""A process that waits for a running machine from another node, as the machine's user, for one machine."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import closing, suppress

from cachemgr.base.errors import BadRequest, CacheError, InUse, SourceFailed
from cachemgr.machines.keeper import OWN_FILE, check_user
from cachemgr.machines.live import crossing
from cachemgr.machines.live.arriving import (
    DISK_SOCKET,
    MEMORY_SOCKET,
    arrive,
    read_offer,
    receive,
    turn_away,
    wait_until_loaded,
)
from cachemgr.machines.live.pumps import joined
from cachemgr.machines.live.streams import CONTROL, DISK, accepted
from cachemgr.machines.record import FILE, has_record
from cachemgr.machines.running import TOLD_FILES
from cachemgr.machines.troubles import disk_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.live.arriving import MachineOffer
    from cachemgr.machines.live.streams import SignedStream
    from cachemgr.machines.machine import Machine

WAIT_S = 3600.0
MOST_CONNECTIONS = 16
LOOK_S = 0.2
MOST_FILE_BYTES = 1 << 50


class MachineLanding:
    """The machine's folder, and who may speak about it: whoever has the key, one at a time."""

    def __init__(
        self, machine: Machine, key: bytes, paths: Callable[[MachineOffer], Mapping[str, str]]
    ) -> None:
        """`paths` says, once it is known which machine comes, where the files lie here that are not its
        own."""
        self._machine, self._key, self._paths = machine, key, paths
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        self._speaks = threading.Lock()
        self._has_arrived = threading.Event()
        self._heard_s = machine.site.clock.monotonic_s()

    def wait(
        self,
        listener: socket.socket,
        wait_s: float = WAIT_S,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> MachineStatus:
        """Until the machine runs here. Raises SourceFailed if nobody brings it for so long, or if it is gone
        before; what has come until then stays, since it may be the machine itself already."""
        check_user()
        self._machine.make_folder()
        clock = self._machine.site.clock
        listener.settimeout(LOOK_S)
        while not self._has_arrived.is_set():
            is_late = clock.monotonic_s() > self._heard_s + wait_s
            if not self._speaks.locked() and (is_late or is_gone()):
                raise SourceFailed(
                    f"nobody has brought a machine to {self._machine.folder}"
                    + (f" for {wait_s:.0f} s" if is_late else ", and its job is over")
                )
            with suppress(socket.timeout):
                connection, _ = listener.accept()
                if self._places.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                else:
                    connection.close()
        # Its answer is on its way to the node that the machine has left.
        with self._speaks:
            return self._machine.status()

    def _serve(self, connection: socket.socket) -> None:
        try:
            channel, stream = accepted(connection, self._key)
            if channel == CONTROL:
                self._converse(stream)
            else:
                self._join(stream, DISK_SOCKET if channel == DISK else MEMORY_SOCKET)
        except (CacheError, OSError):
            # A stranger, or an end that is gone: whoever has the key comes again.
            pass
        finally:
            connection.close()
            self._places.release()

    def _join(self, stream: SignedStream, name: str) -> None:
        """Once it has proved that it has the key."""
        stream.receive()
        stream.wait_at_most(None)
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        folder_fd = os.open(self._machine.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            inside.connect(f"/proc/self/fd/{folder_fd}/{name}")
        except OSError:
            inside.close()
            raise
        finally:
            os.close(folder_fd)
        joined(inside, stream)

    def _converse(self, stream: SignedStream) -> None:
        """What it asks for, until it goes or the machine runs here."""
        wanted = stream.hear()
        if not self._speaks.acquire(blocking=False):
            error = InUse(f"somebody is bringing a machine to {self._machine.folder} already")
            stream.say({"error": str(error), "code": error.code})
            return
        try:
            stream.wait_at_most(None)
            while True:
                try:
                    answer = self._done(stream, wanted)
                except (CacheError, OSError) as error:
                    code = error.code if isinstance(error, CacheError) else CacheError.code
                    answer = {"error": str(error), "code": code}
                stream.say(answer)
                if wanted.get("do") == crossing.ARRIVE and "error" not in answer:
                    self._has_arrived.set()
                    return
                if wanted.get("do") in (crossing.FILE, crossing.APPEND) and "error" in answer:
                    # What is left of the file would be taken for words.
                    return
                wanted = stream.hear()
        finally:
            self._heard_s = self._machine.site.clock.monotonic_s()
            self._speaks.release()

    def _done(self, stream: SignedStream, wanted: Mapping[str, Any]) -> dict[str, object]:
        verb, machine = wanted.get("do"), self._machine
        if verb == crossing.TURN_AWAY:
            turn_away(machine, str(wanted.get("name")))
        elif verb in (crossing.FILE, crossing.APPEND):
            self._bring(stream, wanted, is_new=verb == crossing.FILE)
        elif verb == crossing.RECEIVE:
            offer = read_offer(wanted.get("offer", {}))
            receive(machine, offer, self._paths(offer))
        elif verb == crossing.LOADED:
            wait_until_loaded(machine)
        elif verb == crossing.ARRIVE:
            arrive(machine, str(wanted.get("token")))
        elif verb != crossing.HELLO:
            raise BadRequest(f"{str(verb)[:40]!r} cannot be done for a machine that comes")
        return {"place": machine.place}

    def _bring(self, stream: SignedStream, wanted: Mapping[str, Any], *, is_new: bool) -> None:
        name, size_bytes, disk = str(wanted.get("name")), wanted.get("size_bytes"), self._machine.site.disk
        if not OWN_FILE.fullmatch(name) or name == FILE:
            raise BadRequest(f"{name[:80]!r} is not a file of a machine")
        if not isinstance(size_bytes, int) or not 0 <= size_bytes <= MOST_FILE_BYTES:
            raise BadRequest(f"{name} has no size")
        if has_record(disk, self._machine.folder) == (is_new and name not in TOLD_FILES):
            raise InUse(f"{self._machine.folder} holds another machine: remove it, or name another folder")
        path = f"{self._machine.folder}/{name}"
        with disk_trouble(f"bringing {name}"):
            if is_new:
                if disk.exists(path):
                    disk.remove(path)
                disk.create(path, 0o600).close()
            with closing(disk.open(path, for_writing=True)) as file:
                at = 0
                while at < size_bytes:
                    data = stream.receive()
                    if not data or at + len(data) > size_bytes:
                        raise BadRequest(f"{name} has come with another size than was said")
                    file.write_at(at, data)
                    at += len(data)
                file.sync()
