"""A machine for the length of a job: what a batch script becomes while its job runs in a guest."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import CacheError, NotInPool
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.guest.readiness import Readiness
from cachemgr.machines.record import has_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.wish import MachineWish

SUSPENDED_STATUS = 98
"""How `run` ends when the machine is suspended or has moved: a number that the batch system can be told to
hold on."""
LOST_STATUS = 125
"""How it ends when nobody knows how the job would have ended."""
LOOK_S = 0.1
LOOKS_AT_QEMU = 10
"""Every so many looks QEMU is asked, too, and not the guest's words alone."""
CHUNK_BYTES = 1 << 20
TOLD = "told"
TOLD_FILES = tuple(f"{name}.{TOLD}" for name in (channel.OUT_FILE, channel.ERR_FILE))
MOST_KEEPERS = 16
"""So often what keeps a machine is begun again in one run of its job."""
MOST_STATUS_BYTES = 16
MOST_LEFT = 8
"""So many open files one keeper leaves to the next at most."""
PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGCONT, signal.SIGALRM)
ALL = (*ENDING, *PASSED_ON, signal.SIGUSR1)


class CaughtSignals:
    """Signals as they came, to be asked for when there is time."""

    def __init__(self, before: Sequence[int] = ()) -> None:
        self._caught = list(before)
        self.was_to_save = signal.SIGUSR1 in before
        """Whether the machine was to be saved at any time."""
        for each in ALL:
            signal.signal(each, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._caught.append(number)
        self.was_to_save = self.was_to_save or number == signal.SIGUSR1

    def next(self) -> int | None:
        return self._caught.pop(0) if self._caught else None


@dataclass(frozen=True)
class Keeping:
    """What a process that keeps a machine is given by the one above it."""

    caught: CaughtSignals
    is_first: bool
    """Whether none was killed before it in this run of the job."""
    told_fd: int
    leaving: socket.socket
    left: Sequence[int] = ()
    """Open files that an earlier one has left."""

    def leave(self, fds: Sequence[int]) -> None:
        """These files stay open for the one that is begun if this one is killed."""
        socket.send_fds(self.leaving, [b"f"], list(fds))

    def is_over(self, status: int) -> None:
        """The job is over with that status, whatever becomes of this process now."""
        os.write(self.told_fd, f"{status}\n".encode())


def kept(keep: Callable[[Keeping], int]) -> int:
    """Have a machine kept by a process below this one, which is begun again if it is killed: it finds its
    machine, and whether that is to be saved. One that was told to end is not: the machine goes with the job.

    This process does nothing but wait, so what costs memory or fails is not here; if it is killed itself, the
    batch system takes the job for over, and the other one ends with it.
    """
    told: list[int] = []
    below, own, status = 0, os.getpid(), 0
    over_fd, told_fd = os.pipe()
    os.set_blocking(over_fd, False)
    leaving, leavings = socket.socketpair()
    leavings.setblocking(False)
    left: Sequence[int] = ()

    def pass_on(number: int, frame: FrameType | None) -> None:
        told.append(number)
        with suppress(ProcessLookupError):
            os.kill(below, number)

    for count in range(MOST_KEEPERS):
        # None is lost while it is not known who is to have it.
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        below = os.fork()
        if below == 0:
            _end_with(own)
            caught = CaughtSignals([signal.SIGUSR1] * (signal.SIGUSR1 in told))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)
            status = keep(Keeping(caught, count == 0, told_fd, leaving, left))
            # Python heeds none any more while it ends.
            signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
            return status
        for each in ALL:
            signal.signal(each, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)
        # Its number is nobody else's until it is reaped, when no signal is passed on.
        os.waitid(os.P_PID, below, os.WEXITED | os.WNOWAIT)
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        status = os.waitstatus_to_exitcode(os.waitpid(below, 0)[1])
        if status >= 0:
            return status
        with suppress(BlockingIOError):
            return int(os.read(over_fd, MOST_STATUS_BYTES))
        # Nothing is said of it: the length of the output tells the next one how much of it is there.
        if not set(told).isdisjoint(ENDING):
            break
        left = _left_in(leavings) or left
    print(f"outrider: what keeps the machine was killed ({-status})", file=sys.stderr)  # noqa: T201 - a program's word
    return LOST_STATUS


def _left_in(leavings: socket.socket) -> Sequence[int]:
    with suppress(BlockingIOError):
        found = socket.recv_fds(leavings, 1, MOST_LEFT)[1]
        for fd in found:
            os.set_inheritable(fd, False)
        return found
    return ()


def _end_with(parent: int) -> None:
    """Be killed when that process ends."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(LOST_STATUS)


class Companions:
    """Other machines of the same job; a job of one machine has none."""

    def look(self, machine: Machine) -> MachineStatus | None:
        """Deal with what has become of them; this machine's status, if something was done with it."""
        return None

    def suspend(self, machine: Machine) -> MachineStatus:
        """Suspend this machine, and the others with it."""
        return machine.suspend()

    def resume(self, machine: Machine) -> MachineStatus:
        """Let this machine go on, and the others with it."""
        return machine.resume()


def run(
    machine: Machine,
    wish: MachineWish,
    *,
    grace_s: float,
    caught: CaughtSignals | None = None,
    is_up: Callable[[], None] | None = None,
    others: Companions | None = None,
    is_appended: bool = False,
) -> int:
    """Start the machine, or find it, or resume it; wait for its end; the exit status of its job.

    `is_up` is called once the guest runs, and not if it does not come to that. `is_appended`: what was passed
    on before is in the output, whatever this node sees of that.
    """
    caught, others = caught or CaughtSignals(), others or Companions()
    output = JobOutput(machine, is_appended=is_appended)
    status = _begun(machine, wish, others)
    if is_up is not None and status.record.state in states.RUNS:
        is_up()
    looks, readiness = 0, Readiness(machine)
    while status.record.state not in (*states.OVER, states.SUSPENDED):
        output.pass_on()
        readiness.tell(status.record.wish, status.record.state)
        number = caught.next()
        if number is not None:
            status = _heeded(machine, number, grace_s, others) or status
            continue
        done = others.look(machine)
        if done is not None:
            status = done
            continue
        looks += 1
        has_ended = channel.exit_status(machine.site.disk, machine.folder) is not None
        if has_ended or looks % LOOKS_AT_QEMU == 0:
            status = machine.status()
            if status.guest == "io-error" and looks % (LOOKS_AT_QEMU * 10) == 0:
                # The node's disk was full. Perhaps it is not any more.
                machine.resume()
        else:
            machine.site.clock.sleep(LOOK_S)
    if status.record.state != states.MOVED:
        # What is left is passed on from where it is now.
        output.pass_on()
        readiness.tell(status.record.wish, status.record.state)
    return _ended(machine, status)


def _begun(machine: Machine, wish: MachineWish, others: Companions) -> MachineStatus:
    if not has_record(machine.site.disk, machine.folder):
        return machine.start(wish)
    with suppress(NotInPool):
        status = machine.status()
        if status.record.state == states.SUSPENDED:
            return others.resume(machine)
        return status
    return machine.start(wish)


def _heeded(machine: Machine, number: int, grace_s: float, others: Companions) -> MachineStatus | None:
    try:
        if number == signal.SIGUSR1:
            return others.suspend(machine)
        if number in ENDING:
            return machine.stop(grace_s)
        machine.signal(signal.Signals(number).name[3:])
    except CacheError as error:
        # A machine that could not be saved goes on running: whoever wanted it decides what comes next.
        print(f"outrider: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201 - a program's word
    return None


def _ended(machine: Machine, status: MachineStatus) -> int:
    record = status.record
    if record.state in (states.SUSPENDED, states.MOVED):
        return SUSPENDED_STATUS
    job = record.wish.job
    if record.state == states.ENDED and record.exit_status is not None:
        if job is not None and job.folder is not None and job.brings_back:
            machine.collect()
        return record.exit_status
    if record.state == states.ENDED and job is None:
        return 0
    said = f"machine {record.name} is {record.state}: {record.reason or states.STATES[record.state].meaning}"
    print(f"outrider: {said}", file=sys.stderr)  # noqa: T201 - a program's word
    return LOST_STATUS


def _append_to(fd: int) -> None:
    """The batch system's own last words, which it writes to the same open file, overwrite nothing that comes
    from where the machine goes on by then."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)


class JobOutput:
    """What the guest's job says, passed on to this process' own output.

    How far that has come is written down after each piece, so a process that dies in
    between makes a piece come twice, and never go missing.
    """

    def __init__(self, machine: Machine, fds: tuple[int, int] = (1, 2), *, is_appended: bool = False) -> None:
        self._folder = machine.folder
        self._is_appended = is_appended
        self._fds = fds
        self._at: dict[str, int] = {}
        for fd in fds:
            _append_to(fd)

    def pass_on(self) -> None:
        for name, fd in zip((channel.OUT_FILE, channel.ERR_FILE), self._fds):
            with suppress(FileNotFoundError), open(f"{self._folder}/{name}", "rb") as source:
                at = self._at.get(name)
                source.seek(self._passed_on(name, fd) if at is None else at)
                while True:
                    data = source.read(CHUNK_BYTES)
                    if not data:
                        break
                    view = memoryview(data)
                    while len(view):
                        view = view[os.write(fd, view) :]
                if self._at.get(name) != source.tell():
                    self._at[name] = source.tell()
                    self._write(name, source.tell())

    def _passed_on(self, name: str, fd: int) -> int:
        """How far it had come. If the batch system has emptied its file at this start, all comes again."""
        told, found = self._read(name), os.fstat(fd)
        is_emptied = stat.S_ISREG(found.st_mode) and found.st_size < told
        return 0 if is_emptied and not self._is_appended else told

    def _read(self, name: str) -> int:
        with suppress(OSError, ValueError), open(f"{self._folder}/{name}.{TOLD}", encoding="ascii") as file:
            return int(file.read(32))
        return 0

    def _write(self, name: str, at: int) -> None:
        path = f"{self._folder}/{name}.{TOLD}"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"{at}\n")
        os.replace(f"{path}.new", path)
