"""What an image is, told by its content and never by its name."""

from __future__ import annotations

import struct

from cachemgr.instances.qcow2 import MAGIC as QCOW2_MAGIC
from cachemgr.instances.qcow2 import inspect_qcow2

HEAD_BYTES = 72 << 10
"""How much of an image's beginning tells what it is: the superblock of btrfs lies furthest in."""

SIF_LAUNCHER_BYTES = 32
MBR_ENTRIES_AT, MBR_ENTRY_BYTES, MBR_ENTRIES = 446, 16, 4
# Where a file system or partition table without doubt shows itself.
RAW_MAGICS = (
    (0, b"XFSB"),
    (512, b"EFI PART"),
    (4096, b"EFI PART"),
    (1080, b"\x53\xef"),  # ext2, ext3, ext4
    (32769, b"CD001"),
    (65600, b"_BHRfS_M"),
)


def detect(head: bytes, size_bytes: int) -> str:
    """The format of an image by its first `HEAD_BYTES`: qcow2, squashfs, sif, raw, or else file.

    A disk image has no magic of its own; it is raw only if a partition table or a file
    system begins it. What is not recognised is a file, which nobody interprets.
    """
    if head.startswith(QCOW2_MAGIC):
        return "qcow2"
    if _is_squashfs(head, size_bytes):
        return "squashfs"
    if head[SIF_LAUNCHER_BYTES:].startswith(b"SIF_MAGIC"):
        return "sif"
    if any(head.startswith(magic, at) for at, magic in RAW_MAGICS) or _has_partitions(head):
        return "raw"
    return "file"


def admitted(head: bytes, size_bytes: int) -> str:
    """The format of an image that may enter a pool; `Unsuitable` for one that is a trap."""
    found = detect(head, size_bytes)
    if found == "qcow2":
        inspect_qcow2(head)
    return found


def _is_squashfs(head: bytes, size_bytes: int) -> bool:
    if len(head) < 96 or not head.startswith(b"hsqs"):
        return False
    major: int = struct.unpack_from("<H", head, 28)[0]
    used_bytes: int = struct.unpack_from("<Q", head, 40)[0]
    return major == 4 and used_bytes <= size_bytes


def _has_partitions(head: bytes) -> bool:
    """A master boot record: its signature, and only states of partitions that exist."""
    if head[510:512] != b"\x55\xaa":
        return False
    states = head[MBR_ENTRIES_AT : MBR_ENTRIES_AT + MBR_ENTRIES * MBR_ENTRY_BYTES : MBR_ENTRY_BYTES]
    return all(state in (0x00, 0x80) for state in states)
