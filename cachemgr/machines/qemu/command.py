"""QEMU's command line for a machine: nothing in it comes from the node's configuration of QEMU.

A saved state can only be read by a QEMU with the same devices in the same order, so the
line depends on the record alone; what differs between two runs is the layers' numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from cachemgr.machines.network.place import LOGIN_ADDRESS, LOGIN_MAC, MTU
from cachemgr.machines.wish import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.machines.network.place import ClusterPlace
    from cachemgr.machines.record import QemuFacts
    from cachemgr.machines.wish import MachineDisk, MachineWish

SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
TRANSLATION_MIB = 64
"""Of translated code: without a bound QEMU takes up to 1 GiB beside the guest's memory."""
OVERHEAD_BYTES = 256 * MIB
"""What QEMU takes beside the guest's memory, at most, with that bound."""
ACCELERATORS = {"tcg": f"tcg,tb-size={TRANSLATION_MIB}", "kvm": "kvm"}
MEMORY = {"q35": "pc.ram", "microvm": "microvm.ram"}
"""By these names QEMU would call memory of its own, and looks for it in a state."""
PROCESSORS = {"tcg": "Nehalem,-spec-ctrl", "kvm": "host,migratable=on"}
OUT, ERR, CONTROL, WORK, SIGNALS = (
    "outrider.out", "outrider.err", "outrider.control", "outrider.work", "outrider.signals"
)  # fmt: skip
CONSOLE_LOG = "console.log"
CARD_SOCKET, SWITCH_SOCKET = "card.sock", "switch.sock"
"""Where QEMU takes frames for its guest, and where the switch takes those that the guest sends."""


@dataclass(frozen=True)
class CommandParts:
    """What the line needs beside the wish."""

    program: str
    folder: str
    qemu: QemuFacts
    layers: Mapping[str, Sequence[str]]
    """For each writable disk the files of its layers, the lowest first."""
    first_layer: int
    """The generation of the lowest."""
    sockets: Mapping[str, int]
    memory: int
    """The guest's, which QEMU inherits by this number."""
    extras: Sequence[tuple[str, str]] = ()
    """Read-only disks that are made here: name and file."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Ports of the guest that end in files."""
    is_incoming: bool = False
    login_port: int | None = None
    """Of this node's own, at which the guest's ssh is found."""


def command_line(wish: MachineWish, parts: CommandParts) -> list[str]:
    bus = "device" if wish.machine == "microvm" else "pci"
    line = [
        parts.program, "-nodefaults", "-no-user-config", "-display", "none", "-S",
        "-name", f"{wish.name},debug-threads=on",
        "-sandbox", SANDBOX,
        "-machine", f"{_machine(wish, parts.qemu)},memory-backend={MEMORY[wish.machine]}",
        "-cpu", PROCESSORS[parts.qemu.accelerator],
        "-accel", ACCELERATORS[parts.qemu.accelerator],
        *_memory(wish, parts.memory),
        "-smp", f"cpus={wish.cpus},sockets=1,cores={wish.cpus},threads=1",
        # A guest that shuts down leaves QEMU there, so that its end is told from QEMU's death.
        "-action", f"shutdown=pause,panic=none,reboot={'reset' if _may_reboot(wish) else 'shutdown'}",
        *_sockets(parts),
        "-object", "rng-random,id=random,filename=/dev/urandom",
        "-device", f"virtio-rng-{bus},rng=random",
    ]  # fmt: skip
    if wish.kernel is not None:
        line += ["-kernel", wish.kernel, "-append", wish.append]
        line += [] if wish.initrd is None else ["-initrd", wish.initrd]
    for number, disk in enumerate(wish.disks):
        line += _disk(
            disk, parts.layers.get(disk.name, ()), parts.first_layer, bus,
            boots=number == 0 and wish.kernel is None,
        )  # fmt: skip
    for name, path in parts.extras:
        line += [*_file(f"{name}-0", path, "raw", is_read_only=True), *_drive(name, f"{name}-0", bus, "")]
    if wish.job is not None:
        line += _ports(parts, bus)
    line += ["-netdev", "user,id=net,restrict=off", "-device", f"virtio-net-{bus},netdev=net"] if (
        wish.network == "user"
    ) else []  # fmt: skip
    if wish.cluster is not None:
        line += _card(wish.cluster, parts.folder, bus)
        if parts.login_port is not None:
            line += _login_card(parts.login_port, bus)
    return [*line, "-incoming", "defer"] if parts.is_incoming else line


def most_file_bytes(wish: MachineWish, disk_bytes: Sequence[int]) -> int:
    """How large a file QEMU may make: a full layer with its tables, or as much output."""
    largest = max([*disk_bytes, wish.memory_bytes])
    return largest + largest // 1024 + 64 * MIB


def _may_reboot(wish: MachineWish) -> bool:
    """A job would begin anew; and a microvm has no other way to end than a reset."""
    return wish.job is None and wish.machine != "microvm"


def _machine(wish: MachineWish, qemu: QemuFacts) -> str:
    if wish.machine == "microvm":
        # With ACPI a kernel finds its devices without being told, and can shut down; the second controller
        # of interrupts and the lack of a timer were seen to let Debian's kernel hang without KVM.
        return "microvm,rtc=on,pit=on,pic=on,ioapic2=off"
    major, minor = qemu.version.split(".")[:2]
    return f"pc-q35-{major}.{minor},hpet=off,smm=off,vmport=off"


def _memory(wish: MachineWish, fd: int) -> list[str]:
    """Memory that this side has as well, where pages of 2 MiB fit."""
    size = f"{wish.memory_bytes // MIB}M"
    backend = {"id": MEMORY[wish.machine], "mem-path": f"/proc/self/fd/{fd}", "size": size, "share": "on",
               "align": "2M", "x-use-canonical-path-for-ramblock-id": "off"}  # fmt: skip
    told = ",".join(f"{key}={value}" for key, value in backend.items())
    return ["-m", f"size={size}", "-object", f"memory-backend-file,{told}"]


def _sockets(parts: CommandParts) -> list[str]:
    """The monitor, the guest's first serial port, the port for signals: each has a listener already.

    What a guest says on its serial port never waits for somebody to listen; all of it is kept in a file.
    """
    line = []
    for name, fd in parts.sockets.items():
        log = (
            f",logfile={_escaped(f'{parts.folder}/{CONSOLE_LOG}')},logappend=on" if name == "console" else ""
        )
        line += ["-chardev", f"socket,id={name},fd={fd},server=on,wait=off{log}"]
    return [*line, "-mon", "chardev=monitor,mode=control", "-serial", "chardev:console"]


def _card(place: ClusterPlace, folder: str, bus: str) -> list[str]:
    """The card on the network of the job's machines. By paths, so that either end may begin anew."""
    ends = [f"{side}.type=unix,{side}.path={_escaped(f'{folder}/{name}')}"
            for side, name in (("local", CARD_SOCKET), ("remote", SWITCH_SOCKET))]  # fmt: skip
    rom = ",romfile=" if bus == "pci" else ""
    return ["-netdev", f"dgram,id=private,{','.join(ends)}",
            "-device", f"virtio-net-{bus},netdev=private,mac={place.mac},host_mtu={MTU}{rom}"]  # fmt: skip


def _login_card(port: int, bus: str) -> list[str]:
    """The card by which ssh comes in from this node; nothing goes out by it."""
    rom = ",romfile=" if bus == "pci" else ""
    return ["-netdev", f"user,id=login,restrict=on,hostfwd=tcp:127.0.0.1:{port}-{LOGIN_ADDRESS}:22",
            "-device", f"virtio-net-{bus},netdev=login,mac={LOGIN_MAC}{rom}"]  # fmt: skip


def _escaped(path: str) -> str:
    return path.replace(",", ",,")


def _disk(disk: MachineDisk, layers: Sequence[str], first: int, bus: str, *, boots: bool) -> list[str]:
    """A disk as nodes, each naming the one below: no path that a file contains is ever opened."""
    line: list[str] = []
    top = None
    if disk.path is not None:
        line += _file(f"{disk.name}-0", disk.path, disk.format, is_read_only=True)
        top = f"{disk.name}-0"
    for number, path in enumerate(layers, first):
        is_lower = path != layers[-1]
        line += _file(f"{disk.name}-{number}", path, "qcow2", is_read_only=is_lower, backing=top)
        top = f"{disk.name}-{number}"
    assert top is not None
    return [*line, *_drive(disk.name, top, bus, ",bootindex=0" if boots else "")]


def _file(node: str, path: str, kind: str, *, is_read_only: bool, backing: str | None = None) -> list[str]:
    storage = {
        "driver": "file",
        "filename": path,
        "node-name": f"{node}-file",
        "read-only": is_read_only,
        "discard": "unmap",
    }
    format_node: dict[str, object] = {
        "driver": kind,
        "file": f"{node}-file",
        "node-name": node,
        "read-only": is_read_only,
        "discard": "unmap",
    }
    if kind == "qcow2":
        format_node["backing"] = backing
    return ["-blockdev", json.dumps(storage), "-blockdev", json.dumps(format_node)]


def disk_devices(wish: MachineWish) -> list[str]:
    """Where QEMU has the backends of its disks; those that are made here are not among them."""
    inside = "" if wish.machine == "microvm" else "/virtio-backend"
    return [f"/machine/peripheral/disk-{disk.name}{inside}" for disk in wish.disks]


def _drive(name: str, node: str, bus: str, more: str) -> list[str]:
    return ["-device", f"virtio-blk-{bus},id=disk-{name},drive={node},serial={name}{more}"]


def _ports(parts: CommandParts, bus: str) -> list[str]:
    line = ["-device", f"virtio-serial-{bus},id=ports"]
    for number, (name, path) in enumerate(parts.outputs.items(), 1):
        line += ["-chardev", f"file,id=port{number},path={_escaped(path)},append=on"]
        line += ["-device", f"virtserialport,chardev=port{number},name={name}"]
    return [*line, "-device", f"virtserialport,chardev=signals,name={SIGNALS}"]
