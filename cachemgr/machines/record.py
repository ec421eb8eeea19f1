"""What is written of a machine: one file, replaced at once, from which whoever finds it can go on."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import CacheError, NotInPool, PoolDamaged
from cachemgr.machines.states import STATES, checked_step
from cachemgr.machines.wish import MachineWish, read_wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cachemgr.base.disk import Disk

VERSION = 3
READABLE = (1, 2, 3)
"""In the first, the digests of saved files are of the whole files, in the second of SHA-256 of pieces."""
FORMAT = "outrider-machine"
FILE = "machine.json"
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class SavedFile:
    """A file as it was when the machine was suspended."""

    size_bytes: int
    digest: str


@dataclass(frozen=True)
class QemuFacts:
    """By what a machine runs. A state is read by the same alone, and never taken at QEMU's word."""

    version: str
    accelerator: str
    reason: str
    processor: str
    """The model that the guest sees; under KVM the node's own, and so its name."""


@dataclass(frozen=True)
class MachineRecord:
    """One machine in one place.

    `generation` counts the layers of its disks: each run writes its own; those before `first` were merged
    into that one. `place` is where this
    record was written: in a copy of the folder it differs from where it lies, and such a copy never
    runs. `token` stands for the right to run the machine; it changes when the machine moves.
    """

    wish: MachineWish
    state: str
    place: str
    token: str
    generation: int = 1
    first: int = 1
    reason: str = ""
    qemu: QemuFacts | None = None
    saved: Mapping[str, SavedFile] = field(default_factory=dict)
    exit_status: int | None = None
    moving_to: str = ""
    next_token: str = ""
    """Of the machine at its next place. Once this is written in the state `moved`, it runs there alone."""
    pauses_ms: tuple[int, ...] = ()
    together: str = ""
    """Said by all machines of a job that were suspended at one time: they go on with each other, or not at
    all. Empty once it has run since."""

    @property
    def name(self) -> str:
        return self.wish.name

    @property
    def layers(self) -> range:
        """The generations whose layers its disks have, the lowest first."""
        return range(self.first, self.generation + 1)

    def stepped(self, state: str, **changes: Any) -> MachineRecord:
        """The record in its next state, which the table of states must allow."""
        changes.setdefault("reason", "")
        return replace(self, state=checked_step(self.state, state), **changes)


def write_record(disk: Disk, folder: str, record: MachineRecord) -> MachineRecord:
    plain = {"format": FORMAT, "version": VERSION, **asdict(record)}
    replace_file(disk, f"{folder}/{FILE}", json.dumps(plain, indent=1).encode() + b"\n")
    return record


def read_record(disk: Disk, folder: str) -> MachineRecord:
    path = f"{folder}/{FILE}"
    try:
        data = disk.read(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotInPool(f"there is no machine in {folder}") from error
    return record_in(data, path)


def record_in(data: bytes, path: str) -> MachineRecord:
    """What a file says that was read from `path`, here or on another node."""
    try:
        plain = json.loads(data)
    except ValueError as error:
        raise _damaged(path, "it is not JSON") from error
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise _damaged(path, "it describes no machine")
    version = plain.pop("version", None)
    if version not in READABLE:
        raise _damaged(path, f"it has version {version}, and this program knows {VERSION}")
    try:
        wish = read_wish(plain.pop("wish"))
        saved = {str(name): SavedFile(**each) for name, each in plain.pop("saved").items()}
        qemu = plain.pop("qemu")
        pauses_ms = tuple(int(each) for each in plain.pop("pauses_ms"))
        found = MachineRecord(
            wish=wish,
            saved=saved,
            qemu=None if qemu is None else QemuFacts(**qemu),
            pauses_ms=pauses_ms,
            **plain,
        )
        if found.state not in STATES or not isinstance(found.generation, int):
            raise ValueError(f"state {found.state!r}")
        if not isinstance(found.first, int) or not 1 <= found.first <= found.generation:
            raise ValueError(f"layers from {found.first} to {found.generation}")
    except (KeyError, TypeError, ValueError, AttributeError, CacheError) as error:
        raise _damaged(path, str(error)) from error
    return found


def has_record(disk: Disk, folder: str) -> bool:
    with suppress(OSError):
        return disk.exists(f"{folder}/{FILE}")
    return False


def _damaged(path: str, why: str) -> PoolDamaged:
    return PoolDamaged(f"{path} cannot be read: {why}; the machine cannot go on, remove its folder")
