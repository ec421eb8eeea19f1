"""A suspended machine that changes its place: its files are carried, then the right to run it.

The files of a suspended machine do not change, so they are carried while it still belongs to where it
is. Then `give` writes down there that it is elsewhere, for good, and only then says the token without
which `take` does nothing. So at every instant one place at most may run it, whatever is lost or repeated.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from dataclasses import asdict, dataclass

from cachemgr.base.errors import BadRequest, InUse, NotAllowed, PoolDamaged
from cachemgr.machines import states
from cachemgr.machines.qemu.digests import check_files
from cachemgr.machines.record import MachineRecord, QemuFacts, SavedFile, has_record
from cachemgr.machines.troubles import disk_trouble
from cachemgr.machines.wish import MachineWish, read_wish, relocated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cachemgr.base.disk import Disk
    from cachemgr.machines.keeper import MachineKeeper
    from cachemgr.machines.machine import Machine

TOKEN_BYTES = 16
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class MachineParcel:
    """What goes with the files of a suspended machine to its next place, and to no other."""

    wish: MachineWish
    generation: int
    saved: Mapping[str, SavedFile]
    qemu: QemuFacts
    source: str
    target: str
    token: str
    pauses_ms: tuple[int, ...] = ()
    first: int = 1
    together: str = ""

    def encode(self) -> dict[str, object]:
        return asdict(self)


def read_parcel(plain: Mapping[str, Any]) -> MachineParcel:
    try:
        return MachineParcel(
            wish=read_wish(plain["wish"]),
            generation=int(plain["generation"]),
            first=int(plain.get("first", 1)),
            saved={str(name): SavedFile(**each) for name, each in plain["saved"].items()},
            qemu=QemuFacts(**plain["qemu"]),
            source=str(plain["source"]),
            target=str(plain["target"]),
            token=str(plain["token"]),
            pauses_ms=tuple(plain["pauses_ms"]),
            together=str(plain.get("together", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PoolDamaged(f"this describes no machine on its way: {error}") from error


def give(machine: Machine, target: str) -> MachineParcel:
    """Give a suspended machine away, to one place. Asked again, the same is said again."""
    with machine.alone():
        record = machine.known("be given away")
        if record.state == states.SUSPENDED:
            if target == machine.place:
                raise BadRequest(f"machine {record.name} is in {target} already")
            record = machine.write(
                record.stepped(states.MOVED, moving_to=target, next_token=secrets.token_hex(TOKEN_BYTES))
            )
        elif record.state != states.MOVED or not record.saved:
            raise states.refused(record.name, record.state, "be given away: suspend it first", record.reason)
        if record.moving_to != target:
            raise InUse(
                f"machine {record.name} was given to {record.moving_to}: it cannot go to {target} as well"
            )
        assert record.qemu is not None
        return MachineParcel(
            record.wish,
            record.generation,
            record.saved,
            record.qemu,
            record.place,
            record.moving_to,
            record.next_token,
            record.pauses_ms,
            record.first,
            record.together,
        )


def take(machine: Machine, parcel: MachineParcel, paths: Mapping[str, str]) -> MachineRecord:
    """Take over a machine whose files have been carried here, after comparing all of them.

    `paths` say where files that are not the machine's own (images, a kernel) lie here.
    """
    if parcel.target != machine.place:
        raise NotAllowed(
            f"machine {parcel.wish.name} was given to {parcel.target} and not to {machine.place}"
        )
    machine.make_folder()
    with machine.alone():
        if has_record(machine.site.disk, machine.folder):
            record = machine.known()
            if record.token == parcel.token:
                return record
            raise InUse(
                f"{machine.folder} holds another machine, {record.name}: remove it, or name another folder"
            )
        with disk_trouble(f"taking over the machine {parcel.wish.name}"):
            check_files(machine.site.disk, machine.folder, parcel.saved)
        return machine.write(
            MachineRecord(
                wish=relocated(parcel.wish, paths),
                state=states.SUSPENDED,
                place=machine.place,
                token=parcel.token,
                generation=parcel.generation,
                first=parcel.first,
                qemu=parcel.qemu,
                saved=parcel.saved,
                pauses_ms=parcel.pauses_ms,
                together=parcel.together,
            )
        )


def copy_files(disk: Disk, source: MachineKeeper, target: MachineKeeper, names: list[str]) -> None:
    """Carry files between two folders of one node; between nodes this is a transfer like any other."""
    target.make_folder()
    for name in names:
        if os.sep in name:
            raise BadRequest(f"{name[:80]!r} is not a file of a machine")
        path = f"{target.folder}/{name}"
        with disk_trouble(f"carrying {name}"):
            if disk.exists(path):
                disk.remove(path)
            disk.create(path, 0o600).close()
            copy_bytes(disk, f"{source.folder}/{name}", path)


def copy_bytes(disk: Disk, source: str, target: str) -> None:
    """The bytes of one file into another that is there; synced."""
    with closing(disk.open(source)) as there, closing(disk.open(target, for_writing=True)) as here:
        at = 0
        while True:
            data = there.read_at(at, CHUNK_BYTES)
            if not data:
                break
            here.write_at(at, data)
            at += len(data)
        here.sync()
