"""What an image is, by its content: real images of the tools that make them, and look-alikes."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.instances.formats import HEAD_BYTES, detect

MIB = 1 << 20


def detected(path: Path) -> str:
    with path.open("rb") as file:
        return detect(file.read(HEAD_BYTES), path.stat().st_size)


@pytest.mark.parametrize(
    ("tool", "options", "size_bytes"),
    [
        ("mkfs.ext4", ["-q", "-F"], 8 * MIB),
        ("mkfs.xfs", ["-q", "-f"], 300 * MIB),
        ("mkfs.btrfs", ["-q", "-f"], 128 * MIB),
    ],
)
def test_disk_with_a_file_system_is_raw(
    tmp_path: Path, needs: Callable[[str], str], tool: str, options: list[str], size_bytes: int
) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([needs(tool), *options, image], check=True, timeout=240)

    assert detected(image) == "raw"


def test_partitioned_disk_is_raw(tmp_path: Path, needs: Callable[[str], str]) -> None:
    for label in ("dos", "gpt"):
        image = tmp_path / label
        image.write_bytes(bytes(8 * MIB))
        script = f"label: {label}\nstart=2048, size=2048\n"
        subprocess.run([needs("sfdisk"), "-q", image], input=script, text=True, check=True, timeout=240)

        assert detected(image) == "raw"


def test_qcow2_of_both_versions_is_qcow2(tmp_path: Path, needs: Callable[[str], str]) -> None:
    for version in ("0.10", "1.1"):
        image = tmp_path / version
        argv = [needs("qemu-img"), "create", "-q", "-f", "qcow2", "-o", f"compat={version}", str(image), "1M"]
        subprocess.run(argv, check=True, timeout=240)

        assert detected(image) == "qcow2"


def test_squashfs_is_squashfs_and_its_beginning_alone_is_not(squashfs: Path) -> None:
    whole = squashfs.read_bytes()

    assert detected(squashfs) == "squashfs"
    assert detect(whole[:200], 200) == "file"


def test_singularity_image_is_sif() -> None:
    head = b"#!/usr/bin/env run-singularity\n\0" + b"SIF_MAGIC\0" + bytes(100)

    assert detect(head, len(head)) == "sif"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"hello",
        bytes(HEAD_BYTES),
        b"\x1f\x8b" + bytes(600),
        b"hsqs",
        b"\x53\xef",
        bytes(510) + b"\x55",
        # A signature where a boot record ends, but states of partitions that do not exist.
        b"text" * 127 + b"\0\0" + b"\x55\xaa",
    ],
)
def test_anything_else_is_a_file(head: bytes) -> None:
    assert detect(head, len(head)) == "file"


def test_squashfs_of_another_version_is_a_file() -> None:
    head = bytearray(96)
    head[:4] = b"hsqs"
    struct.pack_into("<H", head, 28, 3)

    assert detect(bytes(head), 96) == "file"
