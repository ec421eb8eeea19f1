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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from cachemgr.base.errors import BadRequest, CacheError, NotInPool
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.handover import TOKEN_BYTES, copy_bytes, copy_files
from cachemgr.machines.keeper import check_user
from cachemgr.machines.live import arriving
from cachemgr.machines.live.arriving import DISK_SOCKET, MEMORY_SOCKET, SWITCH_S, MachineOffer
from cachemgr.machines.qemu.digests import digest_file
from cachemgr.machines.qemu.mirror import end_mirror, expect_migration, gets_less, mirror, wait_for_mirror
from cachemgr.machines.qemu.saving import NO_LIMIT_BYTES_PER_S
from cachemgr.machines.running import TOLD_FILES
from cachemgr.machines.troubles import disk_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Protocol

    from cachemgr.machines.machine import Machine
    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.record import MachineRecord

    class MachineTarget(Protocol):
        """The place that a running machine goes to."""

        @property
        def place(self) -> str: ...

        def turn_away(self, name: str) -> None: ...

        def carry(self, source: Machine, names: Sequence[str]) -> None:
            """Have files there that do not change."""

        def receive(self, offer: MachineOffer) -> None: ...

        def sockets(self, source: Machine) -> AbstractContextManager[int]:
            """A folder that is open, in which the source's QEMU finds the sockets of the one over there."""

        def wait_until_loaded(self) -> None: ...

        def append(self, source: Machine, names: Sequence[str]) -> None:
            """Have what the guest has said so far stand before what it will say there."""

        def arrive(self, token: str) -> None: ...


LIMIT_S = 3600.0
TRANSLATED = "tcg"
"""Such a guest stands still while its memory is sent. With QEMU 7.2 some crashed otherwise, when theirs was
sent at 2.2 MB/s: it seems to miss some of what they write meanwhile. Eleven that stood still lost nothing."""


@dataclass(frozen=True)
class MigrationFigures:
    """What a migration took."""

    disk_ms: int
    memory_ms: int
    memory_bytes: int
    pause_ms: int


def migrate(
    source: Machine,
    target: MachineTarget,
    *,
    limit_s: float = LIMIT_S,
    rate_bytes_per_s: int = NO_LIMIT_BYTES_PER_S,
) -> MigrationFigures | None:
    """Move a running machine to another place; None if it had been moved already.

    Each disk, then the memory, is sent at most so fast; one at a time, the rest while the guest stands still
    at any rate. After an error it runs where it was. Called again after a crash it goes on, or begins anew.
    """
    check_user()
    with source.alone():
        record = source.known("be migrated")
        if record.state == states.MOVED and record.moving_to == target.place:
            try:
                target.arrive(record.next_token)
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
        target.turn_away(record.name)
        token = secrets.token_hex(TOKEN_BYTES)
        record = source.write(record.stepped(states.LEAVING, moving_to=target.place, next_token=token))
        try:
            offer = _offer(source, record)
            target.carry(source, sorted(offer.fixed))
            target.receive(offer)
            with source.monitor() as monitor:
                figures, stopped_s = _send(source, target, record, monitor, limit_s, rate_bytes_per_s)
                record = source.write(record.stepped(states.MOVED, saved={}))
                target.arrive(token)
                pause_ms = int((source.site.clock.monotonic_s() - stopped_s) * 1000)
                source.end_qemu(asked=monitor)
            source.drop(record, keeps_layers=False)
        except BaseException as error:
            if record.state == states.LEAVING:
                with suppress(CacheError, OSError):
                    source.going_on(record, f"a migration to {target.place} failed: {error}")
                with suppress(CacheError, OSError):
                    target.turn_away(record.name)
            raise
        return replace(figures, pause_ms=pause_ms)


class OtherFolder:
    """A place on the same node, of the same user."""

    def __init__(self, machine: Machine, paths: Mapping[str, str]) -> None:
        """`paths` say where images lie for it."""
        self._machine, self._paths = machine, paths

    @property
    def place(self) -> str:
        return self._machine.place

    def turn_away(self, name: str) -> None:
        arriving.turn_away(self._machine, name)

    def carry(self, source: Machine, names: Sequence[str]) -> None:
        copy_files(source.site.disk, source, self._machine, list(names))

    def receive(self, offer: MachineOffer) -> None:
        arriving.receive(self._machine, offer, self._paths)

    @contextmanager
    def sockets(self, source: Machine) -> Iterator[int]:
        folder_fd = os.open(self._machine.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder_fd
        finally:
            os.close(folder_fd)

    def wait_until_loaded(self) -> None:
        arriving.wait_until_loaded(self._machine)

    def append(self, source: Machine, names: Sequence[str]) -> None:
        for name in names:
            with disk_trouble(f"carrying {name}"):
                copy_bytes(source.site.disk, f"{source.folder}/{name}", f"{self._machine.folder}/{name}")

    def arrive(self, token: str) -> None:
        arriving.arrive(self._machine, token)


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
    target: MachineTarget,
    record: MachineRecord,
    monitor: QemuMonitor,
    limit_s: float,
    rate_bytes_per_s: int,
) -> tuple[MigrationFigures, float]:
    """Everything that the target needs; the guest has stopped here and not yet begun there."""
    clock = source.site.clock
    began_s, stopped_s = clock.monotonic_s(), None
    with target.sockets(source) as folder_fd:
        there = f"/proc/self/fd/{monitor.command('add-fd', {}, fd=folder_fd)['fd']}"
        for each in record.wish.writable:
            node = f"{each.name}-{record.generation}"
            mirror(monitor, each.name, node, f"{there}/{DISK_SOCKET}", rate_bytes_per_s)
            if not gets_less(monitor, each.name):
                # It writes more than can be sent. QEMU 7.2 could let it wait with each write for the other
                # end (write-blocking), but was seen to crash so when that was gone.
                if stopped_s is None:
                    monitor.command("stop")
                    stopped_s = clock.monotonic_s()
                wait_for_mirror(monitor, each.name, limit_s)
        mirrored_s = clock.monotonic_s()
        capabilities = [
            {"capability": name, "state": name != "x-ignore-shared"}
            for name in ("pause-before-switchover", "auto-converge", "x-ignore-shared")
        ]
        monitor.command("migrate-set-capabilities", {"capabilities": capabilities})
        monitor.command("migrate-set-parameters", {"max-bandwidth": rate_bytes_per_s})
        is_translated = record.qemu is not None and record.qemu.accelerator == TRANSLATED
        if is_translated and stopped_s is None:
            monitor.command("stop")
            stopped_s = clock.monotonic_s()
        monitor.command("migrate", {"uri": f"unix:{there}/{MEMORY_SOCKET}"})
        expect_migration(monitor, "pre-switchover", limit_s)
        stopped_s = clock.monotonic_s() if stopped_s is None else stopped_s
        for each in record.wish.writable:
            end_mirror(monitor, each.name, SWITCH_S)
        monitor.command("migrate-continue", {"state": "pre-switchover"})
        found = expect_migration(monitor, "completed", SWITCH_S)
        target.append(source, channel.outputs_here(record.wish))
        # How much of them was passed on does not change before it is over there, where that goes on.
        target.carry(source, [name for name in TOLD_FILES if os.path.exists(f"{source.folder}/{name}")])
        target.wait_until_loaded()
    sent_s = clock.monotonic_s()
    memory_bytes = int(found.get("ram", {}).get("transferred", 0))
    disk_ms, memory_ms = int((mirrored_s - began_s) * 1000), int((sent_s - mirrored_s) * 1000)
    return MigrationFigures(disk_ms, memory_ms, memory_bytes, 0), stopped_s
