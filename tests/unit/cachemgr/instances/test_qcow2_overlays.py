"""Overlays written by hand, as the tools of QEMU see them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.instances.qcow2 import MOST_VIRTUAL_BYTES, overlay

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture
def tool(needs: Callable[[str], str]) -> Callable[..., str]:
    def run(name: str, *arguments: str | Path) -> str:
        done = subprocess.run(
            [needs(name), *map(str, arguments)], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Pattern verification failed" not in done.stdout
        return done.stdout

    return run


def written(path: Path, backing: Path, backing_format: str, size_bytes: int) -> Path:
    with path.open("wb") as file:
        for offset, data in overlay(str(backing), backing_format, size_bytes):
            file.seek(offset)
            file.write(data)
    return path


# One cluster, tables of one and of several clusters, a size that is no multiple of anything.
@pytest.mark.parametrize(
    "size_bytes", [512, 64 * KIB, MIB, GIB, 513 * MIB, 3 * GIB + 512, 5000 * GIB, MOST_VIRTUAL_BYTES]
)
def test_tools_find_no_fault(tmp_path: Path, tool: Callable[..., str], size_bytes: int) -> None:
    backing = tmp_path / "image"
    tool("qemu-img", "create", "-q", "-f", "qcow2", backing, str(size_bytes))
    path = written(tmp_path / "disk", backing, "qcow2", size_bytes)

    tool("qemu-img", "check", path)
    info = json.loads(tool("qemu-img", "info", "--output=json", path))

    assert info["virtual-size"] == size_bytes
    assert info["backing-filename"] == str(backing)
    assert info["backing-filename-format"] == "qcow2"
    assert path.stat().st_blocks * 512 <= 300 * KIB


# The second lies beyond what the first entry of the first-level table covers.
@pytest.mark.parametrize(("backing_format", "at_mib"), [("raw", 30), ("qcow2", 600)])
def test_reads_come_from_the_image_and_writes_stay_in_the_overlay(
    tmp_path: Path, tool: Callable[..., str], backing_format: str, at_mib: int
) -> None:
    backing = tmp_path / "image"
    tool("qemu-img", "create", "-q", "-f", backing_format, backing, f"{at_mib + 1}M")
    tool("qemu-io", "-f", backing_format, "-c", f"write -P 17 {at_mib}M 1M", backing)
    before = hashlib.sha256(backing.read_bytes()).hexdigest()
    path = written(tmp_path / "disk", backing, backing_format, (at_mib + 1) * MIB)

    tool("qemu-io", "-f", "qcow2", "-c", f"read -P 17 {at_mib}M 1M", "-c", "read -P 0 0 64k", path)
    tool("qemu-io", "-f", "qcow2", "-c", f"write -P 99 {at_mib}M 64k", "-c", "write -P 98 0 64k", path)
    tool(
        "qemu-io",
        "-f",
        "qcow2",
        "-c",
        f"read -P 99 {at_mib}M 64k",
        "-c",
        f"read -P 17 {at_mib * MIB + 64 * KIB} 64k",
        path,
    )
    tool("qemu-img", "check", path)

    assert hashlib.sha256(backing.read_bytes()).hexdigest() == before


def test_end_of_a_raw_image_of_odd_size_can_be_read(tmp_path: Path, tool: Callable[..., str]) -> None:
    backing = tmp_path / "image"
    backing.write_bytes(b"\x11" * (MIB + 100))
    path = written(tmp_path / "disk", backing, "raw", MIB + 100)

    out = tool("qemu-io", "-f", "qcow2", "-c", f"read -P 17 {MIB} 100", path)

    assert "100/100" in out
    assert json.loads(tool("qemu-img", "info", "--output=json", path))["virtual-size"] == MIB + 512


def test_too_large_a_disk_and_too_long_a_path_are_refused() -> None:
    with pytest.raises(Unsuitable, match="too large for an overlay"):
        overlay("/pool/image", "raw", MOST_VIRTUAL_BYTES + 1)
    with pytest.raises(BadRequest, match="1024 bytes"):
        overlay("/" + "p" * 1023, "raw", MIB)
