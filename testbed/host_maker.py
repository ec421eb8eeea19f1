"""Makes hosts and joins them to the cluster's switch, each by a link of a limited rate."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.hosts import JUMBO_BYTES, HostsError, batch, limit
from testbed.inits import DEVICES
from testbed.people import HOMES
from testbed.records import ClusterRecord, HostProcess, TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BIRTH_S = 60
# What the tree has in these places is hidden from a host, which finds them empty.
POOL = "/var/cache/outrider"
PRIVATE = (
    POOL,
    "/etc/cachemgr",
    "/etc/munge",
    "/etc/outrider",
    "/etc/slurm",
    "/usr/lib/outrider",
    "/var/lib/cachemgr",
    "/var/lib/gridengine/default",
    "/var/lib/munge",
    "/var/lib/outrider",
    "/var/lib/slurm",
    "/var/log",
    "/var/spool",
)
# The same, and what is empty after each boot.
HIDDEN = (*PRIVATE, "/dev", "/proc", "/run", "/sys", "/tmp")


@dataclass(frozen=True, kw_only=True)
class InitialFile:
    """A file that a host has from its first boot."""

    path: str
    content: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder that a host has after each boot, also under /run."""

    path: str
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


def devices() -> str:
    """Owner and mode of this machine's devices that hosts have likewise, in words."""
    found = []
    for name in DEVICES:
        path = Path("/dev", name)
        if path.exists():
            about = path.stat()
            found.append(f"/dev/{name} {stat.filemode(about.st_mode)} {about.st_uid}:{about.st_gid}")
    return ", ".join(found)


def door(record: ClusterRecord, name: str) -> Path:
    """Where a host's first process is called (see `testbed.calls`)."""
    return record.folder / f"{name}.calls"


def make(
    record: ClusterRecord,
    names: Sequence[str],
    files: Mapping[str, Sequence[InitialFile]],
    folders: Sequence[Folder],
) -> tuple[HostProcess, dict[str, HostProcess]]:
    """Make hosts, and the site if there is none yet; gives the site and the hosts' first processes."""
    owner = os.getpid() if record.is_kept() else record.owner.pid
    wanted = {
        "name": record.name,
        "folder": str(record.folder),
        "homes": HOMES,
        "disks": str(record.folder / "disks"),
        "owner": owner,
        "site": record.site.pid if record.site is not None and record.site.is_alive() else None,
        "tree": record.tree,
        "private": PRIVATE,
        "pool": POOL,
        "pool_bytes": record.pool_bytes,
        "passable": programs(record),
        "binds": [
            {"path": path, "at": path, "is_writable": is_writable} for path, is_writable in record.binds
        ],
        "hosts": [
            {
                "name": name,
                "door": str(door(record, name)),
                "files": [_plain(file) for file in files.get(name, ())],
                "folders": [vars(folder) for folder in folders],
            }
            for name in names
        ],
    }
    program = Path(__file__).with_name("inits.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program)],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=BIRTH_S,
        check=False,
    )
    if done.returncode != 0:
        raise TestbedError(f"hosts of {record.name} cannot be made: {done.stderr.strip()}")
    pids: dict[str, int] = json.loads(done.stdout)
    made = {name: HostProcess.of(pid) for name, pid in pids.items()}
    site = made.pop("site", None) or record.site
    assert site is not None
    return site, made


def join(record: ClusterRecord, names: Sequence[str]) -> None:
    """Connect hosts to the switch; their site and first processes are in the record."""
    assert record.site is not None
    switch = _in_network(record.site)
    lines = []
    if not _has_switch(record.site):
        lines = ["link add name switch type bridge", f"link set switch mtu {JUMBO_BYTES} up"]
        lines += [line for rack in record.racks for line in _rack(rack)]
    has_racks = bool(lines and record.racks and record.rack_rate_bits_per_s)
    for name in names:
        peer = f"peer name eth0 netns {record.hosts[name].pid} mtu {JUMBO_BYTES}"
        lines.append(f"link add name {_port(name)} mtu {JUMBO_BYTES} type veth {peer}")
        lines.append(f"link set {_port(name)} master {_switch(record.rack_of(name))} up")
    _told(record, [*switch, "ip"], lines)
    rate = record.rate_bits_per_s
    if has_racks and record.rack_rate_bits_per_s is not None:
        ends = [end for rack in record.racks for end in _ends(rack)]
        _told(
            record,
            [*switch, "tc"],
            [" ".join(limit("add", end, record.rack_rate_bits_per_s)) for end in ends],
        )
    if rate is not None:
        _told(record, [*switch, "tc"], [" ".join(limit("add", _port(name), rate)) for name in names])
    for name in names:
        inside = _in_network(record.hosts[name])
        address = f"addr add {record.addresses[name]}/16 dev eth0"
        _told(record, [*inside, "ip"], ["link set lo up", address, "link set eth0 up"])
        if rate is not None:
            _told(record, [*inside, "tc"], [" ".join(limit("add", "eth0", rate))])


def part(record: ClusterRecord, name: str) -> None:
    """Take away a dead host's end of its cable, which the kernel would do only in its own time."""
    assert record.site is not None
    subprocess.run(
        [*_in_network(record.site), "ip", "link", "delete", _port(name)],
        capture_output=True,
        timeout=BIRTH_S,
        check=False,
    )


def set_rate(record: ClusterRecord, name: str, rate_bits_per_s: int) -> None:
    """Another rate for a host's link, in both directions."""
    assert record.site is not None
    for place, device in ((record.site, _port(name)), (record.hosts[name], "eth0")):
        _told(record, [*_in_network(place), "tc"], [" ".join(limit("replace", device, rate_bits_per_s))])


def set_link(record: ClusterRecord, name: str, *, is_up: bool) -> None:
    """Pull a host's cable, or put it in again."""
    assert record.site is not None
    _told(record, [*_in_network(record.site), "ip"], [f"link set {_port(name)} {'up' if is_up else 'down'}"])


def programs(record: ClusterRecord) -> list[str]:
    """What users of the hosts may want to run: the repository, and this Python where it is the tree's."""
    paths = [path for path, _ in record.binds]
    if record.tree == "/":
        paths += [sys.executable, os.path.realpath(sys.executable), sys.base_prefix]
    return paths


def rack_bytes(record: ClusterRecord, rack: str) -> tuple[int, int]:
    """What a rack's link has carried into it and out of it."""
    assert record.site is not None
    end = _ends(rack)[0]
    for line in Path(f"/proc/{record.site.pid}/net/dev").read_text().splitlines():
        device, _, counts = line.partition(":")
        if device.strip() == end:
            # The switch's end sends what comes into the rack.
            return int(counts.split()[8]), int(counts.split()[0])
    raise TestbedError(f"{record.name} has no rack {rack}: there are {', '.join(record.racks) or 'none'}")


def _told(record: ClusterRecord, argv: list[str], lines: list[str]) -> None:
    try:
        batch(argv, lines)
    except HostsError as error:
        raise TestbedError(f"the network of {record.name}: {error}") from error


def _in_network(process: HostProcess) -> list[str]:
    return ["nsenter", f"--net=/proc/{process.pid}/ns/net", "--"]


def _port(name: str) -> str:
    """The switch's end of a host's cable, by no word of iproute2's own; at most 15 letters."""
    return f"p-{name}"


def _switch(rack: str | None) -> str:
    """What a host's cable goes to."""
    return "switch" if rack is None else f"s-{rack}"


def _ends(rack: str) -> tuple[str, str]:
    """A rack's link: the end at the cluster's switch, and the rack's own."""
    return f"d-{rack}", f"u-{rack}"


def _rack(rack: str) -> list[str]:
    """A switch of its own, and its link to the cluster's."""
    down, up = _ends(rack)
    return [
        f"link add name {_switch(rack)} type bridge",
        f"link set {_switch(rack)} mtu {JUMBO_BYTES} up",
        f"link add name {down} mtu {JUMBO_BYTES} type veth peer name {up} mtu {JUMBO_BYTES}",
        f"link set {down} master switch up",
        f"link set {up} master {_switch(rack)} up",
    ]


def _has_switch(site: HostProcess) -> bool:
    return "switch:" in Path(f"/proc/{site.pid}/net/dev").read_text()


def _plain(file: InitialFile) -> dict[str, object]:
    return {**vars(file), "content": base64.b64encode(file.content).decode()}
