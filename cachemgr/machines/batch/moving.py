"""A job's suspended machine that goes on at another node: what is done on both, with its user's rights.

    machine move arrive JOB     on the node that it comes to: fetch its files, take it once it is given
    machine move give JOB       on the node that it leaves, once all files are over there and compared
    machine move drop JOB       there, once it was taken

Each may be called twice, late or never. Until `give` the machine belongs to where it was saved; from then
on its record there is void, and says to which place it went. What is to be known comes as JSON on standard
input, what came of it goes to standard output. The record that `give` writes is the parcel: it is read from
the other node as the files are, so that nobody in between has the token.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import closing, contextmanager, suppress

from cachemgr.base.errors import (
    BadRequest,
    CacheError,
    InUse,
    NotAllowed,
    NotInPool,
    SourceFailed,
    WrongBytes,
)
from cachemgr.base.rate import RateLimit
from cachemgr.machines import states
from cachemgr.machines.handover import MachineParcel, give, take
from cachemgr.machines.keeper import OWN_FILE
from cachemgr.machines.qemu.digests import is_as_saved
from cachemgr.machines.record import FILE, MOST_BYTES, has_record, read_record, record_in
from cachemgr.machines.running import TOLD
from cachemgr.machines.troubles import disk_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    from collections.abc import Iterator, Mapping

    from cachemgr.machines.machine import Machine
    from cachemgr.machines.record import MachineRecord, SavedFile

MOVE = "move"
ARRIVE, GIVE, DROP = "arrive", "give", "drop"
STEPS = (ARRIVE, GIVE, DROP)
FETCHED, TAKEN, GIVEN, DROPPED = "fetched", "taken", "given", "dropped"
TIMEOUT_S = 60.0
OUTPUTS = ("out", "err")
MOST_TOLD_BYTES = 100
PIECE_BYTES = 256 << 10


class RelayedFiles:
    """The files of a machine on another node, as that node's relay gives them to its user."""

    def __init__(self, address: str, path: str, ticket: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise BadRequest(f"{address[:80]!r} is not the address of a relay")
        self._host, self._port = host.strip("[]"), int(port)
        self._path = path
        self._headers = {"Authorization": f"Outrider {ticket}", "Connection": "close"}

    @contextmanager
    def open(self, name: str, offset: int = 0) -> Iterator[http.client.HTTPResponse]:
        """A file from some byte on."""
        # Every job in a machine imports this module, and would wait for that one.
        import http.client

        headers = {**self._headers, "Range": f"bytes={offset}-"} if offset else self._headers
        with closing(http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)) as connection:
            try:
                connection.request("GET", f"{self._path}/{name}", headers=headers)
                answer = connection.getresponse()
                if answer.status == 404:
                    raise NotInPool(f"there is no {name} of the machine on its node")
                if answer.status != (206 if offset else 200):
                    words = answer.read(200).decode(errors="replace").strip()
                    raise SourceFailed(f"the node of the machine says {answer.status}: {words}")
                yield answer
            except (OSError, http.client.HTTPException) as error:
                raise SourceFailed(f"the node of the machine does not send {name}: {error}") from error

    def record(self) -> MachineRecord:
        """The machine's record as it is there now."""
        with self.open(FILE) as answer:
            data = answer.read(MOST_BYTES)
        return record_in(data, f"{FILE} of the other node")


def arrive(machine: Machine, there: RelayedFiles, limit: RateLimit) -> str:
    """Have all files of a machine here; take it, if it was given to this place. How far that is."""
    with _alone(machine):
        _make_room(machine, there)
        if has_record(machine.site.disk, machine.folder):
            _check_is_this(machine, there)
            return TAKEN
        record = there.record()
        if record.state not in (states.SUSPENDED, states.MOVED) or not record.saved:
            raise states.refused(record.name, record.state, "be moved: suspend it first", record.reason)
        if record.state == states.MOVED and record.moving_to != machine.place:
            raise NotAllowed(f"machine {record.name} was given to {record.moving_to}")
        with disk_trouble(f"bringing the machine {record.name}"):
            for name in sorted(record.saved):
                _bring(machine, there, name, record.saved[name], limit)
            machine.site.disk.sync_folder(machine.folder)
        machine.check_qemu(record.name, record.qemu)
        if record.state == states.SUSPENDED:
            return FETCHED
        _bring_told(machine, there)
        try:
            take(machine, _parcel(record), {})
        except WrongBytes:
            # What came before a crash was not compared: all of it is fetched again.
            remove_arrivals(machine)
            raise
        return TAKEN


def given(machine: Machine, place: str) -> str:
    """Give it away for good; the void record stays until the machine is taken over there."""
    give(machine, place)
    return GIVEN


def dropped(machine: Machine) -> str:
    """Remove what a machine has left that runs elsewhere by now."""
    if has_record(machine.site.disk, machine.folder):
        record = read_record(machine.site.disk, machine.folder)
        if record.state != states.MOVED:
            raise InUse(f"machine {record.name} is {record.state} and was not given away")
        machine.remove()
    return DROPPED


def remove_arrivals(machine: Machine) -> None:
    """Files that came and were never taken; without a record nothing can run from them."""
    if not has_record(machine.site.disk, machine.folder):
        for name in os.listdir(machine.folder):
            if OWN_FILE.fullmatch(name):
                os.unlink(f"{machine.folder}/{name}")


def _make_room(machine: Machine, there: RelayedFiles) -> None:
    """What is left of an earlier stay: void if the machine was given away from here, or lost, or was on its
    way here alive until it was saved over there."""
    if not has_record(machine.site.disk, machine.folder):
        return
    try:
        record = machine.status().record
    except NotInPool:
        # It was on its way here alive, and nothing of it had run.
        return
    if record.state in (states.MOVED, states.LOST):
        machine.remove()
    elif record.state == states.ARRIVING and there.record().state == states.SUSPENDED:
        # Every job in a machine imports this module, and few of them move alive.
        from cachemgr.machines.live.arriving import turn_away

        turn_away(machine, record.name)
    elif record.state != states.SUSPENDED or record.place != machine.place:
        raise InUse(f"machine {record.name} is {record.state} here")


def _check_is_this(machine: Machine, there: RelayedFiles) -> None:
    """A machine of an earlier run of the job may be saved here: the other node tells, as long as it can."""
    try:
        record = there.record()
    except (SourceFailed, NotInPool):
        return
    if record.moving_to != machine.place:
        raise InUse(f"{machine.folder} holds an earlier machine of this job: remove it")


def _bring(machine: Machine, there: RelayedFiles, name: str, saved: SavedFile, limit: RateLimit) -> None:
    """One file, going on where an earlier attempt ended. Its digest is compared when it is whole."""
    if not OWN_FILE.fullmatch(name) or name == FILE:
        raise BadRequest(f"{name[:80]!r} is not a file of a machine")
    path = f"{machine.folder}/{name}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        at = os.fstat(file).st_size
        if at == saved.size_bytes and at:
            return
        if at > saved.size_bytes:
            os.ftruncate(file, 0)
            at = 0
        if at < saved.size_bytes:
            with there.open(name, at) as answer:
                while at < saved.size_bytes:
                    data = answer.read(min(PIECE_BYTES, saved.size_bytes - at))
                    if not data:
                        raise SourceFailed(f"{name} ends at {at} of {saved.size_bytes} bytes")
                    limit.take(len(data))
                    with disk_trouble(f"writing {path}"):
                        at += os.pwrite(file, data, at)
        os.fsync(file)
    finally:
        os.close(file)
    if not is_as_saved(machine.site.disk, path, saved):
        os.unlink(path)
        raise WrongBytes(f"{name} has come with another digest than it was saved with: it is fetched again")


def _bring_told(machine: Machine, there: RelayedFiles) -> None:
    """How much of the job's output has been passed on: what is said twice or never is no damage to the
    machine, so these have no digest."""
    for name in OUTPUTS:
        with suppress(NotInPool):
            with there.open(f"{name}.{TOLD}") as answer:
                data = answer.read(MOST_TOLD_BYTES)
            with disk_trouble(f"writing {name}.{TOLD}"):
                path = f"{machine.folder}/{name}.{TOLD}"
                with open(f"{path}.new", "wb") as file:
                    file.write(data)
                os.replace(f"{path}.new", path)


def _parcel(record: MachineRecord) -> MachineParcel:
    if record.qemu is None:
        raise CacheError(f"it is not known by which QEMU machine {record.name} was saved")
    return MachineParcel(
        wish=record.wish,
        generation=record.generation,
        saved=record.saved,
        qemu=record.qemu,
        source=record.place,
        target=record.moving_to,
        token=record.next_token,
        pauses_ms=record.pauses_ms,
        first=record.first,
        together=record.together,
    )


@contextmanager
def _alone(machine: Machine) -> Iterator[None]:
    """One arrival at a time, also beside one that an earlier daemon has begun."""
    machine.make_folder()
    folder = os.open(machine.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InUse(f"{machine.folder} is being filled already") from error
    finally:
        os.close(folder)


def step(machine: Machine, name: str, wanted: Mapping[str, object]) -> dict[str, str]:
    """Carry out a step; what is told of it."""
    if name == ARRIVE:
        there = RelayedFiles(str(wanted["source"]), str(wanted["path"]), str(wanted["ticket"]))
        rate = wanted.get("rate_bytes_per_s")
        limit = RateLimit(rate if isinstance(rate, int) and rate > 0 else None, machine.site.clock)
        state = arrive(machine, there, limit)
    elif name == GIVE:
        state = given(machine, str(wanted["place"]))
    else:
        state = dropped(machine)
    return {"state": state, "place": machine.place}


def read_wanted(text: str) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise BadRequest("what is to be moved is not JSON") from error
    if not isinstance(found, dict):
        raise BadRequest("what is to be moved is not an object")
    return found
