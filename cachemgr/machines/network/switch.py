"""The switch of one instance: takes frames from its QEMU to the switches of the other instances, and back.

A process of the job's user beside the one that keeps the machine, and ends with that one. QEMU gives it
frames at a socket in the machine's folder, which nobody else can enter. The first instance's switch is where
the others say where they are; it tells all of them. From then on frames go straight from one to the other, by
UDP, and an address is believed when a signed packet comes from it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.machines.network.frames import FRAME, HELLO, TABLE, PacketOpener, PacketSealer
from cachemgr.machines.network.place import MAC_PREFIX, mac_of
from cachemgr.machines.qemu.command import CARD_SOCKET, SWITCH_SOCKET
from cachemgr.machines.qemu.process import BLOCKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

    Endpoint = tuple[str, int]

FIRST = 0
MOST_PATH_BYTES = 100
"""A socket's name has 107."""
FRAME_BYTES = 65_536
LEAST_FRAME_BYTES = 14
AT_ONCE = 64
"""So many frames of one side before the other is looked at."""
BUFFER_BYTES = 4 << 20
FULL_S = 0.02
"""So long a frame waits for a guest that takes none; then it is lost, as on any network."""
EAGER_S, CALM_S = 0.2, 2.0
"""How often an instance says where it is: until it knows all others, and afterwards."""


@dataclass(frozen=True)
class SwitchPlan:
    """What a switch has to know."""

    folder: str
    key: bytes
    number: int
    count: int
    first: Endpoint | None = None
    """Where the switch of the first instance is; None for that one itself."""
    rate_bytes_per_s: int | None = None
    """What the guest may send."""


class SwitchProcess:
    """A switch that runs beside this process, until this process closes it or ends."""

    def __init__(self, plan: SwitchPlan, clock: Clock, outside_fd: int | None = None) -> None:
        """`outside_fd`: the socket by which the others know one whose keeper was killed."""
        if len(os.fsencode(f"{plan.folder}/{SWITCH_SOCKET}")) > MOST_PATH_BYTES:
            raise BadRequest(f"{plan.folder} is too long a name for a machine with a network: choose another")
        self._plan, self._clock, self._end_fd, self._pid = plan, clock, -1, 0
        # Kept here, too: one that is begun anew is where the others know it to be.
        if outside_fd is None:
            self._outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            # From which of its addresses the others reach a node, it does not know itself.
            self._outside.bind(("0.0.0.0", 0))
        else:
            self._outside = socket.socket(fileno=outside_fd)
        self.port: int = self._outside.getsockname()[1]
        self._inside = _listening(f"{plan.folder}/{SWITCH_SOCKET}")
        self._begin()

    @property
    def outside_fd(self) -> int:
        """For one that is to go on in its place when this process is killed."""
        return self._outside.fileno()

    def _begin(self) -> None:
        until_fd, self._end_fd = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            # The batch system tells every process of a job to end, before its guests have.
            signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
            with suppress(BaseException):
                _close_all_but(self._outside.fileno(), self._inside.fileno(), until_fd)
                NetworkSwitch(self._plan, self._outside, self._inside, until_fd, self._clock).serve()
            os._exit(0)
        os.close(until_fd)

    def keep(self) -> None:
        """Begin it anew if it was killed; frames are lost until the others have said where they are."""
        with suppress(ChildProcessError):
            if self._end_fd >= 0 and os.waitpid(self._pid, os.WNOHANG)[0]:
                os.close(self._end_fd)
                self._begin()

    def close(self) -> None:
        if self._end_fd >= 0:
            os.close(self._end_fd)
            self._end_fd = -1
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._outside.close()
            self._inside.close()


def _close_all_but(*fds: int) -> None:
    """What the process above it has opened is none of its business: a pipe would not end with that one."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in fds:
            with suppress(OSError):
                os.close(int(name))


class NetworkSwitch:
    """Frames in, frames out, until the other end of a pipe is closed."""

    def __init__(
        self,
        plan: SwitchPlan,
        outside: socket.socket,
        inside: socket.socket,
        until_fd: int,
        clock: Clock,
    ) -> None:
        self._plan, self._outside, self._until_fd, self._now_s = plan, outside, until_fd, clock.monotonic_s
        self._sealer = PacketSealer(plan.key, plan.number, int(clock.now_s() * 1e6))
        self._opener = PacketOpener(plan.key, plan.number, plan.count)
        self._peers: dict[int, Endpoint] = {}
        self._mac = mac_of(plan.number)
        self._card = f"{plan.folder}/{CARD_SOCKET}"
        self._inside = inside
        self._next_hello_s = 0.0
        self._may_send_s = 0.0
        with suppress(OSError):
            outside.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            outside.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)

    def serve(self) -> None:
        while True:
            now_s = self._now_s()
            if now_s >= self._next_hello_s:
                self._say_where(now_s)
            waits = [self._until_fd, self._outside.fileno()]
            pause_s = self._next_hello_s - now_s
            if now_s >= self._may_send_s:
                waits.append(self._inside.fileno())
            else:
                pause_s = min(pause_s, self._may_send_s - now_s)
            ready = select.select(waits, [], [], max(0.0, pause_s))[0]
            if self._until_fd in ready:
                return
            if self._outside.fileno() in ready:
                self._inward()
            if self._inside.fileno() in ready:
                self._outward()

    def _say_where(self, now_s: float) -> None:
        knows_all = len(self._peers) == self._plan.count - 1
        self._next_hello_s = now_s + (CALM_S if knows_all else EAGER_S)
        if self._plan.first is not None:
            self._send(self._sealer.seal(HELLO, b""), self._plan.first)

    def _outward(self) -> None:
        for _ in range(AT_ONCE):
            try:
                frame = self._inside.recv(FRAME_BYTES, socket.MSG_DONTWAIT)
            except OSError:
                return
            if len(frame) < LEAST_FRAME_BYTES or frame[6:12] != self._mac:
                continue
            if frame[0] & 1:
                packet = self._sealer.seal(FRAME, frame)
                for peer in self._peers.values():
                    self._send(packet, peer)
            elif frame[:4] == MAC_PREFIX:
                known = self._peers.get(int.from_bytes(frame[4:6], "big"))
                if known is not None:
                    self._send(self._sealer.seal(FRAME, frame), known)
            if self._plan.rate_bytes_per_s and not self._has_more(len(frame)):
                return

    def _has_more(self, size_bytes: int) -> bool:
        """Whether the guest may send more now. What it has not used it keeps for a twentieth of a second."""
        assert self._plan.rate_bytes_per_s is not None
        now_s = self._now_s()
        earliest_s = max(self._may_send_s, now_s - 0.05)
        self._may_send_s = earliest_s + size_bytes / self._plan.rate_bytes_per_s
        return self._may_send_s <= now_s

    def _inward(self) -> None:
        for _ in range(AT_ONCE):
            try:
                packet, source = self._outside.recvfrom(FRAME_BYTES, socket.MSG_DONTWAIT)
            except OSError:
                return
            opened = self._opener.open(packet)
            if opened is None:
                continue
            if opened.is_newest and self._peers.get(opened.sender) != source:
                self._peers[opened.sender] = source
                self._tell_all()
            if opened.kind == FRAME:
                self._deliver(opened.sender, opened.payload)
            elif opened.kind == HELLO and self._plan.number == FIRST:
                self._send(self._table(), source)
            elif opened.kind == TABLE and opened.sender == FIRST:
                self._learn(opened.payload)

    def _deliver(self, sender: int, frame: bytes) -> None:
        """To the guest, if it is for it and from whom it says."""
        is_for_us = len(frame) >= LEAST_FRAME_BYTES and (frame[0] & 1 or frame[:6] == self._mac)
        if is_for_us and frame[6:12] == mac_of(sender):
            with suppress(OSError):
                self._inside.sendto(frame, self._card)

    def _table(self) -> bytes:
        plain = [[number, *endpoint] for number, endpoint in sorted(self._peers.items())]
        return self._sealer.seal(TABLE, json.dumps(plain).encode())

    def _tell_all(self) -> None:
        if self._plan.number == FIRST:
            packet = self._table()
            for peer in self._peers.values():
                self._send(packet, peer)

    def _learn(self, payload: bytes) -> None:
        """Where the others were seen; an instance that has been heard from itself is where that came from."""
        for number, host, port in json.loads(payload):
            if number not in (self._plan.number, FIRST) and number not in self._peers:
                self._peers[number] = (host, port)
                # It learns from this where we are, even before the first one has told it.
                self._send(self._sealer.seal(HELLO, b""), (host, port))

    def _send(self, packet: bytes, peer: Endpoint) -> None:
        with suppress(OSError):
            self._outside.sendto(packet, peer)


def _listening(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(path)
    found.settimeout(FULL_S)
    return found
