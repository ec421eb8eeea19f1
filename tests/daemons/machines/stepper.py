"""The engine as a program that is killed before a step of its choice.

`stepper.py COUNT_FILE STEP ARGUMENTS…`: what `python3 -m cachemgr.machines ARGUMENTS…` does, until the step
of that number comes, an operation on the disk, a word to QEMU, one of the first pieces of memory; then the
kernel kills this process. With a step of 0 none comes, and the file says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from threading import Lock
from typing import Any

from cachemgr.base.clock import Clock, SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.machines.__main__ import main
from cachemgr.machines.keeper import PROGRAM, MachineSite
from cachemgr.machines.qemu import loading, saving
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.machines.qemu.monitor import QemuMonitor

POLLS = ("query-migrate", "query-status")
"""How often these are asked depends on the machine's load: they change nothing and are no steps."""
PIECES = 3
OPERATIONS = ("create", "rename", "remove", "remove_all", "sync_folder", "make_folder")


class Steps:
    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last
        self._turn = Lock()

    def take(self) -> None:
        with self._turn:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


class SteppedDisk(RealDisk):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __getattribute__(self, name: str) -> Any:
        if name in OPERATIONS:
            self._steps.take()
        return super().__getattribute__(name)


def stepped_monitor(steps: Steps) -> type[QemuMonitor]:
    class SteppedMonitor(QemuMonitor):
        def command(self, command: str, *rest: Any, **named: Any) -> Any:
            if command not in POLLS:
                steps.take()
            return super().command(command, *rest, **named)

    return SteppedMonitor


def step_at_pieces(steps: Steps) -> None:
    """The first pieces of memory that are written or read are steps, too: several threads do that."""
    for module, name in ((saving, "write_all"), (loading, "read_piece")):
        known, left = getattr(module, name), list(range(PIECES))

        def stepped(*arguments: Any, known: Any = known, left: list[int] = left) -> Any:
            with suppress(IndexError):
                left.pop()
                steps.take()
            return known(*arguments)

        setattr(module, name, stepped)


def run(count_file: str, step: int, arguments: list[str]) -> int:
    steps = Steps(step)
    step_at_pieces(steps)
    disk, clock = SteppedDisk(steps), SystemClock()

    def monitor(folder: str, name: str, clock: Clock) -> QemuMonitor:
        return stepped_monitor(steps)(folder, name, clock)

    site = MachineSite(
        node="node",
        disk=disk,
        clock=clock,
        monitor=monitor,
        facts=lambda: find_facts(PROGRAM, clock, RealDisk()),
    )
    code = main(arguments, site=site)
    with open(count_file, "w") as file:
        file.write(f"{steps.count}\n")
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
