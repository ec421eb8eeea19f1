"""Instances that are files, on XFS, btrfs and ext4: independent, idempotent, whole after a crash."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import NoRoom, PoolDamaged, Unsuitable
from cachemgr.instances.making import BuildOrder, make
from cachemgr.instances.removal import remove

MIB = 1 << 20
PLACES = [(kind, "reflink") for kind in ("xfs", "btrfs")] + [
    (kind, method) for kind in ("xfs", "btrfs", "ext4") for method in ("copy", "qcow2")
]


def disk_image(size_bytes: int = 5 * MIB + 512) -> bytes:
    """A raw disk: an ext4 magic, data that does not compress, a long hole, data at the end."""
    data = bytearray(size_bytes)
    data[1080:1082] = b"\x53\xef"
    data[4096 : MIB + 4096] = random.Random(7).randbytes(MIB)
    data[-512:] = b"end " * 128
    return bytes(data)


def sha256(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.fixture
def qemu_io(needs: Callable[[str], str]) -> Callable[..., None]:
    def run(path: str, image_format: str, *commands: str) -> None:
        arguments = [part for each in commands for part in ("-c", each)]
        argv = [needs("qemu-io"), "-f", image_format, *arguments, path]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert "failed" not in done.stdout

    return run


@pytest.mark.parametrize(("kind", "method"), PLACES)
def test_writes_change_neither_the_image_nor_another_instance(
    site_on: Callable[[str], Any], qemu_io: Callable[..., None], kind: str, method: str
) -> None:
    site = site_on(kind)
    image = site.image(disk_image())
    before = sha256(image)
    first = site.make(method, site.order(image, "raw"))
    second = site.make(method, site.order(image, "raw"))
    qemu_io(
        first.path, first.format, f"read -P 0 {3 * MIB} 64k", f"write -P 1 {3 * MIB} 64k", "write -P 1 0 64k"
    )
    qemu_io(second.path, second.format, f"read -P 0 {3 * MIB} 64k", f"write -P 2 {3 * MIB} 64k")
    qemu_io(first.path, first.format, f"read -P 1 {3 * MIB} 64k")

    assert sha256(image) == before
    assert first.format == ("qcow2" if method == "qcow2" else "raw")
    assert first.mounts == ()


@pytest.mark.parametrize(("kind", "method"), [place for place in PLACES if place[1] != "qcow2"])
def test_instance_has_every_byte_of_its_image(site_on: Callable[[str], Any], kind: str, method: str) -> None:
    site = site_on(kind)
    for data in (disk_image(), b"", b"x", bytes(3 * MIB), disk_image(2 * MIB)):
        image = site.image(data)

        assert sha256(site.make(method, site.order(image, "file")).path) == sha256(image)


def test_copy_of_a_hole_is_a_hole(site: Any) -> None:
    made = site.make("copy", site.order(site.image(bytes(40 * MIB) + b"end"), "file"))

    assert Path(made.path).stat().st_size == 40 * MIB + 3
    assert Path(made.path).stat().st_blocks * 512 <= 4 * MIB


@pytest.mark.parametrize("method", ["reflink", "copy", "qcow2"])
def test_making_it_again_keeps_what_the_job_wrote(site: Any, method: str) -> None:
    order = site.order(site.image(disk_image()), "raw")
    first = site.make(method, order)
    with open(first.path, "r+b") as file:
        file.seek(200_000)
        file.write(b"of the job")
    before = sha256(first.path)

    assert site.make(method, order) == first
    assert sha256(first.path) == before
    assert os.listdir(order.folder) == ["disk"]


class PowerlessAfter:
    """A disk whose process dies at its n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.disk = RealDisk()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.disk, name)

        def step(*arguments: Any, **named: Any) -> Any:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return method(*arguments, **named)

        return step


@pytest.mark.parametrize("method", ["reflink", "copy", "qcow2"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_crash_at_any_step_is_mended_by_the_next_attempt(site: Any, method: str) -> None:
    image = site.image(disk_image(MIB))
    expected = sha256(site.make(method, site.order(image, "raw")).path)
    crashes = 0
    for steps in range(40):
        order = site.order(image, "raw")
        try:
            make(PowerlessAfter(steps), method, order)
        except KeyboardInterrupt:
            crashes += 1
        else:
            break

        assert not os.path.exists(f"{order.folder}/disk")
        assert sha256(site.make(method, order).path) == expected
        assert os.listdir(order.folder) == ["disk"]

    assert crashes >= 6


@pytest.mark.parametrize("method", ["reflink", "copy", "qcow2"])
def test_crash_at_any_step_leaves_what_can_be_removed(site: Any, method: str) -> None:
    image = site.image(disk_image(MIB))
    for steps in range(12):
        order = site.order(image, "raw")
        with suppress(KeyboardInterrupt):
            make(PowerlessAfter(steps), method, order)
        remove(site.kernel, order.folder, pool=str(site.root))

        assert os.listdir(order.folder) == []


def test_reflink_where_blocks_are_not_shared_is_unsuitable(site_on: Callable[[str], Any]) -> None:
    site = site_on("ext4")
    order = site.order(site.image(disk_image()), "raw")

    with pytest.raises(Unsuitable, match="cannot share blocks"):
        site.make("reflink", order)
    assert os.listdir(order.folder) == []


def test_copy_onto_a_full_disk_says_what_to_do(site_on: Callable[[str], Any], short_path: Path) -> None:
    target = short_path / "small"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", target], check=True, timeout=240)
    try:
        site = site_on("xfs")
        image = site.image(random.Random(1).randbytes(5 * MIB))
        order = site.order(image, "file", folder=target)

        with pytest.raises(NoRoom, match="remove instances or images"):
            site.make("copy", order)
        assert os.listdir(target) == [".disk.new"]
    finally:
        subprocess.run(["umount", target], check=True, timeout=240)


def test_image_shorter_than_its_record_is_not_copied(site: Any) -> None:
    image = site.image(b"short")
    order = BuildOrder(str(image), "file", 6, str(site.folder()), 0, True)

    with pytest.raises(PoolDamaged, match="shorter than 6 bytes"):
        site.make("copy", order)


def test_hostile_qcow2_becomes_no_instance_by_any_method(
    site: Any, tmp_path: Path, needs: Callable[[str], str]
) -> None:
    path = tmp_path / "hostile"
    argv = [
        needs("qemu-img"),
        "create",
        "-q",
        "-f",
        "qcow2",
        "-u",
        "-b",
        "/etc/shadow",
        "-F",
        "raw",
        str(path),
        "1M",
    ]
    subprocess.run(argv, check=True, timeout=240)
    image = site.adopted(path)
    for method in ("reflink", "copy", "qcow2"):
        order = site.order(image, "qcow2")

        with pytest.raises(Unsuitable, match="backing file"):
            site.make(method, order)
        with pytest.raises(Unsuitable, match="is a qcow2 image, although it was called raw"):
            site.make(method, site.order(image, "raw"))
        assert os.listdir(order.folder) == []


def test_overlay_on_an_encrypted_image_is_refused(
    site: Any, tmp_path: Path, needs: Callable[[str], str]
) -> None:
    path = tmp_path / "encrypted"
    argv = [needs("qemu-img"), "create", "-q", "-f", "qcow2", str(path), "1M"]
    subprocess.run(argv, check=True, timeout=240)
    with path.open("r+b") as file:
        file.seek(32)
        file.write((2).to_bytes(4, "big"))
    image = site.adopted(path)

    with pytest.raises(Unsuitable, match="ask for reflink or copy"):
        site.make("qcow2", site.order(image, "qcow2"))
    assert site.make("reflink", site.order(image, "qcow2")).format == "qcow2"


def test_shared_instance_is_the_image_itself(site: Any) -> None:
    order = site.order(site.image(b"program"), "file", is_writable=False)
    made = site.make("shared", order)

    assert made.path == order.image_path
    assert os.listdir(order.folder) == []


def test_method_that_does_not_fit_is_refused(site: Any) -> None:
    image = site.image(disk_image())

    with pytest.raises(Unsuitable, match="method shared makes no writable instance of a raw image"):
        site.make("shared", site.order(image, "raw"))
    with pytest.raises(Unsuitable, match="overlay makes no"):
        site.make("overlay", site.order(image, "raw"))
