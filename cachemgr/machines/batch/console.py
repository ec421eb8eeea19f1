"""The console of a job's machine, and a shell in it, from its node and with its user's rights."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import termios
import tty
from contextlib import closing, suppress

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import NotInPool
from cachemgr.machines.guest.channel import CONSOLE, LOGIN, has_login
from cachemgr.machines.qemu.command import CONSOLE_LOG
from cachemgr.machines.qemu.monitor import connected
from cachemgr.machines.record import read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

VERB, LOGIN_VERB = "console", "ssh"
LEAVE = b"\x1d"
"""Control and ]: as telnet is left."""
CONNECT_S = 5.0
LOGIN_S = 40
"""A guest that is translated takes seconds for ssh's beginning."""
LAST_S = 1.0
"""Without a terminal, so long after the end of what is typed it is waited for what the guest says."""
TOLD_BYTES = 4096
CHUNK_BYTES = 65536


def console(folder: str) -> int:
    """The end of what the guest has said, then a connection to its first serial port."""
    if not os.path.isdir(folder):
        raise NotInPool(
            f"there is no machine in {folder} on {os.uname().nodename}: it runs elsewhere, or not yet"
        )
    with closing(connected(folder, CONSOLE, CONNECT_S)) as line:
        line.settimeout(None)
        _write(1, _told(f"{folder}/{CONSOLE_LOG}"))
        if not sys.stdin.isatty():
            _relay(line)
            return 0
        print("(Control and ] leave this console)\r", file=sys.stderr)  # noqa: T201 - a program's word
        before = termios.tcgetattr(0)
        try:
            tty.setraw(0)
            _relay(line)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    return 0


def login(folder: str, command: Sequence[str]) -> int:
    """A shell in the guest by ssh, or a command there, with the key that was made for the job."""
    disk = RealDisk()
    record = read_record(disk, folder)
    if record.wish.cluster is None or not has_login(record.wish):
        raise NotInPool(
            f"machine {record.name} has no key for ssh: only one of several, or of an interactive lease, has"
        )
    port = disk.read(f"{folder}/{LOGIN}", TOLD_BYTES).decode().strip()
    # Nothing of the key is written to a disk for this; ssh itself closes what it inherits.
    key_fd = os.memfd_create("key")
    os.fchmod(key_fd, 0o600)
    _write(key_fd, record.wish.cluster.private_key.encode())
    argv = [
        "ssh", "-i", f"/proc/{os.getpid()}/fd/{key_fd}", "-p", port, *(["-t"] if sys.stdin.isatty() else []),
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
        "-o", "IdentitiesOnly=yes", "-o", f"ConnectTimeout={LOGIN_S}", "root@127.0.0.1", *command,
    ]  # fmt: skip
    try:
        return subprocess.run(argv, check=False).returncode
    except FileNotFoundError as error:
        raise NotInPool("ssh is not installed on this node: install openssh-client") from error


def _relay(line: socket.socket) -> None:
    """Until the machine goes, or whoever types leaves."""
    readers: Sequence[int] = [line.fileno(), 0]
    while True:
        ready = select.select(readers, [], [], None if 0 in readers else LAST_S)[0]
        if not ready:
            return
        if line.fileno() in ready:
            data = line.recv(CHUNK_BYTES)
            if not data:
                return
            _write(1, data)
        if 0 in ready:
            typed = os.read(0, CHUNK_BYTES)
            before, leave, _ = typed.partition(LEAVE)
            line.sendall(before)
            if leave:
                return
            if not typed:
                readers = [line.fileno()]


def _told(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TOLD_BYTES))
        return file.read(TOLD_BYTES)
    return b""


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view) :]
