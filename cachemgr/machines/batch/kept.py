"""What jobs' machines have left on a node, as root sees it: each in a folder of its own user's.

No file in these folders is opened here. What is to be done with them is done with their user's rights.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from cachemgr.machines.batch.steps.marks import FOLDER_PREFIX
from cachemgr.machines.guest.readiness import readiness_in
from cachemgr.machines.qemu.processor_time import processor_times
from cachemgr.protocol import JOB_OWNER, ListedMachines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = "/var/tmp"
PROGRAM = "/usr/lib/outrider/machine"
DISCARD = "discard"
OTHER = "other"
"""Beside a user's machines of virtual nodes: where those are that have changed their folder."""
MOST = 2000
MOST_PASSED = 20_000
"""So many names are looked at in a user's folder: who fills it hides what is theirs alone."""
TIME_S = 30
WAIT_S, BESIDE_S = 4, 0.2
"""So long whoever has one removed waits for that; beside others, which may hang."""
_OF_USER = re.compile(r"outrider-(0|[1-9][0-9]{0,9})")
_OF_JOB = re.compile(r"job-([0-9]{1,10})(?:-([0-9]{1,10}))?")


@dataclass(frozen=True)
class KeptMachine:
    """The folder of a job's machine: whose it is, and of which job."""

    uid: int
    key: str
    """As the machine is called."""
    readiness: str = ""
    """How far it says that it is: its number among its job's, its name, its address, and a word."""

    @property
    def job(self) -> str:
        """As batch systems call the job, or the task of an array."""
        return self.key.replace("-", ".")


def kept_machines(folder: str = FOLDER) -> list[KeptMachine]:
    """All of them, of whatever state; those of a folder that is not its user's alone are nobody's.

    In turns of users: the first so many have machines of each.
    """
    names: list[tuple[int, str, str]] = []
    for name in _names(folder, _OF_USER):
        if _is_of(f"{folder}/{name}", int(name.partition("-")[2])):
            above = f"{folder}/{name}"
            own = {*_names(above, _OF_JOB, MOST_PASSED), *_names(f"{above}/{OTHER}", _OF_JOB, MOST_PASSED)}
            names += ((number, above, inside) for number, inside in enumerate(sorted(own)[:MOST]))
    return [_kept(above, inside) for _, above, inside in sorted(names)[:MOST]]


def _kept(above: str, inside: str) -> KeptMachine:
    words = (readiness_in(place, inside) for place in (above, f"{above}/{OTHER}"))
    uid = int(above.rpartition("-")[2])
    return KeptMachine(uid, inside[len("job-") :], next(filter(None, words), ""))


def listed_machines(at_us: int, folder: str = FOLDER) -> ListedMachines:
    """Whose they are, how far, and what they have had of processors, at `at_us` of the caller's clock."""
    found = kept_machines(folder)
    times = processor_times(folder) if found else {}
    had = [times.get((each.uid, f"{FOLDER_PREFIX}{each.key}")) for each in found]
    return ListedMachines(
        tuple(f"{JOB_OWNER}{each.job}" for each in found),
        tuple(f"{each.uid} {each.readiness}" if each.readiness else "" for each in found),
        tuple(
            "" if time is None else f"{each.uid} {time.used_us} {time.waited_us}"
            for each, time in zip(found, had)
        ),
        at_us,
    )


def discard(machine: KeptMachine, program: str = PROGRAM) -> bool:
    """Have a job's machine ended and removed, with its user's rights; whether that was done."""
    try:
        done = as_user(machine.uid, [program, DISCARD, machine.key], "", TIME_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Removals:
    """Machines of jobs that are gone, while they are removed: a thread each, since their users can make that
    last, and one at a time of each user's. Any thread may call."""

    def __init__(self, program: str = PROGRAM, most: int = 8) -> None:
        self._program = program
        self._most = most
        self._guard = threading.Lock()
        self._of: dict[int, _Removal] = {}

    def remove(self, machine: KeptMachine) -> bool | None:
        """Whether it was done; None as long as it or another one of this user's is not."""
        with self._guard:
            self._of = {uid: each for uid, each in self._of.items() if each.is_alive() or uid == machine.uid}
            removal = self._of.get(machine.uid)
            if removal is None or (removal.machine.key != machine.key and not removal.is_alive()):
                if len(self._of) >= self._most and removal is None:
                    return None
                removal = self._of[machine.uid] = _Removal(machine, self._program)
                removal.start()
            elif removal.machine.key != machine.key:
                return None
            is_alone = len(self._of) == 1
        removal.join(WAIT_S if is_alone else BESIDE_S)
        with self._guard:
            if removal.is_alive():
                return None
            if self._of.get(machine.uid) is removal:
                del self._of[machine.uid]
        return removal.is_done


class _Removal(threading.Thread):
    def __init__(self, machine: KeptMachine, program: str) -> None:
        super().__init__(name=f"removal of job {machine.job}", daemon=True)
        self.machine = machine
        self.is_done = False
        self._program = program

    def run(self) -> None:
        self.is_done = discard(self.machine, self._program)


def as_user(
    uid: int,
    argv: Sequence[str],
    given: str,
    timeout_s: float | None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program with a user's rights and these variables, and nothing of this process' own."""
    gid, home = uid, "/"
    with suppress(KeyError):
        entry = pwd.getpwuid(uid)
        gid, home = entry.pw_gid, entry.pw_dir
    identity = {"user": uid, "group": gid, "extra_groups": []} if os.geteuid() == 0 else {}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(argv), input=given, capture_output=True, text=True, errors="replace", cwd="/",
        timeout=timeout_s, env={"PATH": "/usr/bin:/bin", "HOME": home, **(variables or {})}, **identity,  # type: ignore[call-overload]
    )  # fmt: skip
    return done


def _names(folder: str, pattern: re.Pattern[str], most: int | None = None) -> list[str]:
    """What is called so in a folder, among the first so many. Anybody can fill it with other names."""
    try:
        with os.scandir(folder) as entries:
            return sorted([each.name for each in islice(entries, most) if pattern.fullmatch(each.name)])
    except OSError:
        return []


def _is_of(path: str, uid: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid
