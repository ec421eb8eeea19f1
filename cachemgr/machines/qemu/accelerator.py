"""Which accelerator runs a guest faster on this node, decided by running one; and QEMU's version.

/dev/kvm may be there and of no use: nested on a host without hardware for that, a guest was seen to
run 25 times slower with KVM than by translation. So a small program is booted both ways, which does what
the boot of a kernel does most: it changes page tables, switches them, talks to a port, and computes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import Unsuitable
from cachemgr.machines.qemu.command import PROCESSORS
from cachemgr.machines.record import QemuFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk

KVM = "/dev/kvm"
FACTS = "/run/outrider/machines.json"
"""What root has found out since this node booted; whoever cannot use it finds out anew."""
VERSION = re.compile(r"QEMU emulator version ([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
ASK_S = 20
MOST_BOOT_S = 60.0
DISK_BYTES = 1 << 20
"""The firmware boots from no smaller disk."""
EXIT = 1
"""How QEMU ends when the program writes 0 to its exit port, the program's last act: (0 << 1) | 1."""
MOST_BYTES = 1 << 16

PROBE_SOURCE = """
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
    mov %ax, %es
    mov %ax, %ss
    mov $0x11000, %edi
    mov $3, %eax
    mov $1024, %ecx
1:  stosl
    add $4096, %eax
    loop 1b
    movl $0x11003, 0x10000
    mov $0x10000, %eax
    mov %eax, %cr3
    mov %cr0, %eax
    or $0x80000000, %eax
    mov %eax, %cr0
    mov $20000, %esi
2:  mov %esi, %eax
    and $1, %eax
    shl $12, %eax
    or $0x200003, %eax
    mov %eax, 0x11c00
    invlpg 0x300000
    incl 0x300000
    mov %cr3, %eax
    mov %eax, %cr3
    out %al, $0x80
    mov $1000, %ecx
3:  imul $3, %ebx
    loop 3b
    dec %esi
    jnz 2b
    mov $0xf4, %dx
    out %al, %dx
4:  hlt
    jmp 4b
    .align 8
segments:
    .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
table_of_segments:
    .word 23
    .long segments
    .org 510
    .word 0xaa55
"""
PROBE_BYTES = bytes.fromhex(
    "fa31c08ed80f0116b07c0f20c00c010f22c0ea177c080066b810008ed88ec08ed0bf00100100b803"
    "000000b900040000ab0500100000e2f8c7050000010003100100b8000001000f22d80f20c00d0000"
    "00800f22c0be204e000089f083e001c1e00c0d03002000a3001c01000f013d00003000ff05000030"
    "000f20d80f22d8e680b9e80300006bdb03e2fb4e75cc66baf400eef4ebfd66900000000000000000"
    "ffff0000009acf00ffff00000092cf001700987c0000"
)
BOOT_SECTOR = PROBE_BYTES.ljust(510, b"\0") + b"\x55\xaa"


@dataclass(frozen=True)
class ProbedBoots:
    """How long the program took each way, in milliseconds; None if it did not end well, or was not tried."""

    tcg_ms: int | None
    kvm_ms: int | None
    kvm_obstacle: str = ""

    def choice(self) -> tuple[str, str]:
        """The accelerator, and why."""
        if self.kvm_obstacle:
            return "tcg", self.kvm_obstacle
        if self.kvm_ms is None:
            return (
                "tcg",
                f"a test boot with KVM failed, or took over twice as long as the {self.tcg_ms} ms without",
            )
        if self.tcg_ms is not None and self.kvm_ms >= self.tcg_ms:
            return "tcg", f"a test boot took {self.kvm_ms} ms with KVM and {self.tcg_ms} ms without"
        return "kvm", f"a test boot took {self.kvm_ms} ms with KVM and {self.tcg_ms} ms without"


def kvm_obstacle() -> str:
    """Why this user cannot use KVM; nothing if that is not known."""
    if not os.path.exists(KVM):
        return f"there is no {KVM}"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return f"this user may not open {KVM}"
    return ""


def probe(program: str, clock: Clock) -> ProbedBoots:
    """Boot the program each way, once."""
    tcg_ms = _boot_ms(program, "tcg", clock, MOST_BOOT_S)
    if tcg_ms is None:
        raise Unsuitable(f"a test boot with {program} failed: does QEMU have its firmware (Debian: seabios)?")
    obstacle = kvm_obstacle()
    if obstacle:
        return ProbedBoots(tcg_ms, None, obstacle)
    return ProbedBoots(tcg_ms, _boot_ms(program, "kvm", clock, max(2.0, 2 * tcg_ms / 1000)))


def _boot_ms(program: str, accelerator: str, clock: Clock, most_s: float) -> int | None:
    with tempfile.NamedTemporaryFile(prefix="outrider-probe-") as disk:
        disk.write(BOOT_SECTOR)
        disk.truncate(DISK_BYTES)
        disk.flush()
        line = [
            program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "64M",
            "-machine", "q35,hpet=off,smm=off", "-accel", accelerator, "-cpu", PROCESSORS[accelerator],
            "-device", "isa-debug-exit,iobase=0xf4,iosize=1",
            "-drive", f"file={disk.name},format=raw,if=ide,read-only=off,snapshot=off",
        ]  # fmt: skip
        began_s = clock.monotonic_s()
        try:
            done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=most_s)
        except FileNotFoundError as error:
            raise _missing(program) from error
        except subprocess.TimeoutExpired:
            return None
        return int((clock.monotonic_s() - began_s) * 1000) if done.returncode == EXIT else None


def qemu_version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S
        )
    except FileNotFoundError as error:
        raise _missing(program) from error
    except subprocess.TimeoutExpired as error:
        raise Unsuitable(f"{program} --version did not answer within {ASK_S} s") from error
    found = VERSION.search(done.stdout.decode(errors="replace"))
    if found is None:
        raise Unsuitable(f"{program} --version says nothing that is understood: {done.stdout[:80]!r}")
    return found[1]


def _missing(program: str) -> Unsuitable:
    return Unsuitable(f"{program} is not installed on this node: install QEMU (Debian: qemu-system-x86)")


def processor() -> str:
    """The name of this node's processor: what a guest sees under KVM."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def find_facts(
    program: str, clock: Clock, disk: Disk, path: str = FACTS, *, is_new: bool = False
) -> QemuFacts:
    """By what machines run here, for this user. What root has found is believed, if it is of this QEMU."""
    stamp = _stamp(program, disk)
    known = None if is_new else _read(disk, path, stamp)
    obstacle = kvm_obstacle()
    if known is not None and not (known.accelerator == "kvm" and obstacle):
        return known
    if known is not None:
        return QemuFacts(known.version, "tcg", obstacle, PROCESSORS["tcg"])
    version = qemu_version(program)
    # Where there is no choice, nothing has to be tried.
    accelerator, reason = ("tcg", obstacle) if obstacle else probe(program, clock).choice()
    found = QemuFacts(
        version, accelerator, reason, processor() if accelerator == "kvm" else PROCESSORS["tcg"]
    )
    if os.geteuid() == 0:
        with suppress(OSError):
            replace_file(disk, path, json.dumps({"stamp": stamp, **asdict(found)}).encode(), mode=0o644)
    return found


def _stamp(program: str, disk: Disk) -> str:
    """What the facts hold for: this program since this boot."""
    try:
        found = os.stat(program)
    except FileNotFoundError as error:
        raise _missing(program) from error
    return f"{disk.boot_id()} {program} {found.st_size} {found.st_mtime_ns}"


def _read(disk: Disk, path: str, stamp: str) -> QemuFacts | None:
    with suppress(OSError, ValueError, TypeError):
        if os.stat(path, follow_symlinks=False).st_uid not in (0, os.geteuid()):
            return None
        plain = json.loads(disk.read(path, MOST_BYTES))
        if plain.pop("stamp") == stamp and plain["accelerator"] in PROCESSORS:
            return QemuFacts(**plain)
    return None
