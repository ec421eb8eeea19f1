"""A holder job: it holds room on a node for the running machine of another job of the same user.

It waits until that machine comes, keeps it as the job's own script did, and ends as the machine's job ends.
The service knows of all that by the holder's name, which its owner may change: it waits, it is ready, it has
the machine. How the job has ended is noted for its own next run, which does nothing but end so.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import socket
import sys
import threading
from contextlib import closing, suppress

from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.base.errors import BadRequest, CacheError, InUse, NotInPool
from cachemgr.machines import states
from cachemgr.machines.batch.remains import end_machine, images_here, remove_machine
from cachemgr.machines.batch.steps.leaving import LeavingMachine, clear_after
from cachemgr.machines.batch.steps.marks import FOLDER_PREFIX, HAS, HOLDER_NAME, HOLDS, READY, Door
from cachemgr.machines.live.landing import MachineLanding
from cachemgr.machines.machine import Machine
from cachemgr.machines.record import has_record, read_record
from cachemgr.machines.running import SUSPENDED_STATUS, Keeping, kept, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.machines.batch.image import JobImages
    from cachemgr.machines.batch.steps.marks import SavedMark
    from cachemgr.machines.batch.system import BatchJob
    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.live.arriving import MachineOffer
    from cachemgr.machines.wish import MachineWish

COMES_WITHIN_S = 120.0
GRACE_S = 20.0
"""As a job's own script has it between TERM and its end."""
FAILED_STATUS = 125
LOOK_S = 30.0
TRIES, PAUSE_S = 60, 5.0
KEY_BYTES = 32
MOST_NOTE_BYTES = 256


def hold(
    machine: Machine, own: BatchJob, mark: SavedMark, images: JobImages, rate: str, time: str = ""
) -> int:
    """Wait for the machine, and keep it until it is over, saved, or elsewhere again. With a time it ends
    after so many seconds, by itself: there are batch systems that give no word before they kill."""
    if not rate.isdigit() or not int(rate) or not (time or "1").isdigit():
        raise BadRequest(f"a holder job needs a rate and a time, not {rate[:20]!r} and {time[:20]!r}")
    if own.attempt > 0:
        # Its node was lost, or it has saved its machine and was not deleted yet: it holds nothing any more.
        return 0
    until_s = machine.site.clock.monotonic_s() + int(time) if time else None
    # What Slurm shows of a job that went alive before, and then ran by itself, is no file of its own.
    mark.open_outputs()
    _make_room(machine)
    key = secrets.token_bytes(KEY_BYTES)

    def expected(offer: MachineOffer) -> Mapping[str, str]:
        # Whoever is killed from here on has said whose the machine is, and where to look for it.
        HeldNote(machine, own.key).write(offer.token_digest)
        # As its job has them where it runs.
        mark.open_outputs()
        mark.write_outputs()
        mark.write_holder(machine.place, own.key)
        return images_here(own.key, offer.wish, images)

    landing, job = MachineLanding(machine, key, expected), JobWatch(own, machine, LOOK_S / 5)
    with closing(_listener()) as listener:
        port = listener.getsockname()[1]
        mark.write_door(Door(os.uname().nodename, port, key.hex(), int(rate)))
        try:
            if not _called(own, READY, machine):
                raise CacheError(
                    "a holder job's name is not taken: the machine stays where it is; with Grid Engine its "
                    "node has to be a submit host"
                )
            landing.wait(listener, COMES_WITHIN_S, job.is_gone)
        except CacheError:
            if JobWatch(own, machine, 0).is_gone():
                mark.remove()
                mark.remove_rest()
            raise
        finally:
            mark.remove_door()
    # Until that is heard the service takes the machine for being on its way.
    threading.Thread(target=_call_until_heard, args=(own, machine), daemon=True).start()
    wish = read_record(machine.site.disk, machine.folder).wish
    status = kept(lambda given: _keep(machine, wish, own, mark, until_s, given))
    HeldNote(machine, own.key).remove()
    # The job itself ends with it.
    return FAILED_STATUS if status in own.kept_statuses else status


def _keep(
    machine: Machine,
    wish: MachineWish,
    own: BatchJob,
    mark: SavedMark,
    until_s: float | None,
    given: Keeping,
) -> int:
    """As its job's own script does it. A machine that has ended is not begun again here."""
    others = HeldMachine(mark, JobWatch(own, machine, LOOK_S), until_s)
    status = run(machine, wish, grace_s=GRACE_S, caught=given.caught, others=others, is_appended=True)
    if status == SUSPENDED_STATUS:
        if not clear_after(machine, mark):
            mark.write(machine.place)
        return 0
    given.is_over(status)
    if JobWatch(own, machine, 0).is_gone():
        # It was cancelled, and has no next run that would end so.
        mark.remove_rest()
    else:
        mark.write_end(status)
    mark.remove()
    remove_machine(machine)
    return status


class HeldNote:
    """Which machine a holder job has, for the epilog, which knows the holder's number alone. It is in a
    folder of that number, as jobs' machines are."""

    def __init__(self, machine: Machine, holder: str) -> None:
        above, self._name = os.path.split(machine.folder)
        self._folder = f"{above}/{FOLDER_PREFIX}{holder}"
        self._path = f"{self._folder}/{HOLDS}"

    def write(self, token_digest: str) -> None:
        os.makedirs(self._folder, 0o700, exist_ok=True)
        replace_file(RealDisk(), self._path, f"{self._name} {token_digest}\n".encode())

    def remove(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
            os.rmdir(self._folder)


def tidy_held(holder: Machine) -> None:
    """What a holder job that is over has left: its machine, if that came to it and has not gone on from here.
    One of a later run of the same job has another token, and is left alone."""
    try:
        noted = RealDisk().read(f"{holder.folder}/{HOLDS}", MOST_NOTE_BYTES).decode(errors="replace")
    except OSError:
        return
    name, _, digest = noted.strip().partition(" ")
    above, number = os.path.split(holder.folder)
    if name == os.path.basename(name) and name.startswith(FOLDER_PREFIX):
        held = Machine(f"{above}/{name}", holder.site)
        with suppress(CacheError, OSError):
            token = read_record(held.site.disk, held.folder).token
            if digest in (token, hashlib.sha256(token.encode()).hexdigest()):
                end_machine(held, but=(states.SUSPENDED, states.MOVED))
    HeldNote(holder, number[len(FOLDER_PREFIX) :]).remove()


class JobWatch:
    """Whether the job whose machine it is is over, asked for every so many seconds."""

    def __init__(self, own: BatchJob, machine: Machine, every_s: float) -> None:
        self._own, self._clock, self._every_s = own, machine.site.clock, every_s
        self._key = os.path.basename(machine.folder)[len(FOLDER_PREFIX) :]
        self._next_s = 0.0

    def is_gone(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return self._own.is_gone(self._key)


class HeldMachine(LeavingMachine):
    """A machine in a holder job: it goes with the job that it is of, or when its time is over."""

    def __init__(self, mark: SavedMark, job: JobWatch, until_s: float | None) -> None:
        super().__init__(mark)
        self._job, self._until_s = job, until_s

    def look(self, machine: Machine) -> MachineStatus | None:
        is_late = self._until_s is not None and machine.site.clock.monotonic_s() >= self._until_s
        return machine.stop(GRACE_S) if is_late or self._job.is_gone() else None


def _make_room(machine: Machine) -> None:
    """What is left of an earlier stay: void if the machine was given away from here, or lost."""
    machine.make_folder()
    if not has_record(machine.site.disk, machine.folder):
        return
    try:
        record = machine.status().record
    except NotInPool:
        # It was on its way here, and nothing of it had run.
        return
    if record.state not in (states.MOVED, states.LOST):
        raise InUse(f"machine {record.name} is {record.state} here: it cannot come")
    machine.remove()


def _listener() -> socket.socket:
    """On all addresses: which of them the other node sees, nobody knows here."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _called(own: BatchJob, word: str, machine: Machine) -> bool:
    """Have the batch system call this job so."""
    return own.is_called(HOLDER_NAME.format(word, os.path.basename(machine.folder)[len(FOLDER_PREFIX) :]))


def _call_until_heard(own: BatchJob, machine: Machine) -> None:
    for _ in range(TRIES):
        if _called(own, HAS, machine):
            return
        machine.site.clock.sleep(PAUSE_S)
    print("outrider: nobody hears that the machine is here: it ends", file=sys.stderr)  # noqa: T201 - a program's word
    os.kill(os.getpid(), signal.SIGTERM)
