"""One virtual machine in its folder: start, status, suspend, resume, stop.

Every verb takes the machine's lock, brings a machine that a crash left half-way back to one of its lasting
states (`states.py` says how), and then does what is left to do of what it is asked: so each may be
called twice, late, or never. The folder belongs to the job's user, who runs all of this: nothing
here has more rights than the job.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from cachemgr.base.errors import CacheError, InUse, NotInPool, Unsuitable, WrongBytes
from cachemgr.machines import states
from cachemgr.machines.guest import channel
from cachemgr.machines.guest.archive import unpack
from cachemgr.machines.keeper import LOOK_S, MachineKeeper, MachineStatus, check_user, state_name
from cachemgr.machines.qemu.digests import check_files, digest_file
from cachemgr.machines.qemu.layers import (
    MERGED_LAYERS,
    MOST_LAYERS,
    freeze,
    layer_name,
    make_layers,
    virtual_bytes,
)
from cachemgr.machines.qemu.loading import SavedMemory
from cachemgr.machines.qemu.memory import memory_of
from cachemgr.machines.qemu.merging import begin_merge, end_merge
from cachemgr.machines.qemu.monitor import QemuGone, QemuRefused
from cachemgr.machines.qemu.saving import save_memory
from cachemgr.machines.record import MachineRecord, SavedFile, has_record, read_record
from cachemgr.machines.troubles import disk_trouble
from cachemgr.machines.wish import relocated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.wish import MachineWish

TOKEN_BYTES = 16
MERGE_S = 600.0
"""So long a suspension waits for layers to be merged that are too many; the guest runs meanwhile."""


def nothing() -> None:
    """A machine that is alone has to agree with nobody."""


class Machine(MachineKeeper):
    """The machine of one folder."""

    def start(self, wish: MachineWish) -> MachineStatus:
        """Start this machine, unless it is here already."""
        check_user()
        self.make_folder()
        with self.alone():
            if has_record(self.site.disk, self.folder):
                record = self.settled()
                if record is not None:
                    if record.wish != wish:
                        raise InUse(
                            f"{self.folder} holds another machine, {record.name}: remove it, or name "
                            "another folder"
                        )
                    return self.status_of(record)
            facts = self.site.facts()
            for each in wish.disks:
                virtual_bytes(self.site.disk, each)
            record = self.write(
                MachineRecord(
                    wish=wish,
                    state=states.STARTING,
                    place=self.place,
                    token=secrets.token_hex(TOKEN_BYTES),
                    qemu=facts,
                )
            )
            try:
                with disk_trouble(f"making the machine {wish.name}"):
                    make_layers(self.site.disk, wish, self.folder, 1)
                    channel.prepare(self.site.disk, self.folder, wish)
                with self.launched(record, is_incoming=False) as monitor:
                    record = self.write(record.stepped(states.RUNNING))
                    monitor.command("cont")
            except BaseException:
                if record.state == states.STARTING:
                    self.forgotten(record)
                raise
            return self.status_of(record)

    def status(self) -> MachineStatus:
        """What is true now; a machine that a crash left half-way is settled first.

        While another process works on it, what is written down is told.
        """
        try:
            with self.alone(wait_s=0):
                return self.status_of(self.known())
        except InUse:
            return MachineStatus(read_record(self.site.disk, self.folder), is_alive=True, is_busy=True)

    def suspend(self, together: str = "", agreed: Callable[[], None] = nothing) -> MachineStatus:
        """Write the machine to files that belong together, and only then end QEMU.

        `agreed` is called when all is written: if it raises, the guest goes on.
        """
        with self.alone():
            record = self.known("be suspended")
            if record.state == states.SUSPENDED:
                return self.status_of(record)
            if record.state != states.RUNNING:
                raise states.refused(record.name, record.state, "be suspended", record.reason)
            record = self.unmerged(record)
            began_s = self.site.clock.monotonic_s()
            with self.monitor() as monitor:
                record = self.write(record.stepped(states.SAVING))
                try:
                    with disk_trouble(f"saving machine {record.name}, which continues to run,"):
                        saved = self._save(monitor, record)
                    agreed()
                    pause_ms = int((self.site.clock.monotonic_s() - began_s) * 1000)
                    pauses_ms = (*record.pauses_ms, pause_ms)
                    record = self.write(
                        record.stepped(states.SUSPENDED, saved=saved, pauses_ms=pauses_ms, together=together)
                    )
                except (CacheError, OSError) as error:
                    self._undo(record, monitor, str(error))
                    raise
                self.end_qemu(asked=monitor)
            return self.status_of(record)

    def resume(
        self, agreed: Callable[[], None] = nothing, decided: Callable[[], None] = nothing
    ) -> MachineStatus:
        """Let a suspended machine go on, after all its files were compared with what was written down.

        `agreed` is called when its memory is read: if it raises, the machine stays suspended. `decided` is
        called once it is written down that the guest runs, just before it does.
        """
        check_user()
        with self.alone():
            record = self.known("be resumed")
            if record.state == states.RUNNING:
                return self._running_on(record)
            if record.state != states.SUSPENDED:
                raise states.refused(record.name, record.state, "be resumed", record.reason)
            self.check_qemu(record.name, record.qemu)
            state = state_name(record.generation)
            with disk_trouble(f"looking at the machine {record.name}"):
                check_files(
                    self.site.disk,
                    self.folder,
                    {name: each for name, each in record.saved.items() if name != state},
                )
            record = self.write(record.stepped(states.LOADING, generation=record.generation + 1))
            try:
                with (
                    disk_trouble(f"resuming the machine {record.name}"),
                    closing(self._saved_memory(record, state)) as saved_memory,
                ):
                    make_layers(self.site.disk, record.wish, self.folder, record.generation, record.first)
                    with self.launched(record, is_incoming=True, memory=saved_memory.memory) as monitor:
                        saved_memory.load(monitor)
                        agreed()
                        saved = self._frozen(record)
                        record = self.write(record.stepped(states.RUNNING, saved=saved, together=""))
                        decided()
                        monitor.command("cont")
            except BaseException as error:
                if record.state == states.LOADING:
                    self.unloaded(record, str(error))
                raise
            self.drop(record, keeps_layers=True)
            self._merge(record)
            return self.status_of(record)

    def stop(self, grace_s: float) -> MachineStatus:
        """End the machine: the job is told to end, then the guest to shut down, then QEMU is ended."""
        with self.alone():
            record = self.known()
            if record.state in states.OVER:
                return self.status_of(record)
            if record.state == states.ARRIVING:
                raise states.refused(record.name, record.state, "be stopped here: stop it where it runs")
            if record.state == states.SUSPENDED:
                record = self.write(
                    record.stepped(states.ENDED, saved={}, reason="ended while it was suspended")
                )
                self.drop(record, keeps_layers=False)
                return self.status_of(record)
            record = self.write(record.stepped(states.STOPPING))
            with suppress(QemuGone), self.monitor() as monitor:
                self._shut_down(record, monitor, grace_s)
            return self.status_of(self.finished(record, "it was stopped"))

    def relocate(self, paths: Mapping[str, str]) -> None:
        """Note where files that are not the machine's own, such as its images, lie from now on."""
        with self.alone():
            record = self.known("be relocated")
            if record.state != states.SUSPENDED:
                raise states.refused(record.name, record.state, "be relocated", record.reason)
            self.write(replace(record, wish=relocated(record.wish, paths)))

    def signal(self, name: str) -> None:
        """Pass a signal on to the job. A guest that is stopped gets it when it goes on."""
        with self.alone():
            record = self.known("be signalled")
            if record.state != states.RUNNING or record.wish.job is None:
                raise states.refused(record.name, record.state, "be signalled", record.reason)
            channel.send_signal(self.site.disk, self.folder, name, self.site.clock)

    def collect(self) -> int:
        """Bring the working folder of a job that has ended back to where it came from; how many files.

        Asked again, it is brought again: what has changed there meanwhile is overwritten.
        """
        with self.alone():
            record = self.known()
            job = record.wish.job
            if record.state != states.ENDED or job is None or job.folder is None or not job.brings_back:
                raise states.refused(record.name, record.state, "give a working folder back", record.reason)
            if not channel.is_copied(self.site.disk, self.folder):
                raise WrongBytes(
                    f"the working folder of machine {record.name} did not come out of its guest whole: "
                    f"{job.folder} is as it was; the job's standard error says why"
                )
            with disk_trouble(f"copying the working folder of machine {record.name} back to {job.folder}"):
                given = f"{self.folder}/{channel.WORK_DISK}"
                return unpack(f"{self.folder}/{channel.WORK_FILE}", job.folder, job.left_out, given)

    def remove(self) -> None:
        """Remove what an ended machine has left; a machine that is not over is not touched."""
        with self.alone():
            try:
                record = self.known()
            except NotInPool:
                return
            if record.state not in states.OVER:
                raise states.refused(record.name, record.state, "be removed: stop it first")
            with disk_trouble(f"removing the machine {record.name}"):
                self.emptied()

    def _save(self, monitor: QemuMonitor, record: MachineRecord) -> dict[str, SavedFile]:
        """All files of a stopped guest, synced and digested. Those of earlier layers have not changed."""
        monitor.command("stop")
        name = state_name(record.generation)
        path = f"{self.folder}/{name}"
        saved: dict[str, SavedFile] = {}

        def save_rest() -> None:
            # QEMU writes the last tables of its layers when it has said all, and nothing after that.
            for number in record.layers:
                for each in record.wish.writable:
                    layer = layer_name(each.name, number)
                    if number == record.generation:
                        freeze(self.site.disk, f"{self.folder}/{layer}")
                        saved[layer] = digest_file(self.site.disk, f"{self.folder}/{layer}")
                    else:
                        saved[layer] = record.saved[layer]
            for kept in channel.kept_files(record.wish):
                saved[kept] = digest_file(self.site.disk, f"{self.folder}/{kept}")

        with ExitStack() as opened:
            memory = memory_of(self.folder)
            if memory is not None:
                opened.enter_context(closing(memory))
            saved[name] = save_memory(monitor, memory, self.site.disk, self.site.clock, path, save_rest)
        self.site.disk.sync_folder(self.folder)
        return saved

    def _saved_memory(self, record: MachineRecord, name: str) -> SavedMemory:
        path = f"{self.folder}/{name}"
        return SavedMemory(self.site.disk, path, record.saved[name], record.wish.memory_bytes)

    def _frozen(self, record: MachineRecord) -> dict[str, SavedFile]:
        """Of what was saved, the layers: they stay as they are, below those that are written to."""
        layers = {layer_name(each.name, n) for each in record.wish.writable for n in record.layers[:-1]}
        return {name: each for name, each in record.saved.items() if name in layers}

    def _merge(self, record: MachineRecord) -> None:
        """Have many layers merged while the guest runs; without that, it runs on all the same."""
        if len(record.layers) >= MERGED_LAYERS and record.wish.writable:
            with suppress(CacheError), self.monitor() as monitor:
                begin_merge(monitor, record)

    def unmerged(self, record: MachineRecord) -> MachineRecord:
        """The record once nothing is being merged: what is not done is given up, unless there are too many
        layers."""
        if len(record.layers) < MERGED_LAYERS:
            return record
        has_room = len(record.layers) < MOST_LAYERS
        if not has_room:
            self._merge(record)
        with self.monitor() as monitor:
            end_merge(monitor, record.wish, self.site.clock, 0 if has_room else MERGE_S)
        record = self.known("be suspended")
        if len(record.layers) >= MOST_LAYERS:
            raise Unsuitable(
                f"the disks of machine {record.name} have {len(record.layers)} layers, and cannot be merged "
                "now: make room on the node's disk, or let it run"
            )
        return record

    def _undo(self, record: MachineRecord, monitor: QemuMonitor, why: str) -> None:
        """The guest goes on. What is not written down, because the disk is full or so, the next verb does."""
        with suppress(CacheError, OSError):
            self.let_go(record, monitor)
            self.drop(record, keeps_layers=True)
        with suppress(CacheError):
            self.write(record.stepped(states.RUNNING, reason=why))
        with suppress(CacheError):
            monitor.command("cont")

    def _running_on(self, record: MachineRecord) -> MachineStatus:
        """A guest that stopped because its node's disk was full goes on."""
        with self.monitor() as monitor:
            if monitor.status() == "io-error":
                monitor.command("cont")
        return self.status_of(record)

    def _shut_down(self, record: MachineRecord, monitor: QemuMonitor, grace_s: float) -> None:
        """Half of the time is the job's, to end by itself; the other half the guest's, to shut down."""
        if monitor.status() not in ("running", "shutdown"):
            with suppress(QemuRefused):
                monitor.command("cont")
        if record.wish.job is not None:
            with suppress(CacheError, OSError):
                channel.send_signal(self.site.disk, self.folder, "TERM", self.site.clock, wait_s=grace_s / 2)
            self._wait_for_job(monitor, grace_s / 2)
        with suppress(QemuRefused):
            monitor.command("system_powerdown")
        self.wait_for_shutdown(monitor, grace_s / 2)
        self.end_qemu(asked=monitor)

    def _wait_for_job(self, monitor: QemuMonitor, wait_s: float) -> None:
        until_s = self.site.clock.monotonic_s() + wait_s
        while channel.exit_status(self.site.disk, self.folder) is None and monitor.status() != "shutdown":
            if self.site.clock.monotonic_s() >= until_s:
                return
            self.site.clock.sleep(LOOK_S)
