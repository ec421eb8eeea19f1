"""A socket that passes on to another one, until it is told to hold everything back or to break off."""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

CHUNK = 1 << 16
LOOK_S = 0.2
SETTLE_S = 0.3


class Break(Enum):
    """Where a connection is cut."""

    BEFORE_COMMIT = "what is to be committed is written, and the word is not passed on"
    AFTER_COMMIT = "the word is passed on, and its answer is not"


@dataclass
class _Ends:
    caller: socket.socket
    called: socket.socket
    statements: dict[bytes, bytes] = field(default_factory=dict)
    rest: bytes = b""
    is_greeted: bool = False


class Wire:
    """Between `path`, where others call, and `target`."""

    def __init__(self, path: Path, target: Path) -> None:
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(64)
        self._passes = threading.Event()
        self._passes.set()
        self._is_closed = False
        self._guard = threading.Lock()
        self._ends: list[_Ends] = []
        self._break: Break | None = None
        self.broken = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def hold(self) -> None:
        """From now on nothing arrives, and nobody is told: as if a cable had been pulled."""
        self._passes.clear()

    def release(self) -> None:
        """What was held goes nowhere: connections of before are broken, new ones stand."""
        self.cut()
        self._passes.set()

    def cut(self) -> None:
        with self._guard:
            ends, self._ends = self._ends, []
        for each in ends:
            _shut(each)

    def break_next(self, where: Break) -> None:
        """Cut the connection at the next COMMIT of a transaction that adds a reservation."""
        self.broken.clear()
        self._break = where

    def close(self) -> None:
        self._is_closed = True
        self._listener.close()
        self.cut()
        self._passes.set()

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(caller,), daemon=True).start()

    def _connect(self, caller: socket.socket) -> None:
        self._passes.wait()
        called = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            called.connect(str(self._target))
        except OSError:
            caller.close()
            called.close()
            return
        ends = _Ends(caller, called)
        with self._guard:
            self._ends.append(ends)
        with suppress(OSError, ValueError):
            self._pump(ends)
        _shut(ends)

    def _pump(self, ends: _Ends) -> None:
        holds_answer = False
        while not self._is_closed:
            ready, _, _ = select.select([ends.caller, ends.called], [], [], LOOK_S)
            for each in ready:
                self._passes.wait()
                data = each.recv(CHUNK)
                if not data:
                    return
                if each is ends.called:
                    if not holds_answer:
                        ends.caller.sendall(data)
                    continue
                if self._break is not None and self._commits(ends, data):
                    where, self._break = self._break, None
                    if where is Break.AFTER_COMMIT:
                        holds_answer = True
                        ends.called.sendall(data)
                        select.select([], [], [], SETTLE_S)
                    self.broken.set()
                    return
                self._note(ends, data)
                ends.called.sendall(data)

    def _commits(self, ends: _Ends, data: bytes) -> bool:
        self._note(ends, data)
        return self._has_committed

    def _note(self, ends: _Ends, data: bytes) -> None:
        """Read along in PostgreSQL's protocol, which statement has which name, and whether this commits one
        that adds a reservation."""
        self._has_committed = False
        rest = ends.rest + data
        if not ends.is_greeted:
            (length,) = struct.unpack("!I", rest[:4])
            ends.is_greeted, rest = True, rest[length:]
        while len(rest) >= 5:
            (length,) = struct.unpack("!I", rest[1:5])
            if len(rest) < 1 + length:
                break
            kind, body, rest = rest[:1], rest[5 : 1 + length], rest[1 + length :]
            if kind == b"P":
                name, text = body.split(b"\0")[:2]
                ends.statements[name] = text
            elif kind == b"B":
                text = ends.statements.get(body.split(b"\0")[1], b"")
                if text.startswith(b"BEGIN"):
                    ends.statements[b"adds"] = b""
                elif text.startswith(b"INSERT INTO reservations"):
                    ends.statements[b"adds"] = b"yes"
                elif text.startswith(b"COMMIT") and ends.statements.get(b"adds"):
                    self._has_committed = True
        ends.rest = rest


def _shut(ends: _Ends) -> None:
    for each in (ends.caller, ends.called):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
