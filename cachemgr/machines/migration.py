"""Live migration: a running machine goes to another folder, on this node or another, and hardly stops.

The disks' layers that are frozen are files and are carried as files; what the running layer holds is
mirrored while the guest runs, then its memory; the guest stops for the rest alone. Until `moved`
is written at the source, the source is the machine and the target is thrown away after any trouble;
from then on the target is, and the source never runs again. The token that lets the target run is
said by the source in that one step.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace

from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed, NotInPool
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.handover import TOKEN_BYTES, copy_bytes, copy_files
from cachemgr.machines.keeper import check_user
from cachemgr.machines.qemu.digests import check_files, digest_file
from cachemgr.machines.qemu.layers import make_layers
from cachemgr.machines.qemu.mirror import end_mirror, expect_migration, mirror, wait_for_mirror
from cachemgr.machines.qemu.monitor import QemuRefused
from cachemgr.machines.qemu.saving import NO_LIMIT_BYTES_PER_S
from cachemgr.machines.record import MachineRecord, QemuFacts, SavedFile, has_record
from cachemgr.machines.troubles import disk_trouble
from cachemgr.machines.wish import relocated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.disk import Disk
    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.wish import MachineWish

MEMORY_SOCKET, DISK_SOCKET = "memory.sock", "disk.sock"
SWITCH_S = 60.0
LIMIT_S = 3600.0
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


@dataclass(frozen=True)
class MigrationFigures:
    """What a migration took."""

    disk_ms: int
    memory_ms: int
    memory_bytes: int
    pause_ms: int


def migrate(
    source: Machine,
    target: Machine,
    paths: Mapping[str, str],
    *,
    limit_s: float = LIMIT_S,
    rate_bytes_per_s: int = NO_LIMIT_BYTES_PER_S,
) -> MigrationFigures | None:
    """Move a running machine to another folder of this node; None if it had been moved already.

    Each disk, then the memory, is sent at most so fast; one at a time, the rest while the guest stands still
    at any rate. After an error it runs where it was. Called again after a crash it goes on, or begins anew.
    """
    check_user()
    with source.alone():
        record = source.known("be migrated")
        if record.state == states.MOVED and record.moving_to == target.place:
            try:
                arrive(target, record.next_token)
            except NotInPool as error:
                raise NotInPool(
                    f"machine {record.name} moved to {target.place} and is not there any more: it has ended "
                    "and was removed, or died before it ran"
                ) from error
            source.drop(record, keeps_layers=False)
            return None
        if record.state != states.RUNNING:
            raise states.refused(record.name, record.state, "be migrated", record.reason)
        record = source.unmerged(record)
        if target.place == source.place:
            raise BadRequest(f"machine {record.name} is in {target.place} already")
        turn_away(target, record.name)
        token = secrets.token_hex(TOKEN_BYTES)
        record = source.write(record.stepped(states.LEAVING, moving_to=target.place, next_token=token))
        try:
            offer = _offer(source, record)
            copy_files(source.site.disk, source, target, sorted(offer.fixed))
            receive(target, offer, paths)
            with source.monitor() as monitor:
                figures, stopped_s = _send(source, target, record, monitor, limit_s, rate_bytes_per_s)
                record = source.write(record.stepped(states.MOVED, saved={}))
                arrive(target, token)
                pause_ms = int((source.site.clock.monotonic_s() - stopped_s) * 1000)
                source.end_qemu(asked=monitor)
            source.drop(record, keeps_layers=False)
        except BaseException as error:
            if record.state == states.LEAVING:
                with suppress(CacheError, OSError):
                    source.going_on(record, f"a migration to {target.place} failed: {error}")
                with suppress(CacheError, OSError):
                    turn_away(target, record.name)
            raise
        return replace(figures, pause_ms=pause_ms)


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


def _offer(source: Machine, record: MachineRecord) -> MachineOffer:
    assert record.qemu is not None
    fixed = dict(record.saved)
    with disk_trouble(f"looking at the machine {record.name}"):
        for name, _ in channel.extra_disks(source.folder, record.wish):
            file_name = channel.FILES[name]
            fixed[file_name] = digest_file(source.site.disk, f"{source.folder}/{file_name}")
    return MachineOffer(
        record.wish,
        record.generation,
        record.first,
        record.qemu,
        record.place,
        record.moving_to,
        hashlib.sha256(record.next_token.encode()).hexdigest(),
        fixed,
    )


def _send(
    source: Machine,
    target: Machine,
    record: MachineRecord,
    monitor: QemuMonitor,
    limit_s: float,
    rate_bytes_per_s: int,
) -> tuple[MigrationFigures, float]:
    """Everything that the target needs; the guest has stopped here and not yet begun there."""
    clock = source.site.clock
    began_s = clock.monotonic_s()
    folder_fd = os.open(target.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        there = f"/proc/self/fd/{monitor.command('add-fd', {}, fd=folder_fd)['fd']}"
    finally:
        os.close(folder_fd)
    for each in record.wish.writable:
        node = f"{each.name}-{record.generation}"
        mirror(monitor, each.name, node, f"{there}/{DISK_SOCKET}", rate_bytes_per_s)
        wait_for_mirror(monitor, each.name, limit_s)
    mirrored_s = clock.monotonic_s()
    capabilities = [
        {"capability": name, "state": name != "x-ignore-shared"}
        for name in ("pause-before-switchover", "auto-converge", "x-ignore-shared")
    ]
    monitor.command("migrate-set-capabilities", {"capabilities": capabilities})
    monitor.command("migrate-set-parameters", {"max-bandwidth": rate_bytes_per_s})
    monitor.command("migrate", {"uri": f"unix:{there}/{MEMORY_SOCKET}"})
    expect_migration(monitor, "pre-switchover", limit_s)
    stopped_s = clock.monotonic_s()
    for each in record.wish.writable:
        end_mirror(monitor, each.name, SWITCH_S)
    monitor.command("migrate-continue", {"state": "pre-switchover"})
    found = expect_migration(monitor, "completed", SWITCH_S)
    _append_outputs(source.site.disk, source, target, record.wish)
    _wait_until_loaded(target)
    sent_s = clock.monotonic_s()
    memory_bytes = int(found.get("ram", {}).get("transferred", 0))
    disk_ms, memory_ms = int((mirrored_s - began_s) * 1000), int((sent_s - mirrored_s) * 1000)
    return MigrationFigures(disk_ms, memory_ms, memory_bytes, 0), stopped_s


def _wait_until_loaded(target: Machine) -> None:
    """The target has everything and its guest does not run yet."""
    clock = target.site.clock
    until_s = clock.monotonic_s() + SWITCH_S
    with target.alone(), target.monitor() as monitor:
        while monitor.status() == "inmigrate":
            if clock.monotonic_s() >= until_s:
                raise CacheError(f"the machine did not arrive in {target.folder} within {SWITCH_S:.0f} s")
            clock.sleep(PAUSE_S)


def _append_outputs(disk: Disk, source: Machine, target: Machine, wish: MachineWish) -> None:
    """What the guest has said so far stands before what it will say there: QEMU there appends."""
    for name in channel.outputs_here(wish):
        with disk_trouble(f"carrying {name}"):
            copy_bytes(disk, f"{source.folder}/{name}", f"{target.folder}/{name}")
