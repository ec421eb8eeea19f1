"""Where a password may have been left: files, the line, and what other programs and users can read of one."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cachemgr.base.clock import SystemClock

PASSWORD = "unlike-any-key-41"
NEEDLES = (PASSWORD.encode(), base64.b64encode(f"ada:{PASSWORD}".encode()))
"""As it is, and as a registry is told it."""
EVERY_PACKET = 0x0003
REST_S = 0.1
MOST_COPIES = 10
"""So many looks a process may take to become the program that it was started for."""
CLOCK = SystemClock()


def has_one(data: bytes) -> bool:
    return any(needle in data for needle in NEEDLES)


def found_in_files(folders: Iterable[Path]) -> list[str]:
    found = []
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        # What is being written has another name a moment later, and was looked at under that, or is not yet.
        with suppress(FileNotFoundError):
            if has_one(path.read_bytes()):
                found.append(str(path))
    return found


def found_at(pid: int, *, has_memory: bool = True) -> list[str]:
    """In what of a process there is one; nothing of one that has ended."""
    found = []
    for name in ("cmdline", "environ"):
        try:
            data = Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue
        found += [f"{pid} {name}"] if has_one(data) else []
    return found + ([f"{pid} memory"] if has_memory and has_one(_memory(pid)) else [])


def _memory(pid: int) -> bytes:
    """What a process can write to."""
    parts = []
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                begin, end = (int(number, 16) for number in span.split("-"))
                if rights.startswith("rw") and end - begin < 1 << 28:
                    memory.seek(begin)
                    parts.append(memory.read(end - begin))
    except OSError:
        # It has ended, or the kernel keeps a part of it to itself.
        return b"".join(parts)
    return b"".join(parts)


def read_as(uid: int, path: str) -> bytes | None:
    """What another user reads of a file; None if they may not."""
    program = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(4096))"
    argv = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    done = subprocess.run(
        [*argv, sys.executable, "-I", "-S", "-c", program, path],
        capture_output=True,
        timeout=240,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


class OwnLine:
    """All packets of this machine's own line, for as long as it is entered."""

    def __init__(self) -> None:
        self.bytes = 0
        self.found: list[str] = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PACKET))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> OwnLine:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._is_over:
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                continue
            self.bytes += len(data)
            if has_one(data):
                self.found.append(repr(data[:80]))


class ChildrenWatch:
    """What a process starts, and these in turn, looked into while they run."""

    def __init__(self, pid: int) -> None:
        self.found: list[str] = []
        self._seen: set[int] = set()
        self._copies: dict[int, int] = {}
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def seen(self) -> int:
        return len(self._seen)

    def __enter__(self) -> ChildrenWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _is_copy(self, pid: int) -> bool:
        """Whether it is the watched process still, between its fork and the program that it becomes: its
        memory is the same pages. One that stays so becomes no other program, and is looked into."""
        try:
            same = (
                Path(f"/proc/{pid}/cmdline").read_bytes() == Path(f"/proc/{self._pid}/cmdline").read_bytes()
            )
        except OSError:
            return True
        self._copies[pid] = self._copies.get(pid, 0) + 1
        return same and self._copies[pid] < MOST_COPIES

    def _look(self) -> None:
        took_s = REST_S
        while not self._is_over.wait(3 * took_s):
            began_s = CLOCK.monotonic_s()
            for pid in _below(self._pid):
                if self._is_copy(pid):
                    continue
                self._seen.add(pid)
                self.found += found_at(pid)
            took_s = max(REST_S, CLOCK.monotonic_s() - began_s)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        here = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{here}/task")
            texts = [Path(f"/proc/{here}/task/{task}/children").read_text() for task in tasks]
        except OSError:
            continue
        children = [int(word) for text in texts for word in text.split()]
        found += children
        waiting += children
    return found
