"""What every verb of a machine stands on: its lock, its record, its QEMU, and the end of what a crash left.

A machine is settled before anything is done with it: the table of states says what a state means when
nobody is working on the machine any more, and the methods here do that.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, CacheError, NotAllowed, NotInPool, Unsuitable
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.qemu import process
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.machines.qemu.command import CommandParts, command_line, disk_devices, most_file_bytes
from cachemgr.machines.qemu.layers import layer_name, layers_of, remove_layers, thaw, virtual_bytes
from cachemgr.machines.qemu.memory import make_memory
from cachemgr.machines.qemu.merging import dismiss_merge, merge_is_done
from cachemgr.machines.qemu.mirror import let_go_of_mirrors
from cachemgr.machines.qemu.monitor import QemuGone, QemuMonitor, QemuRefused, listening
from cachemgr.machines.record import FILE, MachineRecord, QemuFacts, has_record, read_record, write_record
from cachemgr.machines.troubles import disk_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk
    from cachemgr.machines.qemu.memory import GuestMemory
    from cachemgr.machines.wish import MachineWish

PROGRAM = "/usr/bin/qemu-system-x86_64"
KILL_S = 30.0
QUIT_S = 5.0
CANCEL_S = 10.0
STATE = "state."
# What is made here. Nothing else in a machine's folder is ever deleted, and a folder that holds anything else
# becomes no machine's: somebody may have named the wrong one.
OWN_FILE = re.compile(
    r"machine\.json|lock|busy|login|qemu\.log|console\.log|(monitor|signals|console|memory|disk|card|switch)\.sock"
    r"|readiness(\.new)?|(job|seed)\.iso|work\.tar|work\.out|out|err|control|(out|err)\.told(\.new)?|state\.[0-9]{1,9}(\.new)?"
    r"|[a-z][a-z0-9]{0,14}\.[0-9]{1,9}\.qcow2|\.machine\.json\.[0-9]{1,20}-[0-9]{1,20}\.new"
)
SHUT_DOWN = "the guest shut down"
POWER_OFF_S = 5.0
LOOK_S = 0.05
ENDS = ("completed", "failed", "cancelled", "none", None)
NO_SWITCHOVER = [{"capability": "pause-before-switchover", "state": False}]


@dataclass(frozen=True)
class MachineSite:
    """What a machine is given of its node."""

    node: str
    disk: Disk
    clock: Clock
    facts: Callable[[], QemuFacts]
    """QEMU's version and the accelerator of choice, with the reason."""
    program: str = PROGRAM
    monitor: Callable[[str, str, Clock], QemuMonitor] = QemuMonitor


def real_site(node: str, program: str) -> MachineSite:
    """The node as it is."""
    disk, clock = RealDisk(), SystemClock()
    return MachineSite(
        node=node, disk=disk, clock=clock, program=program, facts=lambda: find_facts(program, clock, disk)
    )


@dataclass(frozen=True)
class MachineStatus:
    """What is told of a machine."""

    record: MachineRecord
    is_alive: bool
    guest: str = ""
    """QEMU's word for what the guest does; empty if it was not asked or nothing runs."""
    is_busy: bool = False
    """Another process is working on it, so nobody has looked whether this is still so."""


class MachineKeeper:
    """The machine of one folder, as far as its verbs have it in common."""

    def __init__(self, folder: str, site: MachineSite) -> None:
        self.folder = os.path.realpath(folder)
        self.site = site
        self._pids: list[int] = []

    @property
    def place(self) -> str:
        return f"{self.site.node}:{self.folder}"

    @contextmanager
    def alone(self, wait_s: float = process.BUSY_S) -> Iterator[None]:
        try:
            with process.alone(self.folder, self.site.clock, wait_s):
                yield
        except FileNotFoundError as error:
            if os.path.isdir(self.folder):
                raise
            raise NotInPool(f"there is no machine in {self.folder}") from error
        finally:
            for pid in self._pids:
                process.reap(pid)

    def make_folder(self) -> None:
        """The folder, for its user alone: who reaches the sockets in it has the machine."""
        with disk_trouble(f"making {self.folder}"):
            with suppress(FileExistsError):
                self.site.disk.make_folder(self.folder, 0o700)
            names = self.site.disk.names(self.folder)
            strangers = [name for name in names if not OWN_FILE.fullmatch(name)]
            if strangers and not has_record(self.site.disk, self.folder):
                raise BadRequest(
                    f"{self.folder} holds {strangers[0][:80]!r}, which is not a machine's: name a folder of "
                    "its own"
                )
            found = os.stat(self.folder)
            if found.st_uid != os.geteuid():
                raise BadRequest(f"{self.folder} belongs to uid {found.st_uid}: name a folder of your own")
            if found.st_mode & 0o077:
                os.chmod(self.folder, 0o700)

    def known(self, verb: str = "") -> MachineRecord:
        """The record after settling; NotInPool if there is no machine."""
        record = self.settled()
        if record is None:
            raise NotInPool(f"there is no machine in {self.folder}")
        if verb and record.place != self.place:
            raise NotAllowed(
                f"{self.folder} is a copy of the machine at {record.place}: it cannot {verb}, since "
                "the machine would run twice; hand it over to this place first"
            )
        return record

    def write(self, record: MachineRecord) -> MachineRecord:
        with disk_trouble(f"writing down the machine {record.name}"):
            return write_record(self.site.disk, self.folder, record)

    def monitor(self) -> QemuMonitor:
        return self.site.monitor(self.folder, channel.MONITOR, self.site.clock)

    def settled(self) -> MachineRecord | None:
        """The record, once what a crash left half-way is brought to an end; None if nothing is left."""
        record = read_record(self.site.disk, self.folder)
        is_alive = process.is_alive(self.folder)
        if record.place != self.place:
            return record
        row = states.STATES[record.state]
        action = row.alive if is_alive else row.dead
        if action == states.FORGET:
            self.forgotten(record)
            return None
        if action == states.UNLOAD:
            return self.unloaded(record, record.reason or "the process that resumed it died")
        if action == states.END:
            if record.state == states.STOPPING:
                return self.finished(record, "it was stopped")
            self.end_qemu()
        if action == states.FINISH:
            return self.finished(record, f"QEMU died while the machine was {record.state}")
        if action in (states.UNDO, states.CONTINUE):
            try:
                return self.going_on(record)
            except QemuGone:
                # It may have died just now, while it was asked.
                if not process.wait_for_end(self.folder, self.site.clock, QUIT_S):
                    raise
                return self.settled()
        return record

    def launched(
        self,
        record: MachineRecord,
        *,
        is_incoming: bool,
        fds: Sequence[int] = (),
        memory: GuestMemory | None = None,
    ) -> QemuMonitor:
        """A QEMU whose guest does not run yet, and a connection to it. If this fails, no QEMU is left."""
        assert record.qemu is not None
        wish = record.wish
        with ExitStack() as opened:
            sockets = {}
            for name, file_name in channel.sockets(wish).items():
                one = opened.enter_context(closing(listening(self.folder, file_name)))
                sockets[name] = one.fileno()
            if memory is None:
                memory = opened.enter_context(closing(make_memory(wish.memory_bytes)))
            parts = CommandParts(
                program=self.site.program,
                folder=self.folder,
                qemu=record.qemu,
                layers=layers_of(wish, self.folder, record.layers),
                first_layer=record.first,
                sockets=sockets,
                memory=memory.fd,
                extras=channel.extra_disks(self.folder, wish),
                outputs=channel.outputs(self.folder, wish),
                is_incoming=is_incoming,
                login_port=_free_port() if channel.has_login(wish) else None,
            )
            if parts.login_port is not None:
                channel.write(self.site.disk, f"{self.folder}/{channel.LOGIN}", b"%d\n" % parts.login_port)
            sizes = [virtual_bytes(self.site.disk, each) for each in wish.writable]
            begun = process.QemuStart(
                command_line(wish, parts),
                self.folder,
                (*sockets.values(), memory.fd, *fds),
                most_file_bytes(wish, sizes),
            )
            self._pids.append(process.begin(begun))
        try:
            monitor = self.monitor()
            _bound_disks(monitor, wish)
            return monitor
        except CacheError as error:
            self.end_qemu()
            raise CacheError(f"QEMU did not start: {process.last_words(self.folder) or error}") from error

    def check_qemu(self, name: str, saved_by: QemuFacts | None) -> None:
        """A state is read by the same QEMU alone: another may read it without a complaint, and wrongly."""
        assert saved_by is not None
        here = self.site.facts()
        if here.version != saved_by.version:
            raise Unsuitable(
                f"machine {name} was saved by QEMU {saved_by.version} and this node has {here.version}: "
                "resume it where that version is"
            )
        if saved_by.accelerator == "kvm" and here.processor != saved_by.processor:
            raise Unsuitable(
                f"machine {name} ran with KVM on {saved_by.processor!r} and this node has "
                f"{here.processor!r}: resume it on a node with the same processor"
            )

    def end_qemu(self, *, asked: QemuMonitor | None = None) -> None:
        """QEMU is gone when this returns: by itself if it can still be asked, else killed."""
        if asked is not None:
            with suppress(CacheError):
                asked.command("quit")
                if process.wait_for_end(self.folder, self.site.clock, QUIT_S):
                    return
        process.kill(self.folder, self.site.clock, KILL_S)

    def status_of(self, record: MachineRecord) -> MachineStatus:
        is_alive = process.is_alive(self.folder)
        guest = ""
        if is_alive and record.state in states.RUNS:
            with suppress(CacheError), self.monitor() as monitor:
                guest = monitor.status()
        return MachineStatus(record, is_alive, guest)

    def finished(self, record: MachineRecord, how: str) -> MachineRecord:
        """End QEMU if it is there; the job's last word says whether the machine has ended or is lost."""
        self.end_qemu()
        status = channel.exit_status(self.site.disk, self.folder)
        self.drop(record, keeps_layers=False)
        is_stopped = record.state == states.STOPPING
        if status is not None:
            reason = how if is_stopped else ""
            return self.write(record.stepped(states.ENDED, exit_status=status, reason=reason, saved={}))
        if is_stopped:
            return self.write(record.stepped(states.ENDED, reason=how, saved={}))
        kind = states.ENDED if how == SHUT_DOWN and record.wish.job is None else states.LOST
        return self.write(record.stepped(kind, reason=how, saved={}))

    def unloaded(self, record: MachineRecord, why: str) -> MachineRecord:
        """Nothing of this generation has run: the state and the layers below are as they were."""
        self.end_qemu()
        remove_layers(self.site.disk, record.wish, self.folder, [record.generation])
        return self.write(record.stepped(states.SUSPENDED, generation=record.generation - 1, reason=why))

    def forgotten(self, record: MachineRecord) -> None:
        """Nothing of the guest has run: all that was made for it goes, the record last."""
        self.end_qemu()
        with disk_trouble(f"forgetting the machine {record.name}"):
            self.emptied(but=(process.LOG,))

    def emptied(self, but: Sequence[str] = ()) -> None:
        """Remove all that was made here, the record last: what a crash on the way leaves can be found."""
        for name in self.site.disk.names(self.folder):
            if OWN_FILE.fullmatch(name) and name not in (FILE, process.BUSY, *but):
                self.site.disk.remove(f"{self.folder}/{name}")
        self.site.disk.remove(f"{self.folder}/{FILE}")
        self.site.disk.sync_folder(self.folder)

    def going_on(self, record: MachineRecord, why: str = "") -> MachineRecord:
        """QEMU lives and the guest is to run: whatever was begun with it is given up."""
        with self.monitor() as monitor:
            guest = monitor.status()
            if record.wish.job is not None and channel.exit_status(self.site.disk, self.folder) is not None:
                self.wait_for_shutdown(monitor, POWER_OFF_S)
                return self.finished(record, "the job has ended")
            if guest == "shutdown":
                return self.finished(record, SHUT_DOWN)
            if record.state != states.RUNNING:
                self.let_go(record, monitor)
                record = self.write(record.stepped(states.RUNNING, reason=why, moving_to="", next_token=""))
            self.drop(record, keeps_layers=True)
            record = self._merged(record, monitor)
            if monitor.status() in ("paused", "prelaunch", "postmigrate", "finish-migrate"):
                monitor.command("cont")
        return record

    def _merged(self, record: MachineRecord, monitor: QemuMonitor) -> MachineRecord:
        """Note that the layers below the newest one are merged into it, if they are; they go then."""
        if not merge_is_done(monitor, record.wish):
            return record
        below = [number for number in record.layers if number < record.generation]
        saved = {
            name: each
            for name, each in record.saved.items()
            if name
            not in {layer_name(disk.name, number) for disk in record.wish.writable for number in below}
        }
        record = self.write(replace(record, first=record.generation, saved=saved))
        dismiss_merge(monitor, record.wish)
        remove_layers(self.site.disk, record.wish, self.folder, below)
        return record

    def wait_for_shutdown(self, monitor: QemuMonitor, wait_s: float) -> bool:
        """Whether the guest shuts down within so many seconds."""
        until_s = self.site.clock.monotonic_s() + wait_s
        while monitor.status() != "shutdown":
            if self.site.clock.monotonic_s() >= until_s:
                return False
            self.site.clock.sleep(LOOK_S)
        return True

    def let_go(self, record: MachineRecord, monitor: QemuMonitor) -> None:
        """Give up a saving or a migration: QEMU stops writing, and may write to its layers again."""
        with suppress(QemuRefused):
            monitor.command("migrate_cancel")
        found = monitor.wait_for_migration(ENDS, CANCEL_S)
        if found.get("status") not in ENDS:
            # Whoever is at the other end has gone without a word.
            with suppress(QemuRefused):
                monitor.command("yank", {"instances": [{"type": "migration"}]})
            monitor.wait_for_migration(ENDS, CANCEL_S)
        if record.state == states.LEAVING:
            let_go_of_mirrors(monitor, record.wish)
            with suppress(QemuRefused):
                monitor.command("migrate-set-capabilities", {"capabilities": NO_SWITCHOVER})
        for each in record.wish.writable:
            thaw(self.site.disk, f"{self.folder}/{layer_name(each.name, record.generation)}")

    def drop(self, record: MachineRecord, *, keeps_layers: bool) -> None:
        """Files of states that no step comes back to; the layers, too, once the machine is over."""
        with disk_trouble(f"tidying up the machine {record.name}"):
            for name in self.site.disk.names(self.folder):
                if name.startswith(STATE):
                    self.site.disk.remove(f"{self.folder}/{name}")
            if not keeps_layers:
                remove_layers(self.site.disk, record.wish, self.folder, range(1, record.generation + 2))


def _free_port() -> int:
    """A port of this node's own that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def _bound_disks(monitor: QemuMonitor, wish: MachineWish) -> None:
    """Hold all disks of a machine together to its rate. What is made here, such as its seed, counts not."""
    nothing = dict.fromkeys(("bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)
    if wish.disk_rate_bytes_per_s is not None:
        for device in disk_devices(wish):
            bound = {"id": device, "bps": wish.disk_rate_bytes_per_s, **nothing, "group": "disks"}
            monitor.command("block_set_io_throttle", bound)


def state_name(generation: int) -> str:
    """The file with the memory that belongs to the layers of this generation."""
    return f"{STATE}{generation}"


def check_user() -> None:
    """A guest is as strange as any program of a user, and has the rights of that user alone."""
    if os.geteuid() == 0:
        raise BadRequest("machines run with the rights of the job's user: not as root")
