"""Images of ISO 9660, as two independent readers see them, and cloud-init's way to find one."""

from __future__ import annotations

import hashlib
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.errors import BadRequest
from cachemgr.instances.iso9660 import MOST_IMAGE_BYTES, iso9660

LONG_NAME = "N" + "o" * 62 + "e"
FILES = {
    "meta-data": b'{"instance-id": "i1"}\n',
    "user-data": b"#!/bin/sh\n",
    "network-config": b"",
    "a": bytes(2048),
    "b": bytes(2049),
    "z": random.Random(3).randbytes(100_000),
}
MANY = {f"file-{number:04}-{'x' * 50}": b"%d" % number for number in range(120)}
FOLDERS = {
    "files": {"Makefile": b"all:\n", "makefile": b"none:\n", LONG_NAME: b"long", "last": b""},
    "many": MANY,
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("iso") / "image.iso"
    path.write_bytes(iso9660("cidata", FILES, FOLDERS))
    return path


@pytest.fixture(scope="module")
def tool(needs: Callable[[str], str]) -> Callable[..., bytes]:
    def run(name: str, *arguments: str | Path) -> bytes:
        done = subprocess.run([needs(name), *map(str, arguments)], capture_output=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def expected() -> dict[str, bytes]:
    inner = {f"/{folder}/{name}": data for folder, files in FOLDERS.items() for name, data in files.items()}
    return {**{f"/{name}": data for name, data in FILES.items()}, **inner}


def test_isoinfo_finds_every_name(image: Path, tool: Callable[..., bytes]) -> None:
    found = tool("isoinfo", "-R", "-f", "-i", image).decode().split()

    assert sorted(found) == sorted([*expected(), "/files", "/many"])


def test_isoinfo_reads_every_byte(image: Path, tool: Callable[..., bytes]) -> None:
    names = [name for name in expected() if not name.startswith("/many/")] + [f"/many/{sorted(MANY)[-1]}"]
    found = {name: tool("isoinfo", "-R", "-i", image, "-x", name) for name in names}

    assert found == {name: expected()[name] for name in names}


def test_xorriso_extracts_what_went_in(image: Path, tool: Callable[..., bytes], tmp_path: Path) -> None:
    target = tmp_path / "out"
    tool("xorriso", "-osirrox", "on", "-abort_on", "WARNING", "-indev", image, "-extract", "/", target)
    found = {
        f"/{path.relative_to(target)}": path.read_bytes() for path in target.rglob("*") if path.is_file()
    }

    assert found == expected()
    assert (target / "files" / LONG_NAME).stat().st_mode & 0o777 == 0o444


def test_label_is_what_cloud_init_looks_for(image: Path, tool: Callable[..., bytes]) -> None:
    assert tool("blkid", "-p", "-o", "value", "-s", "LABEL", image) == b"cidata\n"
    assert tool("blkid", "-p", "-o", "value", "-s", "TYPE", image) == b"iso9660\n"


def test_same_files_in_another_order_give_the_same_bytes() -> None:
    turned = iso9660("cidata", dict(reversed(FILES.items())), dict(reversed(FOLDERS.items())))

    assert hashlib.sha256(turned).digest() == hashlib.sha256(iso9660("cidata", FILES, FOLDERS)).digest()


def test_image_without_files_is_one(tmp_path: Path, tool: Callable[..., bytes]) -> None:
    path = tmp_path / "empty.iso"
    path.write_bytes(iso9660("empty", {}, {}))

    assert tool("isoinfo", "-R", "-f", "-i", path) == b""
    assert b"Volume id: empty" in tool("isoinfo", "-d", "-i", path)


@pytest.mark.parametrize(
    ("label", "files"),
    [
        ("", {}),
        ("l" * 33, {}),
        ("cidata", {"": b""}),
        ("cidata", {"n" * 65: b""}),
        ("cidata", {"näme": b""}),
        ("cidata", {"large": bytes(MOST_IMAGE_BYTES + 1)}),
    ],
)
def test_what_does_not_fit_is_refused(label: str, files: dict[str, bytes]) -> None:
    with pytest.raises(BadRequest):
        iso9660(label, files, {})


def test_file_and_folder_of_one_name_are_refused() -> None:
    with pytest.raises(BadRequest, match="same name"):
        iso9660("cidata", {"files": b""}, {"files": {}})
