"""Virtual machines on a node: start, suspension, resumption and migration over sizes of touched memory.

A guest of 512 bytes touches its memory and then says so again and again. Times are ratios to bounds of
the same run: the start to QEMU's own start with the same command line; suspension and resumption to
writing (synced) and reading a file of the state's size in the same folder, in order and with cold caches,
from memory of that size and into new memory of that size, through the kernel's memory or past it, whichever
is faster at that moment (from one MiB again and again a disk takes a fifth less time, but no state is that;
into memory that is there already it takes half the time where the machine is itself a guest, whose memory its
host has to find first, and that is told beside: but a guest that is resumed has none yet); migration, held to
1 Gbit/s, to the time that the state and the disk's layers take at that rate. The start is that of a job's
whole program, as the batch system begins it.

A ratio is the disk's as long as processors are faster than it. So the processor's time of QEMU and of what
drives it is told, too, and for all sizes together the straight line through what was measured: seconds
that any suspension takes, and seconds for each GiB of the state, by the clock and by processors. Whichever of
disk, QEMU and its driver (on all processors at once) takes longest for a GiB is the rate of a machine with
nothing else to do. What a further GiB costs is told beside the disk, and beside the slowest of the three.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import linear_regression, median
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments, judged, lacking
from bench.machines_start import facts_of_root, started
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.machines.keeper import PROGRAM, MachineSite
from cachemgr.machines.live.migration import OtherFolder, migrate
from cachemgr.machines.machine import Machine
from cachemgr.machines.qemu import process
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.machines.qemu.layers import taken_bytes
from cachemgr.machines.qemu.pieces import WORKERS
from cachemgr.machines.wish import MIB, MachineDisk, MachineWish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.record import MachineRecord

NOBODY = 65534
GIB = 1 << 30
LINK_BYTES_PER_S = 125_000_000
LEAST_RATE, MOST_MIGRATION, MOST_START_MS = 0.8, 1.1, 150
READY_S, LOOK_S = 300.0, 0.01
BLOCK_BYTES = 1 << 20
DISK_BYTES = 1 << 20
# Touches one word in each page from 1 MiB up to the last of PAGES, then says T for ever.
SECTOR = """
    .code16
    .globl _start
_start:
    cli
    xor %ax, %ax
    mov %ax, %ds
    lgdt table_of_segments
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    ljmp $8, $protected
    .code32
protected:
    mov $16, %ax
    mov %ax, %ds
    mov $0x100000, %edi
    mov $PAGES, %ecx
1:  mov %edi, (%edi)
    add $4096, %edi
    loop 1b
2:  mov $0x3f8, %dx
    mov $84, %al
    out %al, %dx
    mov $3000000, %ecx
3:  loop 3b
    jmp 2b
    .align 8
segments:
    .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
table_of_segments:
    .word 23
    .long segments
    .org 510
    .word 0xaa55
"""
RESERVED_BYTES = 16 * MIB
"""Of a guest's memory this is left to its firmware, whose tables lie at the end."""


def disk_of(folder: Path, memory_bytes: int) -> Path:
    """A disk that boots into a guest which touches its memory."""
    pages = (memory_bytes - RESERVED_BYTES) // 4096
    (folder / "sector.S").write_text(SECTOR.replace("PAGES", str(pages)))
    subprocess.run(["as", "--32", "sector.S", "-o", "sector.o"], cwd=folder, check=True)
    line = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "sector.o", "-o", "sector"]
    subprocess.run(line, cwd=folder, check=True)
    path = folder / f"disk-{memory_bytes}"
    path.write_bytes((folder / "sector").read_bytes().ljust(DISK_BYTES, b"\0"))
    return path


@dataclass(frozen=True)
class Step:
    """A suspension or a resumption: by the clock, of QEMU, of this process, of the disk alone."""

    seconds: float
    qemu_s: float
    own_s: float
    disk_s: float
    size_bytes: int


class WatchedMachine(Machine):
    """One that looks how much time QEMU has had before it ends, and when a guest went on."""

    qemu_s = 0.0
    went_on_s = 0.0

    def drop(self, record: MachineRecord, *, keeps_layers: bool) -> None:
        # What it was read from is removed once the guest runs.
        self.went_on_s = perf_counter()
        super().drop(record, keeps_layers=keeps_layers)

    def end_qemu(self, *, asked: QemuMonitor | None = None) -> None:
        self.qemu_s = processor_s(self)
        super().end_qemu(asked=asked)


def processor_s(machine: Machine) -> float:
    """What QEMU has had of processors."""
    for pid in process.holders(f"{machine.folder}/lock"):
        with suppress(OSError, ValueError):
            found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def fitted(name: str, steps: Sequence[Step]) -> str:
    """The line through all of them: what any takes, and what each GiB takes."""
    sizes = [each.size_bytes / GIB for each in steps]
    if len(set(sizes)) < 2:
        return f"  {name}: one size makes no line"
    parts = {
        "clock": [each.seconds for each in steps],
        "QEMU": [each.qemu_s for each in steps],
        "driver": [each.own_s for each in steps],
        "disk": [each.disk_s for each in steps],
    }
    lines = {part: linear_regression(sizes, values) for part, values in parts.items()}
    told = ", ".join(f"{part} {line.intercept:.2f} + {line.slope:.2f}/GiB" for part, line in lines.items())
    spread = {"QEMU": 1, "driver": min(WORKERS, len(os.sched_getaffinity(0))), "disk": 1}
    bound_s, slowest = max((lines[part].slope / count, part) for part, count in spread.items())
    rate = GIB / max(bound_s, 1e-9) / 1e6
    each_s = max(lines["clock"].slope, 1e-9)
    return (
        f"  {name} (s): {told}; alone on its processors {rate:.0f} MB/s, bound by {slowest}; "
        f"a further GiB at {lines['disk'].slope / each_s:.2f} of the disk's rate, at {bound_s / each_s:.2f} "
        "of the slowest of disk, QEMU and driver"
    )


class Bench:
    """Machines in one folder, each removed when it has been measured."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clock, disk = SystemClock(), RealDisk()
        facts = find_facts(PROGRAM, clock, disk)
        self.site = MachineSite(node="bench", disk=disk, clock=clock, facts=lambda: facts)

    def wish(self, memory_bytes: int) -> MachineWish:
        path = disk_of(self.folder, memory_bytes)
        return MachineWish(
            name="bench", memory_bytes=memory_bytes, disks=(MachineDisk(name="root", path=str(path)),)
        )

    def machine(self, name: str) -> WatchedMachine:
        return WatchedMachine(str(self.folder / name), self.site)

    def wait_for_words(self, machine: Machine, more: int = 1) -> float:
        """Seconds until the guest has said something more."""
        path = Path(machine.folder) / "console.log"
        before, begun_s = (path.read_text().count("T") if path.exists() else 0), perf_counter()
        while not path.exists() or path.read_text().count("T") < before + more:
            if perf_counter() - begun_s > READY_S:
                raise TimeoutError(f"the guest of {machine.folder} says nothing")
            sleep(LOOK_S)
        return perf_counter() - begun_s

    def drop(self, *machines: Machine) -> None:
        for each in machines:
            with suppress(FileNotFoundError):
                each.stop(0)
                each.remove()
                shutil.rmtree(each.folder)


def memory_of(size_bytes: int) -> mmap.mmap:
    """So much memory that is there, as a guest's is, up to whole blocks: a disk is written by whole pages."""
    count, block = -(-size_bytes // BLOCK_BYTES), os.urandom(BLOCK_BYTES)
    memory = mmap.mmap(-1, count * BLOCK_BYTES)
    for at in range(0, len(memory), BLOCK_BYTES):
        memory[at : at + BLOCK_BYTES] = block
    return memory


def written(path: Path, memory: memoryview) -> float:
    """Seconds to write so much memory in order and sync it: through the kernel's memory or past it,
    whichever is faster now."""
    return min(_written(path, memory, flag) for flag in (0, os.O_DIRECT))


def _written(path: Path, memory: memoryview, flag: int) -> float:
    path.unlink(missing_ok=True)
    begun_s = perf_counter()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | flag, 0o600)
    try:
        os.posix_fallocate(fd, 0, len(memory))
        for at in range(0, len(memory), BLOCK_BYTES):
            os.pwrite(fd, memory[at : at + BLOCK_BYTES], at)
        os.fsync(fd)
    finally:
        os.close(fd)
    return perf_counter() - begun_s


def read(path: Path, memory: memoryview) -> tuple[float, float]:
    """Seconds to read a file that is not in the kernel's memory, in order, into new memory and into this: in
    either way, whichever is faster now."""
    found = []
    for flag in (0, os.O_DIRECT):
        with mmap.mmap(-1, len(memory)) as new, memoryview(new) as view:
            found.append(_read(path, view, flag))
    return min(found), min(_read(path, memory, flag) for flag in (0, os.O_DIRECT))


def _read(path: Path, memory: memoryview, flag: int) -> float:
    forget(path)
    begun_s = perf_counter()
    fd = os.open(path, os.O_RDONLY | flag)
    try:
        at = 0
        while count := os.preadv(fd, [memory[at : at + BLOCK_BYTES]], at):
            at += count
    finally:
        os.close(fd)
    return perf_counter() - begun_s


def forget(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(
    bench: Bench, memory_bytes: int, rounds: int, steps: tuple[list[Step], list[Step]]
) -> tuple[float, float, float]:
    """Ratios of suspension and resumption to the disk, of migration to the link; each line is printed."""
    wish = bench.wish(memory_bytes)
    saving, loading, moving = [], [], []
    for number in range(rounds):
        machine, other = bench.machine(f"a{number}"), bench.machine(f"b{number}")
        machine.start(wish)
        ready_s = bench.wait_for_words(machine)
        plain = bench.folder / "plain"
        before_s, own_s = processor_s(machine), process_time()
        begun_s = perf_counter()
        pause_s = machine.suspend().record.pauses_ms[-1] / 1000
        whole_s = perf_counter() - begun_s
        save_own_s, save_qemu_s = process_time() - own_s, machine.qemu_s - before_s
        state = Path(machine.folder) / "state.1"
        size_bytes = state.stat().st_size
        with memory_of(size_bytes) as memory, memoryview(memory) as view:
            write_s, (read_s, there_s) = written(plain, view), read(plain, view)
        forget(state)
        own_s, begun_s = process_time(), perf_counter()
        machine.resume()
        resume_s = machine.went_on_s - begun_s
        resumed_s = perf_counter() - begun_s
        load_own_s, load_qemu_s = process_time() - own_s, processor_s(machine)
        steps[0].append(Step(pause_s, save_qemu_s, save_own_s, write_s, size_bytes))
        steps[1].append(Step(resume_s, load_qemu_s, load_own_s, read_s, size_bytes))
        bench.wait_for_words(machine)
        layer_bytes = taken_bytes(map(str, Path(machine.folder).glob("root.*.qcow2")))
        begun_s = perf_counter()
        figures = migrate(machine, OtherFolder(other, {}), rate_bytes_per_s=LINK_BYTES_PER_S)
        migrate_s = perf_counter() - begun_s
        assert figures is not None
        link_s = (size_bytes + layer_bytes) / LINK_BYTES_PER_S
        bench.drop(other, machine)
        saving.append(write_s / pause_s)
        loading.append(read_s / resume_s)
        moving.append(migrate_s / link_s)
        print(
            f"  {memory_bytes // MIB:5} MiB  state {size_bytes / MIB:6.0f} MiB  ready {ready_s:5.1f} s  "
            f"suspend {pause_s:5.2f} s (to its end {whole_s:5.2f}; write {write_s:5.2f}; "
            f"QEMU {save_qemu_s:4.2f}, driver {save_own_s:4.2f})  "
            f"resume {resume_s:5.2f} s (to its end {resumed_s:5.2f}; read {read_s:5.2f}, "
            f"into memory that is there {there_s:5.2f}; QEMU {load_qemu_s:4.2f}, driver {load_own_s:4.2f})  "
            f"migrate {migrate_s:5.2f} s, pause {figures.pause_ms:4} ms (link {link_s:5.2f})",
            flush=True,
        )
    return median(saving), median(loading), median(moving)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 3, 1, "how often each size is measured")
    parser.add("--memory-mib", "128,256,512,1024", "64", "sizes of memory", kind=str)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk that is to be measured")
    given = parser.parse_args() if "--help" in sys.argv else parser.given()
    missing = [tool for tool in (PROGRAM, "/usr/bin/as", "/usr/bin/ld", "/usr/bin/qemu-img")
               if not os.path.exists(tool)]  # fmt: skip
    if lacking(f"needs {', '.join(missing)}: make tools" if missing else None):
        return 2
    if os.geteuid() == 0:
        return _as_nobody()
    folder = Path(tempfile.mkdtemp(prefix="bench-machines-", dir=given.folder))
    try:
        return _judge(given, Bench(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_nobody() -> int:
    """Machines do not run as root. The system's Python is one that everybody can read."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1])}
    with facts_of_root():
        done = subprocess.run(
            ["/usr/bin/python3", "-B", __file__, *sys.argv[1:]],
            user=NOBODY, group=NOBODY, extra_groups=[], env=environment, cwd="/",
        )  # fmt: skip
    return done.returncode


def _judge(given: object, bench: Bench) -> int:
    rounds: int = given.rounds  # type: ignore[attr-defined]
    sizes = [int(each) * MIB for each in given.memory_mib.split(",")]  # type: ignore[attr-defined]
    facts = bench.site.facts()
    print(f"QEMU {facts.version}, {facts.accelerator}: {facts.reason}")
    whole_ms, own_ms, engine_ms, plain_ms = started(
        bench, replace(bench.wish(sizes[0]), name="start"), rounds + 2
    )
    beyond_ms = whole_ms - plain_ms
    told = f"start of a job's program {whole_ms:.0f} ms (its own processor time {own_ms:.0f})"
    told += f", of the engine alone {engine_ms:.0f} ms"
    print(
        f"  {told}, QEMU alone {plain_ms:.0f} ms: {beyond_ms:.0f} ms more, "
        f"{beyond_ms / MOST_START_MS:.2f} of its bound of {MOST_START_MS} ms"
    )
    is_good = beyond_ms <= MOST_START_MS
    steps: tuple[list[Step], list[Step]] = ([], [])
    for size_bytes in sizes:
        saving, loading, moving = measured(bench, size_bytes, rounds, steps)
        print(
            f"  {size_bytes // MIB:5} MiB  suspension {saving:.2f}, resumption {loading:.2f} of the disk's "
            f"rate (bound {LEAST_RATE}), migration {moving:.2f} of the link's (bound {MOST_MIGRATION})"
        )
        is_good = is_good and min(saving, loading) >= LEAST_RATE and moving <= MOST_MIGRATION
    for name, those in zip(("suspension", "resumption"), steps, strict=True):
        print(fitted(name, those))
    return judged(given, is_good=is_good)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
