"""What is done where a running machine comes to: a QEMU that waits, and the step by which it runs there."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.qemu.digests import check_files
from cachemgr.machines.qemu.layers import make_layers
from cachemgr.machines.qemu.monitor import QemuRefused
from cachemgr.machines.record import MachineRecord, QemuFacts, SavedFile, has_record
from cachemgr.machines.troubles import disk_trouble
from cachemgr.machines.wish import read_wish, relocated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.wish import MachineWish

MEMORY_SOCKET, DISK_SOCKET = "memory.sock", "disk.sock"
SWITCH_S = 60.0
PAUSE_S = 0.005


@dataclass(frozen=True)
class MachineOffer:
    """What the target has to know before anything comes."""

    wish: MachineWish
    generation: int
    first: int
    qemu: QemuFacts
    source: str
    target: str
    token_digest: str
    fixed: Mapping[str, SavedFile]
    """Files that are carried beforehand: frozen layers, and disks that are only read."""

    def encode(self) -> dict[str, object]:
        return asdict(self)


def read_offer(plain: Mapping[str, Any]) -> MachineOffer:
    """What came from another node."""
    try:
        return MachineOffer(
            wish=read_wish(plain["wish"]),
            generation=int(plain["generation"]),
            first=int(plain["first"]),
            qemu=QemuFacts(**plain["qemu"]),
            source=str(plain["source"]),
            target=str(plain["target"]),
            token_digest=str(plain["token_digest"]),
            fixed={str(name): SavedFile(**each) for name, each in plain["fixed"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"this describes no machine that comes: {error}") from error


def receive(target: Machine, offer: MachineOffer, paths: Mapping[str, str]) -> None:
    """Make ready for a machine: a QEMU that waits, an empty layer over those that were carried here."""
    if offer.target != target.place:
        raise NotAllowed(
            f"machine {offer.wish.name} is on its way to {offer.target} and not to {target.place}"
        )
    target.make_folder()
    disk = target.site.disk
    with target.alone():
        if has_record(disk, target.folder):
            raise InUse(f"{target.folder} holds a machine already: remove it, or name another folder")
        target.check_qemu(offer.wish.name, offer.qemu)
        with disk_trouble(f"receiving the machine {offer.wish.name}"):
            check_files(disk, target.folder, offer.fixed)
            record = target.write(
                MachineRecord(
                    wish=relocated(offer.wish, paths),
                    state=states.ARRIVING,
                    place=target.place,
                    token=offer.token_digest,
                    generation=offer.generation,
                    first=offer.first,
                    qemu=offer.qemu,
                    saved={name: each for name, each in offer.fixed.items() if name.endswith(".qcow2")},
                    moving_to=offer.source,
                )
            )
            make_layers(disk, record.wish, target.folder, record.generation, record.first)
            for name in channel.outputs_here(record.wish):
                channel.write(disk, f"{target.folder}/{name}", b"")
        folder_fd = os.open(target.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with target.launched(record, is_incoming=True, fds=(folder_fd,)) as monitor:
                here = f"/proc/self/fd/{folder_fd}"
                monitor.command(
                    "nbd-server-start", {"addr": {"type": "unix", "data": {"path": f"{here}/{DISK_SOCKET}"}}}
                )
                for each in record.wish.writable:
                    node = f"{each.name}-{record.generation}"
                    monitor.command(
                        "block-export-add",
                        {
                            "type": "nbd",
                            "id": f"e-{each.name}",
                            "node-name": node,
                            "name": each.name,
                            "writable": True,
                        },
                    )
                monitor.command("migrate-incoming", {"uri": f"unix:{here}/{MEMORY_SOCKET}"})
        finally:
            os.close(folder_fd)


def wait_until_loaded(target: Machine) -> None:
    """The target has everything and its guest does not run yet."""
    clock = target.site.clock
    until_s = clock.monotonic_s() + SWITCH_S
    with target.alone(), target.monitor() as monitor:
        while monitor.status() == "inmigrate":
            if clock.monotonic_s() >= until_s:
                raise CacheError(f"the machine did not arrive in {target.folder} within {SWITCH_S:.0f} s")
            clock.sleep(PAUSE_S)


def arrive(target: Machine, token: str) -> MachineStatus:
    """The source has written that it is over there: the machine runs here. Asked again, it runs on."""
    with target.alone():
        record = target.known("arrive")
        if record.state != states.ARRIVING:
            if record.token == token:
                return target.status_of(record)
            raise NotAllowed(f"machine {record.name} in {target.folder} was not sent with this token")
        if hashlib.sha256(token.encode()).hexdigest() != record.token:
            raise NotAllowed(f"machine {record.name} in {target.folder} was not sent with this token")
        with target.monitor() as monitor:
            # Refused if whoever was here before has come that far.
            with suppress(QemuRefused):
                monitor.command("nbd-server-stop")
            record = target.write(record.stepped(states.RUNNING, token=token, moving_to=""))
            # A guest that was shut down on its way has ended, as whoever looks next will say.
            if monitor.status() != "shutdown":
                monitor.command("cont")
        for name in (MEMORY_SOCKET, DISK_SOCKET):
            with suppress(FileNotFoundError):
                target.site.disk.remove(f"{target.folder}/{name}")
        return target.status_of(record)


def turn_away(target: Machine, name: str) -> None:
    """Throw away what has arrived so far of a machine that stays where it is; the source says so."""
    if not has_record(target.site.disk, target.folder):
        return
    with target.alone():
        record = target.settled()
        if record is None:
            return
        if record.state != states.ARRIVING or record.name != name:
            raise InUse(
                f"{target.folder} holds machine {record.name}, which is {record.state}: name another folder"
            )
        target.forgotten(record)
