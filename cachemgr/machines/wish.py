"""What is asked of a machine, checked: its size, its disks, how it boots, and what job it runs."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace

from cachemgr.base.errors import BadRequest
from cachemgr.instances.context import checked_context
from cachemgr.machines.network.place import ClusterPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,64}")
DISK_NAME = re.compile(r"[a-z][a-z0-9]{0,14}")
MIB = 1 << 20
LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 32 * MIB, 16 << 40
MOST_CPUS, MOST_DISKS, MOST_APPEND = 255, 8, 2000
MOST_DISK_BYTES = 16 << 40
LEAST_RATE = 1 << 16
MACHINE_TYPES = ("q35", "microvm")
NETWORKS = ("none", "user")
FORMATS = ("raw", "qcow2")
OWN_DISKS = ("job", "work", "seed")
"""Names of the disks that are made here; a user's disks have others."""
RESERVED_DISKS = (*OWN_DISKS, "root", "scratch")
"""Names that a job's data cannot have: its other disks have them."""
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class MachineDisk:
    """A disk of the guest. A writable one never changes the file: what is written goes to layers over it.

    Without a file it is empty, of that size, and writable. The guest finds it by its name,
    which is the disk's serial number.
    """

    name: str
    path: str | None = None
    format: str = "raw"
    digest: str | None = None
    is_writable: bool = True
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        if not DISK_NAME.fullmatch(self.name) or self.name in OWN_DISKS:
            raise BadRequest(
                f"a disk cannot be called {self.name[:40]!r}: up to 15 of a-z 0-9, a letter first, none "
                f"of {', '.join(OWN_DISKS)}"
            )
        if self.format not in FORMATS:
            raise BadRequest(f"disk {self.name} is {self.format!r}: machines have raw and qcow2 disks")
        if self.digest is not None and not DIGEST.fullmatch(self.digest):
            raise BadRequest(f"disk {self.name} has no sha256 digest but {self.digest[:80]!r}")
        if (self.path is None) == (self.size_bytes is None):
            raise BadRequest(f"disk {self.name} has either a file or, if it is empty, a size")
        if self.path is None and not self.is_writable:
            raise BadRequest(f"disk {self.name} is empty and read-only: of what use is it?")
        if self.size_bytes is not None and not (
            MIB <= self.size_bytes <= MOST_DISK_BYTES and self.size_bytes % 512 == 0
        ):
            raise BadRequest(
                f"disk {self.name} cannot have {self.size_bytes} bytes: 1 MiB or more, in sectors"
            )
        checked_path(self.path, f"disk {self.name}")


@dataclass(frozen=True)
class MachineJob:
    """The script that runs in the guest as it would on the node, and what it needs from there."""

    script: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    folder: str | None = None
    """Copied into the guest under the same path, and back when the script has ended."""
    out: str = ""
    err: str = ""
    """Where standard output and error go; without a path they stay in the machine's folder."""
    left_out: tuple[str, ...] = ()
    """Files of the working folder that are the node's alone, such as those that the output goes to."""
    brings_back: bool = True
    """Whether the working folder is copied back."""
    waits: bool = False
    """Whether the script begins when it is told to (GO), and not as soon as the guest is ready."""
    data: tuple[str, ...] = ()
    """Read-only disks that it finds at /data, by their names."""

    def __post_init__(self) -> None:
        if not self.script:
            raise BadRequest("the job's script is empty")
        for name, value in self.environment:
            if not name or "=" in name or "\0" in name + value:
                raise BadRequest(f"{name[:40]!r} is not a variable that an environment can have")
        checked_path(self.folder, "the working folder")
        for path in (self.out, self.err):
            checked_path(path or None, "the job's output")
        for name in self.data:
            if not DISK_NAME.fullmatch(name) or name in RESERVED_DISKS:
                raise BadRequest(f"a data disk cannot be called {name[:40]!r}")
        if any(each.startswith("/") or ".." in each.split("/") for each in self.left_out):
            raise BadRequest("what is left out of the working folder is in it")


@dataclass(frozen=True)
class MachineWish:
    """A machine as it is asked for. `kernel`: boot this file directly, else from the first disk."""

    name: str
    memory_bytes: int
    cpus: int = 1
    machine: str = "q35"
    disks: tuple[MachineDisk, ...] = ()
    kernel: str | None = None
    initrd: str | None = None
    append: str = ""
    network: str = "none"
    context: Mapping[str, Any] | None = None
    job: MachineJob | None = None
    cluster: ClusterPlace | None = None
    disk_rate_bytes_per_s: int | None = None
    """Of all its disks together, reading and writing."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadRequest(f"a machine cannot be called {self.name[:80]!r}: 1 to 64 of A-Z a-z 0-9 . _ -")
        if self.memory_bytes % MIB or not LEAST_MEMORY_BYTES <= self.memory_bytes <= MOST_MEMORY_BYTES:
            raise BadRequest(
                f"a machine has 32 MiB of memory or more, in whole MiB, not {self.memory_bytes} bytes"
            )
        if not 1 <= self.cpus <= MOST_CPUS:
            raise BadRequest(f"a machine has 1 to {MOST_CPUS} processors, not {self.cpus}")
        _one_of(self.machine, MACHINE_TYPES, "machine type")
        _one_of(self.network, NETWORKS, "network")
        if len(self.disks) > MOST_DISKS or len({disk.name for disk in self.disks}) != len(self.disks):
            raise BadRequest(f"a machine has at most {MOST_DISKS} disks, each with a name of its own")
        self._check_boot()
        if self.context is not None:
            checked_context(self.context)
        if self.disk_rate_bytes_per_s is not None and self.disk_rate_bytes_per_s < LEAST_RATE:
            raise BadRequest(f"disks have a rate of {LEAST_RATE} bytes a second or more")

    def _check_boot(self) -> None:
        for path in (self.kernel, self.initrd):
            checked_path(path, "the kernel")
        if self.kernel is None and (self.initrd or self.append):
            raise BadRequest(
                "an initial RAM disk and a command line are for a kernel that is booted directly"
            )
        if self.kernel is None and not self.disks:
            raise BadRequest("a machine boots a kernel or its first disk: name one of them")
        if self.kernel is None and self.machine == "microvm":
            raise BadRequest("a microvm boots a kernel and no disk: name a kernel, or ask for q35")
        if len(self.append) > MOST_APPEND or not self.append.isprintable():
            raise BadRequest(f"the kernel's command line has at most {MOST_APPEND} printable characters")

    @property
    def writable(self) -> tuple[MachineDisk, ...]:
        return tuple(disk for disk in self.disks if disk.is_writable)

    def encode(self) -> dict[str, object]:
        return asdict(self)


def read_wish(plain: object) -> MachineWish:
    """A wish as it comes in a file or a message; what is wrong is named."""
    found = _fields(plain, MachineWish, "a machine")
    disks = found.get("disks", ())
    if not isinstance(disks, (list, tuple)):
        raise BadRequest("disks are a list")
    found["disks"] = tuple(MachineDisk(**_fields(each, MachineDisk, "a disk")) for each in disks)
    if found.get("job") is not None:
        job = _fields(found["job"], MachineJob, "a job")
        job["arguments"] = tuple(str(each) for each in job.get("arguments", ()))
        job["data"] = tuple(str(each) for each in job.get("data", ()))
        job["left_out"] = tuple(str(each) for each in job.get("left_out", ()))
        pairs = job.get("environment", ())
        pairs = pairs.items() if isinstance(pairs, dict) else pairs
        job["environment"] = tuple((str(name), str(value)) for name, value in pairs)
        found["job"] = MachineJob(**job)
    if found.get("cluster") is not None:
        place = _fields(found["cluster"], ClusterPlace, "a place among machines")
        for key in ("names", "addresses"):
            if not isinstance(place[key], (list, tuple)):
                raise BadRequest(f"{key} are a list")
            place[key] = tuple(str(each) for each in place[key])
        found["cluster"] = ClusterPlace(**place)
    return MachineWish(**found)


def relocated(wish: MachineWish, paths: Mapping[str, str]) -> MachineWish:
    """The same machine, with its images where they lie here. Their digests stay what they were."""
    known = {each.name for each in wish.disks} | {"kernel", "initrd"}
    unknown = sorted(set(paths) - known)
    if unknown:
        raise BadRequest(f"the machine has no file called {unknown[0]!r}: it has {', '.join(sorted(known))}")
    disks = tuple(replace(each, path=paths.get(each.name, each.path)) for each in wish.disks)
    return replace(
        wish, disks=disks, kernel=paths.get("kernel", wish.kernel), initrd=paths.get("initrd", wish.initrd)
    )


KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "str": (str,), "bool": (bool,),
    "str | None": (str, type(None)), "int | None": (int, type(None)),
}  # fmt: skip


def _fields(plain: object, kind: type, what: str) -> dict[str, Any]:
    """The fields of a value, each of the type that its class names; a bool is no number."""
    types: dict[str, str] = kind.__annotations__
    if not isinstance(plain, dict):
        raise BadRequest(f"{what} must be an object with the keys {', '.join(types)}")
    for name, value in plain.items():
        if name not in types:
            raise BadRequest(f"{what} has no key {str(name)[:40]!r}: known are {', '.join(types)}")
        wanted = KINDS.get(types[name])
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
            raise BadRequest(f"{what}'s {name} cannot be {str(value)[:60]!r}")
    try:
        missing = [name for name in types if name not in plain and not hasattr(kind, name)]
    except TypeError:
        missing = []
    if missing:
        raise BadRequest(f"{what} lacks {', '.join(missing)}")
    return dict(plain)


def checked_path(path: str | None, what: str) -> None:
    if path is not None and (not path.startswith("/") or "\0" in path or "\n" in path):
        raise BadRequest(f"{what} needs an absolute path, not {path[:80]!r}")


def _one_of(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise BadRequest(f"there is no {what} {value[:40]!r}: known are {', '.join(known)}")
