"""The qcow2 format: refusing what could read a node's files, and writing an empty overlay.

An overlay is a header, a table of reference counts and a table without entries. Writing it
here takes a fraction of a millisecond; starting `qemu-img` for it takes nine, and that tool
would have to be on every node. The layout is that of QEMU's docs/interop/qcow2.txt.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, Unsuitable

MAGIC = b"QFI\xfb"
MOST_VIRTUAL_BYTES = 16 << 40
"""A larger disk is refused: its tables alone would be a burden to every hypervisor."""

V2_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
V3_FIELDS = struct.Struct(">QQQII")
V3_HEADER_BYTES = V2_HEADER.size + V3_FIELDS.size
EXTENSION = struct.Struct(">II")
MOST_EXTENSIONS = 32
BACKING_FORMAT = 0xE2792ACA
EXTERNAL_DATA_NAME = 0x44415441
# Bits that a reader must understand: dirty, corrupt, external data, compression, subclusters.
CORRUPT, EXTERNAL_DATA, KNOWN_BITS = 1 << 1, 1 << 2, 0b11111

CLUSTER_BITS = 16
CLUSTER_BYTES = 1 << CLUSTER_BITS
SECTOR_BYTES = 512
REFCOUNT_ORDER = 4
MOST_BACKING_PATH = 1023


@dataclass(frozen=True)
class Qcow2:
    """What matters of an image that was found harmless."""

    virtual_bytes: int
    is_encrypted: bool


def inspect_qcow2(head: bytes, most_virtual_bytes: int = MOST_VIRTUAL_BYTES) -> Qcow2:
    """Read the header; `Unsuitable` for whatever names another file, or no sane reader opens.

    A hypervisor opens the backing file or external data file that an image names with its
    own rights: an image from a user could so contain the node's password file. Overlays on
    images of the pool are written here; an image that comes as an overlay is refused.
    """
    if len(head) < V2_HEADER.size or not head.startswith(MAGIC):
        raise Unsuitable("the image is not a qcow2 image: its magic is missing")
    fields = V2_HEADER.unpack_from(head)
    version, backing_at, backing_bytes, cluster_bits, virtual_bytes, encryption = fields[1:7]
    if backing_at or backing_bytes:
        raise Unsuitable(
            "the qcow2 image names a backing file, which could be any file of the node: "
            "flatten it with `qemu-img convert -O qcow2`"
        )
    if version not in (2, 3):
        raise Unsuitable(f"the qcow2 image has version {version}: versions 2 and 3 are known")
    if not 9 <= cluster_bits <= 21:
        raise Unsuitable(f"the qcow2 image is damaged: clusters of 2^{cluster_bits} bytes do not exist")
    if virtual_bytes > most_virtual_bytes:
        raise Unsuitable(
            f"the qcow2 image describes a disk of {virtual_bytes} bytes; allowed are {most_virtual_bytes}"
        )
    _check_the_rest(head, version, 1 << cluster_bits)
    return Qcow2(virtual_bytes=virtual_bytes, is_encrypted=encryption != 0)


def _check_the_rest(head: bytes, version: int, cluster_bytes: int) -> None:
    at = V2_HEADER.size
    if version == 3:
        if len(head) < V3_HEADER_BYTES:
            raise Unsuitable("the qcow2 image is damaged: it ends within its header")
        features, _, _, _, at = V3_FIELDS.unpack_from(head, at)
        if features & EXTERNAL_DATA:
            raise _external_data()
        if features & CORRUPT:
            raise Unsuitable("the qcow2 image is marked as corrupt: repair it with `qemu-img check -r all`")
        if features & ~KNOWN_BITS:
            raise Unsuitable(
                f"the qcow2 image needs features that are not known: {features & ~KNOWN_BITS:#x}"
            )
        if not V3_HEADER_BYTES <= at <= cluster_bytes or at % 8:
            raise Unsuitable(f"the qcow2 image is damaged: its header has {at} bytes")
    for _ in range(MOST_EXTENSIONS):
        if at == cluster_bytes:
            return
        if at + EXTENSION.size > min(len(head), cluster_bytes):
            raise Unsuitable("the qcow2 image is damaged: its header does not end")
        kind, length = EXTENSION.unpack_from(head, at)
        if kind == 0:
            return
        if kind == EXTERNAL_DATA_NAME:
            raise _external_data()
        at += EXTENSION.size + (length + 7) // 8 * 8
    raise Unsuitable(f"the qcow2 image has more than {MOST_EXTENSIONS} header extensions")


def _external_data() -> Unsuitable:
    return Unsuitable(
        "the qcow2 image keeps its data in another file, which could be any file of the node: "
        "make one file of it with `qemu-img convert -O qcow2`"
    )


def overlay(backing_path: str | None, backing_format: str, virtual_bytes: int) -> list[tuple[int, bytes]]:
    """The pieces of an empty overlay, or of an empty image, each with its offset; what lies between is zero.

    ::

        cluster 0      header, its extensions, the path of the backing file
        cluster 1      the table of reference counts: one entry
        cluster 2      a block of reference counts: 1 for each cluster here
        cluster 3 ...  the first-level table: all zero, so everything is read from the backing file
    """
    path = (backing_path or "").encode()
    if len(path) > MOST_BACKING_PATH:
        raise BadRequest(f"the pool's path is too long for a qcow2 overlay: {len(path)} bytes")
    # A hypervisor rounds a size that is no multiple of a sector down, and the end would be lost.
    virtual_bytes = _round_up(virtual_bytes, SECTOR_BYTES)
    covered_bytes = CLUSTER_BYTES * (CLUSTER_BYTES // 8)
    entries = max(1, -(-virtual_bytes // covered_bytes))
    table_clusters = -(-entries * 8 // CLUSTER_BYTES)
    clusters = 3 + table_clusters
    if virtual_bytes > MOST_VIRTUAL_BYTES:
        raise Unsuitable(f"a disk of {virtual_bytes} bytes is too large for an overlay")

    name = backing_format.encode()
    extensions = EXTENSION.pack(BACKING_FORMAT, len(name)) + name.ljust(_round_up(len(name), 8), b"\0")
    extensions = (extensions if path else b"") + EXTENSION.pack(0, 0)
    backing_at = V3_HEADER_BYTES + len(extensions) if path else 0
    header = V2_HEADER.pack(
        MAGIC, 3, backing_at, len(path), CLUSTER_BITS, virtual_bytes, 0,
        entries, 3 * CLUSTER_BYTES, CLUSTER_BYTES, 1, 0, 0,
    )  # fmt: skip
    header += V3_FIELDS.pack(0, 0, 0, REFCOUNT_ORDER, V3_HEADER_BYTES)
    return [
        (0, header + extensions + path),
        (CLUSTER_BYTES, struct.pack(">Q", 2 * CLUSTER_BYTES)),
        (2 * CLUSTER_BYTES, struct.pack(">H", 1) * clusters),
        (clusters * CLUSTER_BYTES - 1, b"\0"),
    ]


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
