"""What processor time jobs' machines have had on this node, and waited for, by the kernel's counters.

A machine that waits while others have the processors would use more: what all have had never is more than
their node has. Where a batch system has put a job into a control group, that one's counter is taken: it has
all that runs for the machine. Elsewhere it is QEMU's own, in which its guest's processors are. What a guest
says of itself is not asked for: it may say anything.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass

PROC, CGROUPS = "/proc", "/sys/fs/cgroup"
MOST_BYTES = 1 << 16
PROGRAM = b"qemu-system-"
FOLDER = re.compile(rb"/outrider-([0-9]{1,10})/(?:other/)?(job-[0-9-]{1,21})/")
"""Of a job's machine, below the folder in which users' are."""
OF_JOB = re.compile(r"(/.*?/job_[0-9]+)(?:/.*)?")
"""A job's group in the unified hierarchy, as Slurm names it."""


@dataclass(frozen=True)
class ProcessorTime:
    """In microseconds. `waited_us` may fall, when a thread has ended."""

    used_us: int
    waited_us: int


def processor_times(
    above: str, proc: str = PROC, cgroups: str = CGROUPS
) -> dict[tuple[int, str], ProcessorTime]:
    """By user and the name of the machine's folder in the user's own (`job-17`). `above` is where users'
    folders are. A process counts for its own user's machine alone."""
    place = os.fsencode(above)
    found: dict[tuple[int, str], ProcessorTime] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        with suppress(OSError, ValueError, IndexError):
            words = _read(f"{proc}/{pid}/cmdline")
            named = next(
                (each for each in FOLDER.finditer(words) if words.endswith(place, 0, each.start())), None
            )
            if named is None or not os.path.basename(words.split(b"\0")[0]).startswith(PROGRAM):
                continue
            if os.stat(f"{proc}/{pid}").st_uid != int(named[1]):
                continue
            key = int(named[1]), named[2].decode()
            before = found.get(key, ProcessorTime(0, 0))
            group_us, waited_us = _group_us(f"{proc}/{pid}", cgroups), _waited_us(f"{proc}/{pid}")
            if group_us is None:
                used_us = before.used_us + _process_us(f"{proc}/{pid}")
            else:
                used_us = max(before.used_us, group_us)
            found[key] = ProcessorTime(used_us, before.waited_us + waited_us)
    return found


def _group_us(process: str, cgroups: str) -> int | None:
    """Of the job that a process is in; None if that has no group."""
    for line in _read(f"{process}/cgroup").decode(errors="replace").splitlines():
        number, _, path = line.split(":", 2)
        job = OF_JOB.fullmatch(path) if number == "0" else None
        if job is not None:
            with suppress(OSError, KeyError, ValueError):
                counters = dict(map(bytes.split, _read(f"{cgroups}{job[1]}/cpu.stat").splitlines()))
                return int(counters[b"usage_usec"])
    return None


def _process_us(process: str) -> int:
    """The name in brackets may hold anything, brackets and spaces included."""
    fields = _read(f"{process}/stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def _waited_us(process: str) -> int:
    """How long its threads could run and had no processor; nothing where the kernel does not count that."""
    waited_ns = 0
    with suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            with suppress(OSError, ValueError, IndexError):
                waited_ns += int(_read(f"{process}/task/{thread}/schedstat").split()[1])
    return waited_ns // 1000


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES)
