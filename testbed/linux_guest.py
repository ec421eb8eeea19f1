"""A Linux of a few MB, made of Debian's packages: its cloud kernel, and busybox as everything else.

Nothing is fetched but these two packages, by apt, and once: what is made stays in the folder for
temporary files under a name with the packages' versions and a sum of this file.
"""

from __future__ import annotations

import ctypes
import fcntl
import gzip
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cachemgr.base.clock import SystemClock

CLOCK = SystemClock()
APT = ("/var/lib/apt/lists", "/var/lib/dpkg/status")
KERNEL_PACKAGE, BUSYBOX_PACKAGE = "linux-image-cloud-amd64", "busybox-static"
LZ4_MAGIC = b"\x02!L\x18"
# In the order in which each finds what it needs.
MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_mmio",
    "virtio_blk", "virtio_console", "cdrom", "isofs", "failover", "net_failover", "virtio_net",
)  # fmt: skip
OPTIONS = (
    "console=ttyS0 quiet panic=-1 mitigations=off nopti tsc=reliable no_timer_check random.trust_cpu=on "
    # A fifth of a translated boot: the kernel tries its ciphers and probes, and reads its certificates.
    "cryptomgr.notests 8250.nr_uarts=1 "
    # Another sixth: for one processor it would rewrite each locked instruction, and what is rewritten is
    # translated again.
    "noreplace-smp "
    "initcall_blacklist=init_kprobe_trace,load_system_certificate_list,crypto_kdf108_init"
)
# Gives the processor's time stamp, in the registers in which a function gives a number.
READ_STAMP = bytes.fromhex("0f31 48c1e220 4809d0 c3")
MEASURED_S = 0.1
PROGRAMS = ("/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen")
"""What a guest has beside busybox that others may reach by ssh: this system's own."""
PEOPLE = "root:x:0:0:root:/guest:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n"
INIT = r"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /job /run /tmp /guest
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
export PATH=/bin:/usr/bin:/usr/sbin HOME=/tmp
[ ! -e /usr/bin/ssh ] || { mkdir -p /dev/pts && mount -t devpts devpts /dev/pts; }
while read -r module; do insmod "/modules/$module.ko"; rm "/modules/$module.ko"; done </modules/order
tries=0
while [ "$tries" -lt 100 ]; do
    for each in /sys/block/vd*; do
        [ "$(cat "$each/serial" 2>/dev/null)" = job ] && job=/dev/${each##*/}
    done
    [ -n "$job" ] && break
    tries=$((tries + 1))
    sleep 0.1
done
mount -t iso9660 -o ro "$job" /job && sh /job/run
poweroff -f
"""


@dataclass(frozen=True)
class LinuxGuest:
    """What `-kernel` and `-initrd` take."""

    kernel: Path
    initrd: Path
    with_ssh: Path
    """An initial RAM disk that has OpenSSH, too, and so some 20 MB more."""


@cache
def append() -> str:
    """The kernel's command line. A microvm that is translated counts as this processor does, and has no clock
    to find out how fast that is: told another pace, its seconds are longer or shorter than ours."""
    return f"{OPTIONS} tsc_early_khz={_stamps_in_ms()}"


def _stamps_in_ms() -> int:
    """How fast this processor counts."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(READ_STAMP)
        code = ctypes.c_char.from_buffer(page)
        stamp = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
        begun_s, first = CLOCK.monotonic_s(), stamp()
        CLOCK.sleep(MEASURED_S)
        passed_s, last = CLOCK.monotonic_s() - begun_s, stamp()
        # As long as it is there the page cannot be given back.
        del code
    counted: int = last - first
    return round(counted / passed_s / 1000)


TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "cpio", "lz4")


def linux_guest(within: Path | None = None) -> LinuxGuest:
    """The guest, made if it is not there yet: in a folder of the caller's, or in that for temporary files."""
    version = "-".join(_candidates())
    made_by = zlib.crc32(Path(__file__).read_bytes())
    name = re.sub("[^0-9A-Za-z.]+", "-", f"outrider-guest-{os.getuid()}-{made_by:08x}-{version}")
    folder = (within or Path(tempfile.gettempdir())) / name
    found = LinuxGuest(folder / "vmlinux", folder / "initrd", folder / "initrd-ssh")
    with _locked(Path(f"{folder}.lock")):
        if not folder.exists():
            new = Path(f"{folder}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            _make(new)
            new.chmod(0o755)
            new.rename(folder)
    return found


@cache
def _candidates() -> list[str]:
    """The versions that there are of both packages.

    Where apt keeps no index, it takes a second of a processor to tell them, to each process that wants a
    guest: it is asked once, until its lists or what is installed are others.
    """
    known = Path(tempfile.gettempdir(), f"outrider-guest-{os.getuid()}.versions")
    stamp = " ".join(str(os.stat(path).st_mtime_ns) for path in APT)
    with suppress(OSError):
        was, *versions = known.read_text().splitlines()
        if was == stamp and known.stat().st_uid == os.getuid():
            return versions
    told = subprocess.run(
        ["apt-cache", "policy", KERNEL_PACKAGE, BUSYBOX_PACKAGE],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found = re.findall(r"Candidate: (\S+)", told.stdout)
    assert len(found) == 2, f"apt knows no {KERNEL_PACKAGE} or {BUSYBOX_PACKAGE}: run apt-get update"
    new = known.with_name(f"{known.name}.{os.getpid()}")
    new.write_text("\n".join([stamp, *found]))
    new.rename(known)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path) -> None:
    packages = folder / "packages"
    packages.mkdir()
    depends = subprocess.run(
        ["apt-cache", "depends", KERNEL_PACKAGE], capture_output=True, text=True, timeout=240, check=True
    )
    kernel = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
    assert kernel is not None, depends.stdout
    subprocess.run(
        ["apt-get", "download", "-q", kernel[1], BUSYBOX_PACKAGE],
        cwd=packages, capture_output=True, timeout=300, check=True,
    )  # fmt: skip
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "root")], timeout=120, check=True)
    (vmlinuz,) = (folder / "root" / "boot").glob("vmlinuz-*")
    _unpack_kernel(vmlinuz, folder / "vmlinux")
    _make_initrd(folder / "root", folder / "initrd")
    shutil.rmtree(packages)
    shutil.rmtree(folder / "root")


def _unpack_kernel(vmlinuz: Path, target: Path) -> None:
    """The kernel without its own unpacking, which takes seconds in a guest that is translated."""
    data = vmlinuz.read_bytes()
    at = data.index(LZ4_MAGIC)
    # After the packed kernel stands more, of which lz4 complains when it has written everything.
    unpacked = subprocess.run(["lz4", "-dc"], input=data[at:], capture_output=True, timeout=240, check=False)
    assert unpacked.stdout.startswith(b"\x7fELF"), unpacked.stderr[-300:]
    target.write_bytes(unpacked.stdout)


def _make_initrd(root: Path, target: Path) -> None:
    tree = target.parent / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "modules").mkdir()
    shutil.copy(root / "bin" / "busybox", tree / "bin" / "busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    there = {path.name.partition(".ko")[0]: path for path in root.rglob("*.ko*")}
    order = [name for name in MODULES if name in there]
    for name in order:
        path = there[name]
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (tree / "modules" / f"{name}.ko").write_bytes(data)
    (tree / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    _pack(tree, target)
    _add_ssh(tree)
    _pack(tree, target.with_name(f"{target.name}-ssh"))
    shutil.rmtree(tree)


def _add_ssh(tree: Path) -> None:
    told = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, timeout=240, check=True).stdout
    # A line ends in the path of a library, and where it is in memory.
    libraries = [word for line in told.splitlines() for word in line.split()[-2:-1] if word.startswith("/")]
    for path in {*PROGRAMS, *libraries}:
        (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tree / path[1:])
    (tree / "etc").mkdir()
    (tree / "etc" / "passwd").write_text(PEOPLE)
    (tree / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _pack(tree: Path, target: Path) -> None:
    names = "\n".join([".", *sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))])
    line = ["cpio", "--quiet", "-o", "-H", "newc"]
    packed = subprocess.run(
        line, cwd=tree, input=names.encode(), capture_output=True, check=True, timeout=240
    )
    target.write_bytes(packed.stdout)
