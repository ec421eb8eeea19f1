"""Images that would make a hypervisor read the node's own files are refused, with the reason."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemgr.base.errors import CacheError, Unsuitable
from cachemgr.instances.formats import HEAD_BYTES
from cachemgr.instances.qcow2 import inspect_qcow2, overlay
from tests.amount import examples

MIB = 1 << 20


def head_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def plain_header(**changes: int) -> bytearray:
    """Version 3, 1 MiB, no extensions; `changes` are offsets like `at_72` with values of 8 bytes."""
    head = bytearray(4096)
    struct.pack_into(">4sIQIIQ", head, 0, b"QFI\xfb", 3, 0, 0, 16, MIB)
    struct.pack_into(">QQQII", head, 72, 0, 0, 0, 4, 104)
    for name, value in changes.items():
        struct.pack_into(">Q", head, int(name[3:]), value)
    return head


@pytest.fixture
def create(tmp_path: Path, needs: Callable[[str], str]) -> Callable[..., Path]:
    def run(*options: str) -> Path:
        image = tmp_path / "image.qcow2"
        argv = [needs("qemu-img"), "create", "-q", "-f", "qcow2", *options, str(image), "64M"]
        subprocess.run(argv, check=True, timeout=240)
        return image

    return run


@pytest.mark.parametrize("version", ["0.10", "1.1"])
def test_plain_image_is_accepted_with_its_size(create: Callable[..., Path], version: str) -> None:
    found = inspect_qcow2(head_of(create("-o", f"compat={version}")))

    assert found.virtual_bytes == 64 * MIB
    assert not found.is_encrypted


@pytest.mark.parametrize(
    "options", ["cluster_size=2M", "cluster_size=512", "extended_l2=on,cluster_size=64k"]
)
def test_image_with_unusual_clusters_is_accepted(create: Callable[..., Path], options: str) -> None:
    assert inspect_qcow2(head_of(create("-o", options))).virtual_bytes == 64 * MIB


@pytest.mark.parametrize("version", ["0.10", "1.1"])
def test_backing_file_is_refused(create: Callable[..., Path], version: str) -> None:
    image = create("-o", f"compat={version}", "-u", "-b", "/etc/shadow", "-F", "raw")

    with pytest.raises(Unsuitable, match=r"names a backing file.*qemu-img convert"):
        inspect_qcow2(head_of(image))


def test_overlay_of_our_own_is_refused_as_an_image() -> None:
    pieces = dict(overlay("/etc/shadow", "raw", MIB))

    with pytest.raises(Unsuitable, match="backing file"):
        inspect_qcow2(pieces[0] + bytes(4096))


def test_external_data_file_is_refused(create: Callable[..., Path], tmp_path: Path) -> None:
    image = create("-o", f"data_file={tmp_path / 'elsewhere'}")

    with pytest.raises(Unsuitable, match="keeps its data in another file"):
        inspect_qcow2(head_of(image))


def test_name_of_a_data_file_is_refused_even_without_its_bit() -> None:
    head = plain_header()
    struct.pack_into(">II", head, 104, 0x44415441, 11)

    with pytest.raises(Unsuitable, match="keeps its data in another file"):
        inspect_qcow2(bytes(head))


@pytest.mark.parametrize("method", [1, 2])
def test_encryption_is_seen(method: int) -> None:
    assert inspect_qcow2(bytes(plain_header(at_32=method << 32))).is_encrypted
    assert not inspect_qcow2(bytes(plain_header())).is_encrypted


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "its magic is missing"),
        (b"QFI\xfb", "its magic is missing"),
        (bytes(plain_header())[:80], "ends within its header"),
        (bytes(plain_header(at_8=4096)), "names a backing file"),
        (bytes(plain_header(at_24=1 << 62)), "at most|allowed are"),
        (bytes(plain_header(at_72=1 << 2)), "keeps its data in another file"),
        (bytes(plain_header(at_72=1 << 1)), "marked as corrupt"),
        (bytes(plain_header(at_72=1 << 40)), "features that are not known: 0x10000000000"),
        (bytes(plain_header(at_96=(4 << 32) | 96)), "its header has 96 bytes"),
        (bytes(plain_header(at_96=(4 << 32) | 1 << 30)), "its header has 1073741824 bytes"),
        (bytes(plain_header(at_104=(7 << 32) | 0xFFF0)), "its header does not end"),
    ],
)
def test_damaged_header_is_refused(head: bytes, reason: str) -> None:
    with pytest.raises(Unsuitable, match=reason):
        inspect_qcow2(head)


def test_endless_chain_of_extensions_is_refused() -> None:
    head = plain_header()
    for at in range(104, 4096, 8):
        struct.pack_into(">II", head, at, 7, 0)

    with pytest.raises(Unsuitable, match="more than 32 header extensions"):
        inspect_qcow2(bytes(head))


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 111), st.binary(min_size=1, max_size=16))
def test_changed_header_is_accepted_or_refused_but_never_names_a_file(at: int, change: bytes) -> None:
    head = plain_header()
    head[at : at + len(change)] = change
    try:
        inspect_qcow2(bytes(head))
    except CacheError:
        return

    assert head[8:20] == bytes(12)
    assert not int.from_bytes(head[72:80], "big") & 4 or head[4:8] == b"\0\0\0\2"
