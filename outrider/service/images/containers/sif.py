"""The frame that makes a squashfs file a SIF, as Apptainer reads it.

The layout is that of the SIF specification's version 1: a header of 128 bytes, 48 descriptors of 585
bytes, and the file system behind them. Times and the identifier follow from the image, so that the same
image gives the same bytes.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct("<32s10s3s3s16s8q")
DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
EXTRA = struct.Struct("<ii3s")
LAUNCH = b"#!/usr/bin/env run-singularity\n"
MAGIC, VERSION = b"SIF_MAGIC", b"01"
DESCRIPTORS, DESCRIPTORS_AT = 48, 4_096
DATA_AT = DESCRIPTORS_AT + DESCRIPTORS * DESCRIPTOR.size
PAGE = 4_096
IMAGE_AT = -(-DATA_AT // PAGE) * PAGE
"""Where the file system begins: kernels mount from whole pages."""
PARTITION, GROUP = 0x4004, 0xF0000001
SQUASHFS, PRIMARY = 1, 2
MACHINES = {
    "386": b"01",
    "amd64": b"02",
    "arm": b"03",
    "arm64": b"04",
    "ppc64": b"05",
    "ppc64le": b"06",
    "s390x": b"11",
    "riscv64": b"12",
}


def frame(size_bytes: int, machine: str, identifier: bytes) -> bytes:
    """The first `IMAGE_AT` bytes of a SIF whose file system has that size."""
    code = MACHINES.get(machine, b"00")
    descriptor = DESCRIPTOR.pack(
        PARTITION,
        1,
        1,
        GROUP,
        0,
        IMAGE_AT,
        size_bytes,
        size_bytes + IMAGE_AT - DATA_AT,
        0,
        0,
        0,
        0,
        b"squashfs",
        EXTRA.pack(SQUASHFS, PRIMARY, code),
    )
    header = HEADER.pack(
        LAUNCH,
        MAGIC,
        VERSION,
        code,
        identifier[:16],
        0,
        0,
        DESCRIPTORS - 1,
        DESCRIPTORS,
        DESCRIPTORS_AT,
        DESCRIPTORS * DESCRIPTOR.size,
        DATA_AT,
        size_bytes + IMAGE_AT - DATA_AT,
    )
    return header.ljust(DESCRIPTORS_AT, b"\0") + descriptor.ljust(IMAGE_AT - DESCRIPTORS_AT, b"\0")
