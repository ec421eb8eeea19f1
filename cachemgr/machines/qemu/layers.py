"""The layers of a machine's writable disks: each run writes its own, and those below never change again.

A layer that was written when a state was saved belongs to that state. A run that begins
from the state writes to a new layer over it, so that the pair is whole until the run has begun.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

from cachemgr.base.errors import Unsuitable
from cachemgr.instances.formats import HEAD_BYTES, detect
from cachemgr.instances.qcow2 import inspect_qcow2, overlay
from cachemgr.machines.wish import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cachemgr.base.disk import Disk
    from cachemgr.machines.wish import MachineDisk, MachineWish

MERGED_LAYERS = 16
"""From so many on, a machine that has been resumed merges those below into its newest."""
MOST_LAYERS = 64
"""QEMU opens them all; a suspension that would make more waits until they are merged."""
SUFFIX = ".qcow2"


def layer_name(disk_name: str, generation: int) -> str:
    return f"{disk_name}.{generation}{SUFFIX}"


def layers_of(wish: MachineWish, folder: str, generations: Iterable[int]) -> dict[str, list[str]]:
    """For each writable disk the files of its layers, the lowest first."""
    numbers = list(generations)
    return {
        each.name: [f"{folder}/{layer_name(each.name, number)}" for number in numbers]
        for each in wish.writable
    }


def virtual_bytes(disk: Disk, wanted: MachineDisk) -> int:
    """How large the guest sees it; refuses an image that would make QEMU open other files."""
    if wanted.path is None:
        assert wanted.size_bytes is not None
        return wanted.size_bytes
    with closing(disk.open(wanted.path)) as handle:
        head, size_bytes = handle.read_at(0, HEAD_BYTES), handle.size()
    if wanted.format == "qcow2":
        return inspect_qcow2(head).virtual_bytes
    if detect(head, size_bytes) == "qcow2":
        raise Unsuitable(f"{wanted.path} is a qcow2 image, although it was called raw")
    return size_bytes


def make_layers(disk: Disk, wish: MachineWish, folder: str, generation: int, first: int = 1) -> None:
    """Empty layers of this generation; what an attempt that died has left of them is thrown away.

    A disk that is made for this machine has all of its room from its first layer on: it is lacking at once,
    or not at all. What the guest writes again after it was saved goes to a layer above, and takes more.
    """
    for each in wish.writable:
        path = f"{folder}/{layer_name(each.name, generation)}"
        with suppress(FileNotFoundError):
            disk.remove(path)
        below, kind = each.path, each.format
        if generation > first:
            below, kind = f"{folder}/{layer_name(each.name, generation - 1)}", "qcow2"
        with closing(disk.create(path, 0o600)) as handle:
            for offset, data in overlay(below, kind, virtual_bytes(disk, each)):
                handle.write_at(offset, data)
            if each.path is None and generation == first == 1:
                handle.reserve(reserved_bytes(each))


def reserved_bytes(disk: MachineDisk) -> int:
    """What an empty disk takes when its guest has written all of it, tables included."""
    return 0 if disk.size_bytes is None else disk.size_bytes + disk.size_bytes // 1024 + MIB


def remove_layers(disk: Disk, wish: MachineWish, folder: str, generations: Iterable[int]) -> None:
    for number in generations:
        for each in wish.writable:
            with suppress(FileNotFoundError):
                disk.remove(f"{folder}/{layer_name(each.name, number)}")


def freeze(disk: Disk, path: str) -> None:
    """What was written to a layer is on the disk from now on, and nobody writes to it again."""
    with closing(disk.open(path)) as handle:
        handle.sync()
        handle.set_mode(0o400)


def thaw(disk: Disk, path: str) -> None:
    with suppress(FileNotFoundError), closing(disk.open(path)) as handle:
        handle.set_mode(0o600)


def taken_bytes(paths: Iterable[str]) -> int:
    """What files take on the disk, holes not counted."""
    found = 0
    for path in paths:
        with suppress(FileNotFoundError):
            found += os.stat(path, follow_symlinks=False).st_blocks * 512
    return found
