"""One program on each of a job's other nodes, as `srun` begins it, with Grid Engine's own means.

    machine tasks NODE:SLOTS,NODE:SLOTS,… PROGRAM ARGUMENT …

`qrsh -inherit` begins each, in the working folder. What comes in goes to all of them, what they say comes out
line by line, and when all have ended so does this. Each is told its number, from 1 on, and its slots.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
from contextlib import suppress

from cachemgr.base.errors import BadRequest, Unsuitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TASKS = "tasks"
MEMBER_VARIABLE = "OUTRIDER_MEMBER"
PLACE = re.compile(r"([A-Za-z0-9._-]{1,255}):([0-9]{1,6})")
CHUNK_BYTES = 65_536
END_S = 20.0
"""So long those that are told nothing more have to end."""


def run_tasks(places: str, command: Sequence[str]) -> int:
    """The worst of their statuses."""
    found = [PLACE.fullmatch(each) for each in places.split(",")]
    begun = []
    for number, place in enumerate(found, 1):
        if place is None:
            raise BadRequest(f"{places[:80]!r} are not nodes with their slots")
        variable = f"{MEMBER_VARIABLE}={number}:{place[2]}"
        words = ["env", variable, *command]
        line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(words)}"
        try:
            begun.append(
                subprocess.Popen(
                    ["qrsh", "-inherit", place[1], line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
        except OSError as error:
            raise Unsuitable(f"qrsh cannot be run on this node: {error.strerror}") from error

    def end(*_: object) -> None:
        for each in begun:
            each.terminate()

    signal.signal(signal.SIGTERM, end)
    _pass_on(begun)
    return max(each.wait() & 0xFF for each in begun)


def _pass_on(begun: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all have closed what they say."""
    said: dict[int, bytes] = {each.stdout.fileno(): b"" for each in begun if each.stdout is not None}
    waits, wait_s = [0, *said], None
    while said:
        ready = select.select(waits, [], [], wait_s)[0]
        if not ready:
            # qrsh was seen not to pass on that there is nothing more to read.
            for each in begun:
                each.terminate()
        for fd in ready:
            data = os.read(fd, CHUNK_BYTES)
            if fd == 0:
                _tell(begun, data)
            else:
                *lines, said[fd] = (said[fd] + data).split(b"\n")
                _write(b"".join(line + b"\n" for line in lines))
            if not data:
                waits.remove(fd)
                said.pop(fd, None)
                wait_s = END_S


def _tell(begun: Sequence[subprocess.Popen[bytes]], data: bytes) -> None:
    for each in begun:
        assert each.stdin is not None
        # One that has ended says so by its status.
        with suppress(OSError):
            if data:
                each.stdin.write(data)
                each.stdin.flush()
            else:
                each.stdin.close()


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
